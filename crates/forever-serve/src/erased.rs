//! An agent whose class is known only by its name in a URL.
use forever_chat::{ChatAgent, Turn};
use forever_runtime::BoxError;
use forever_runtime::agent::Agent;

/// Type of such an agent; it has no values.
pub(super) enum Erased {}

impl Agent for Erased {
    // Never used for a lookup: the handle has the class beside it.
    const CLASS: &'static str = "";
    type State = serde_json::Value;
}

impl ChatAgent for Erased {
    async fn on_chat_message(&self, _: &Turn) -> Result<(), BoxError> {
        match *self {}
    }
}
