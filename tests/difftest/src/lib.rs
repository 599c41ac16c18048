//! What generated bodies work with: values of every shape, and an outside world that answers the same to both renderings.
//!
//! `build.rs` and `generator` write the bodies; `tests/differential` runs them and says how to choose them.

mod io;
mod values;

pub use io::{Io, Noisy};
pub use values::{Item, Numbered, Shape, Token, keep, label, make_item, plus, rank, sum, weigh};
