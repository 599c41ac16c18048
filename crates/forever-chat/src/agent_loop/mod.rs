//! The agent loop, as a fiber function that a turn runs: it calls the model, makes the tool calls
//! that the model asks for, and repeats until there are none.
//!
//! The result of each step is in the log of the turn and in the fiber's snapshot; the log comes
//! first. So a step that runs again reads the log: a complete answer is not requested again, one
//! that was cut off is continued, and a tool call with a result is not repeated. A call that was
//! started and has no result is resolved by its operation, never guessed.
mod compaction;
mod loop_fiber;
mod model_call;
mod run_loop;
mod splice;
mod tool;

pub use loop_fiber::AgentLoop;
pub use tool::{Tool, UnknownCall};
