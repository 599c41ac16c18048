//! Layouts of fiber functions: the cut points, and the locals that a snapshot at each contains.
//!
//! [`of`] gives the [`Layout`] of a function, to show, or to compare with that of another version:
//! [`Layout::can_resume`] gives the [`Drift`], with a [`Problem`] for each place where a fiber
//! would be parked. [`check!`] in a test compares all functions with a file under version control.
//! [`Compatibility`] is the same question about the fibers of a database, before a deploy.

// A layout is built from the `Machine` that the macro writes, stored with the snapshots of its
// code, and compared when newer code loads them (`drift`). Names identify everything. Source lines
// are not included, so an edit that moves code without affecting snapshots does not change the
// layout.

pub(crate) mod drift;
#[cfg(test)]
mod edits;
pub(crate) mod file;
mod fit;
pub(crate) mod of_fiber;
mod order;
pub(crate) mod problem;
pub(crate) mod rows;
mod show;
pub(crate) mod spec;

#[doc(inline)]
pub use crate::__forever_layout_check as check;
pub use crate::exec::compatibility::{Compatibility, CompatibilityEntry, OnIncompatible, Verdict};
pub use crate::frame::locals::OnRenamedField;
pub use drift::Drift;
pub use of_fiber::of;
pub use problem::Problem;
pub use spec::Layout;
