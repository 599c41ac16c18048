//! What tests of fibers need: time that the test drives, and fibers that run without a database.
mod clock;
mod fuse;
mod stage;

pub use clock::VirtualClock;
pub use fuse::Fuse;
pub use stage::{From, Outcome, Played, Stage};
