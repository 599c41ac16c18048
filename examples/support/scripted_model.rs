//! A model server that follows a script. It speaks the streaming chat-completions protocol over a
//! real socket, on loopback.
use std::convert::Infallible;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// Starts the server, and returns its base URL. It runs as long as the tokio runtime.
pub(crate) async fn start(show_requests: bool) -> std::io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/v1", listener.local_addr()?);
    let answer = move |headers: HeaderMap, Json(request): Json<Value>| async move { answer(&headers, &request, show_requests) };
    let app = Router::new().route("/v1/chat/completions", post(answer));
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(url)
}

fn answer(headers: &HeaderMap, request: &Value, show: bool) -> Response {
    let known = headers.get(header::AUTHORIZATION).is_some_and(|value| value.as_bytes().starts_with(b"Bearer "));
    if !known {
        return refusal(StatusCode::UNAUTHORIZED, "no API key");
    }
    let (Some(messages), Some(true)) = (request["messages"].as_array(), request["stream"].as_bool()) else {
        return refusal(StatusCode::BAD_REQUEST, "expected `messages` and `stream`");
    };
    let turn = messages.iter().filter(|message| message["role"] == "assistant").count() + 1;
    if show {
        println!("turn {turn} of a model, after {} messages", messages.len());
    }
    let last = messages.last().and_then(|message| message["content"].as_str()).unwrap_or_default();
    let deltas = script(turn, last);
    let events = stream::iter(chunks(deltas)).then(|data| async {
        tokio::time::sleep(Duration::from_millis(if cfg!(test) { 0 } else { 15 })).await;
        Ok::<_, Infallible>(Event::default().data(data))
    });
    Sse::new(events).into_response()
}

fn refusal(status: StatusCode, why: &str) -> Response {
    let error = json!({"error": {"message": why, "type": "invalid_request_error", "param": null, "code": null}});
    (status, Json(error)).into_response()
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

fn say(text: &str) -> Vec<Value> {
    text.split_inclusive(' ').map(|word| json!({"content": word})).collect()
}

fn call(index: usize, tool: &str, arguments: &str) -> Vec<Value> {
    let id = format!("call_{tool}_{index}");
    let first = json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": {"name": tool, "arguments": ""}}]});
    let (one, two) = arguments.split_at(arguments.len() / 2);
    let piece = |text| json!({"tool_calls": [{"index": index, "function": {"arguments": text}}]});
    vec![first, piece(one), piece(two)]
}

/// The events of an answer: a role, the pieces, the reason of the end, and the end.
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
