//! New code, old snapshots: edits of real fibers, each with what becomes of a fiber that runs meanwhile.
//!
//! Each test is one edit. The old version of a fiber runs on a database file up to a given step and dies there; the new version,
//! of the same stored name, opens the file. Either it comes to the right end with only the steps that were left (`resumes`), or
//! the fiber is parked for the right reason with its snapshot as it was (`parks`), and code that fits brings it to its end.
mod arguments;
mod begun;
mod branches;
mod calls;
mod fields;
mod layouts;
mod locals;
mod loops;
mod migrations;
mod moved;
mod opening;
mod side;
mod steps;
mod stopped;
mod transactions;
mod versions;
mod waits;
mod wrapped;

use stopped::{stopped, stopped_after_a_message, stopped_side_by_side};
use versions::{World, versions};
