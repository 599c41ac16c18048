//! Random fibers and random edits of them. Rows are left at every checkpoint and in the middle of bodies by the code before an edit, and opened
//! by the code after it, and the other way round, and there and back. Whatever runs to its end has the result and the calls that an interpreter
//! finds, which knows every node, variable and branch by an id and nothing by its name; what the stored state does not determine is parked.
//!
//! Chosen by environment variables when the tests are built:
//!
//! | variable | means | default |
//! |---|---|---|
//! | `FOREVER_EDITS_SEED` | other programs | 1 |
//! | `FOREVER_EDITS_CASES` | how many edits | 12, in the night 68 |
//!
//! and when they are run: `FOREVER_EDITS_STOPS`, at how many places each run is stopped at most (12), and `FOREVER_EDITS_ONLY`, a case
//! by its number, all of whose failures are printed.

#[allow(dead_code, reason = "the build script uses the rest")]
#[path = "../../model/mod.rs"]
mod model;

mod counts;
mod deploy;
mod fleet;
mod io;
mod judge;
mod known;
mod oracle;
mod planted;
mod state;
mod value;
#[allow(warnings, clippy::all, clippy::pedantic)]
mod versions;
