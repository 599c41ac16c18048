//! The layout of a fiber function: its steps, and for each the locals that a snapshot taken there
//! holds.
//!
//! Made from the `Machine` that the macro writes, stored with the snapshots that code of this
//! layout leaves, and compared when newer code finds them (`drift`). Names identify everything;
//! source lines are not part of it, so that an edit that moves code but changes nothing a snapshot
//! depends on changes nothing here either.

pub(crate) mod drift;
#[cfg(test)]
mod edits;
pub(crate) mod file;
mod fit;
pub(crate) mod of_fiber;
pub(crate) mod problem;
pub(crate) mod rows;
mod show;
pub(crate) mod spec;

#[doc(inline)]
pub use crate::__forever_layout_check as check;
