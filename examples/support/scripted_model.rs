//! A model server that follows a script, for this example without a key.
use std::time::Duration;

use forever_testkit::servers::{CompletionsServer, call, say};
use serde_json::Value;

/// Starts the server, and returns its base URL. It runs as long as the tokio runtime.
pub(crate) async fn start(shows_requests: bool) -> std::io::Result<String> {
    let pace = Duration::from_millis(if cfg!(test) { 0 } else { 15 });
    CompletionsServer::new(script).paced(pace).shows_requests(shows_requests).start().await
}

/// The model's `turn`th turn, in pieces; `last` is the message before it.
fn script(turn: usize, last: &str) -> Vec<Value> {
    match turn {
        1 => [
            say("I look up how high each of them is."),
            call(0, "search", r#"{"query": "height Eiffel Tower"}"#),
            call(1, "search", r#"{"query": "height Great Pyramid"}"#),
        ]
        .concat(),
        2 => [say("Now the difference."), call(0, "calculate", r#"{"expression": "330 - 138.5"}"#)].concat(),
        _ => say(&format!("The Eiffel Tower is {last} m higher than the Great Pyramid of Giza: 330 m and 138.5 m.")),
    }
}
