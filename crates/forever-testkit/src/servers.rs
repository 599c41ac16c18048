//! A server for a model that follows a script. It speaks OpenAI's chat completions, streamed, over
//! a socket on loopback.
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::net::TcpListener;

type Script = dyn Fn(usize, &str) -> Vec<Value> + Send + Sync;

/// A server that is not started yet.
#[derive(Clone)]
pub struct CompletionsServer {
    script: Arc<Script>,
    pace: Duration,
    shows_requests: bool,
}

impl CompletionsServer {
    /// A server that answers with these deltas, given the number of the model's turn, from 1, and
    /// the text of the last message.
    pub fn new(script: impl Fn(usize, &str) -> Vec<Value> + Send + Sync + 'static) -> Self {
        CompletionsServer { script: Arc::new(script), pace: Duration::ZERO, shows_requests: false }
    }

    /// Waits so long before each delta.
    #[must_use]
    pub fn paced(mut self, pace: Duration) -> Self {
        self.pace = pace;
        self
    }

    /// Prints a line for each request.
    #[must_use]
    pub fn shows_requests(mut self, shows: bool) -> Self {
        self.shows_requests = shows;
        self
    }

    /// Starts it, and returns its base URL. It runs as long as the tokio runtime.
    ///
    /// # Errors
    ///
    /// If it finds no port.
    pub async fn start(self) -> std::io::Result<String> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/v1", listener.local_addr()?);
        let answer = move |headers: HeaderMap, Json(request): Json<Value>| async move { self.answer(&headers, &request) };
        let app = Router::new().route("/v1/chat/completions", post(answer));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(url)
    }

    fn answer(&self, headers: &HeaderMap, request: &Value) -> Response {
        let known = headers.get(header::AUTHORIZATION).is_some_and(|value| value.as_bytes().starts_with(b"Bearer "));
        if !known {
            return refusal(StatusCode::UNAUTHORIZED, "no API key");
        }
        let (Some(messages), Some(true)) = (request["messages"].as_array(), request["stream"].as_bool()) else {
            return refusal(StatusCode::BAD_REQUEST, "expected `messages` and `stream`");
        };
        let turn = messages.iter().filter(|message| message["role"] == "assistant").count() + 1;
        if self.shows_requests {
            println!("turn {turn} of a model, after {} messages", messages.len());
        }
        let last = messages.last().and_then(|message| message["content"].as_str()).unwrap_or_default();
        let pace = self.pace;
        let events = stream::iter(chunks((self.script)(turn, last))).then(move |data| async move {
            tokio::time::sleep(pace).await;
            Ok::<_, Infallible>(Event::default().data(data))
        });
        Sse::new(events).into_response()
    }
}

impl std::fmt::Debug for CompletionsServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompletionsServer").field("pace", &self.pace).finish_non_exhaustive()
    }
}

fn refusal(status: StatusCode, why: &str) -> Response {
    let error = json!({"error": {"message": why, "type": "invalid_request_error", "param": null, "code": null}});
    (status, Json(error)).into_response()
}

/// A text, with a delta for each word.
#[must_use]
pub fn say(text: &str) -> Vec<Value> {
    text.split_inclusive(' ').map(|word| json!({"content": word})).collect()
}

/// A call of a tool, its arguments in two deltas.
#[must_use]
pub fn call(index: usize, tool: &str, arguments: &str) -> Vec<Value> {
    let id = format!("call_{tool}_{index}");
    let first = json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": {"name": tool, "arguments": ""}}]});
    let (one, two) = arguments.split_at(arguments.len() / 2);
    let piece = |text| json!({"tool_calls": [{"index": index, "function": {"arguments": text}}]});
    vec![first, piece(one), piece(two)]
}

/// The events of an answer: a role, the deltas, the reason of the end, and the end.
fn chunks(deltas: Vec<Value>) -> Vec<String> {
    let calls = deltas.iter().any(|delta| !delta["tool_calls"].is_null());
    let reason = if calls { "tool_calls" } else { "stop" };
    let chunk = |delta: Value, reason: Option<&str>| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": reason});
        json!({"id": "chatcmpl-script", "object": "chat.completion.chunk", "created": 0, "model": "script", "choices": [choice]})
            .to_string()
    };
    let mut chunks = vec![chunk(json!({"role": "assistant"}), None)];
    chunks.extend(deltas.into_iter().map(|delta| chunk(delta, None)));
    chunks.push(chunk(json!({}), Some(reason)));
    chunks.push("[DONE]".to_owned());
    chunks
}
