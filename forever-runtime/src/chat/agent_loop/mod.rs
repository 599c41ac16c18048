//! The loop of an agent, as a fiber function that a turn runs: the model is asked, what it wants to have done is done, and so on until it wants nothing more.
//!
//! What comes of each step stands in the log of the turn and in the fiber's snapshot; the log is first. So a step that runs again looks into the
//! log: an answer that is whole there is not asked for again, one that was cut off is gone on with, and a tool call whose result is there is
//! not made again. A call that was begun and has no result is decided by its operation, and not guessed.
mod asking;
mod child;
mod compaction;
mod fitting;
mod loop_fiber;
mod run_loop;
mod tool;

pub(crate) use child::ChildLoop;
pub use loop_fiber::AgentLoop;
pub use tool::{Tool, UnknownCall};
