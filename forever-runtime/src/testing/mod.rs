//! Testing kit: time that the test drives, crashes at every write, and fibers that run without a
//! database.
mod clock;
mod crash;
pub(crate) mod dice;
pub(crate) mod fuse;
mod memory;
mod stage;

pub use clock::VirtualClock;
pub use crash::{CrashEverywhere, CrashFailure, Survived, World, crash_everywhere};
pub use fuse::Fuse;
pub use memory::entries_in_memory;
pub use stage::{Kill, Outcome, Stage, StageRun, StartFrom};
