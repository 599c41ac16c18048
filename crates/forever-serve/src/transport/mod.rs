//! The AI SDK's HTTP transport: `useChat` with
//! `new DefaultChatTransport({ api: "/agents/{class}/{name}" })`.
//!
//! A POST carries a question or the answers to tool calls (`request`). Its response is the log of
//! the turn as server-sent events (`sse`), and so is the response to `GET {api}/{chat}/stream`,
//! with which a page resumes. A response is a view of the log: when its client disconnects, the
//! turn continues.
mod history;
mod request;
mod sse;

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use forever_chat::{ChatHandle, TurnHandle, TurnState};
use forever_runtime::agent::AgentHandle;
use forever_runtime::{Error, Result as StoreResult};
use request::Post;

use super::http::{At, Failed, Served};
use crate::erased::Erased;

/// Text for a client that resumes a turn whose chunks were deleted.
const NO_CHUNKS: &str = "the chunks of the turn are no longer stored: its message is";

/// Reason of a turn that was cancelled over HTTP.
const CANCELLED: &str = "it was cancelled";

/// `POST /agents/{class}/{name}`: a question, or the answers to tool calls.
pub(super) async fn post(State(served): State<Arc<Served>>, at: At, request: Request) -> Result<Response, Failed> {
    if served.forever.is_closing() {
        return Err(Error::closed().into());
    }
    // A body that arrives slowly occupies a place as well.
    let place = served.quotas.enter(&at)?;
    let post = read(&served, request).await?;
    Ok(match request::carry_out(&served, &at, post).await? {
        Some(turn) => {
            let events = sse::Events::answer(&at.agent(&served.forever), &turn).await?;
            sse::response(events.ok_or_else(|| request::conflict(request::NOTHING_OPEN))?, place)
        }
        None => sse::response(sse::Events::nothing(), place),
    })
}

/// `GET /agents/{class}/{name}/{chat}/stream`: the turn under way from its first chunk, or the rest
/// of the turn that `Last-Event-ID` names; 204 if no turn is under way.
pub(super) async fn resume(State(served): State<Arc<Served>>, at: At, headers: HeaderMap) -> Result<Response, Failed> {
    let place = served.quotas.enter(&at)?;
    let agent = at.agent(&served.forever);
    if let Some(last) = headers.get("last-event-id") {
        let Some((turn, next)) = sse::parse_id(last.as_bytes()) else {
            return Err(Failed(StatusCode::BAD_REQUEST, "`Last-Event-ID` is not the id of an event of this stream".to_owned()));
        };
        let turn = agent.turn(turn).await?.ok_or_else(no_turn)?;
        let rest = sse::Events::rest(&turn, next).await?;
        return Ok(sse::response(rest.ok_or_else(|| Failed(StatusCode::GONE, NO_CHUNKS.to_owned()))?, place));
    }
    Ok(match under_way(&agent).await? {
        Some(turn) => sse::response(sse::Events::replay(&agent, &turn).await?, place),
        None => StatusCode::NO_CONTENT.into_response(),
    })
}

/// `DELETE /agents/{class}/{name}/{chat}/stream`: cancels the turn under way.
pub(super) async fn cancel(State(served): State<Arc<Served>>, at: At) -> Result<StatusCode, Failed> {
    served.quotas.ask(&at)?;
    if let Some(turn) = under_way(&at.agent(&served.forever)).await? {
        turn.cancel(CANCELLED).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

/// `DELETE /agents/{class}/{name}/stream/{turn}`: cancels one turn.
pub(super) async fn cancel_turn(
    State(served): State<Arc<Served>>,
    at: At,
    Path(path): Path<HashMap<String, String>>,
) -> Result<StatusCode, Failed> {
    served.quotas.ask(&at)?;
    let turn = path.get("turn").map(String::as_str).unwrap_or_default();
    if at.agent(&served.forever).cancel(turn, CANCELLED).await? { Ok(StatusCode::NO_CONTENT) } else { Err(no_turn()) }
}

fn no_turn() -> Failed {
    Failed(StatusCode::NOT_FOUND, "there is no such turn".to_owned())
}

/// The running turn, or the first queued one.
async fn under_way(agent: &AgentHandle<Erased>) -> StoreResult<Option<TurnHandle>> {
    let open = agent.turns(&[TurnState::Queued, TurnState::Running]).await?;
    match open.iter().find(|turn| turn.state() == TurnState::Running).or(open.first()) {
        Some(turn) => agent.turn(turn.id()).await,
        None => Ok(None),
    }
}

/// The body of a POST, at most `max_frame` bytes, within `send_timeout`.
async fn read(served: &Served, request: Request) -> Result<Post, Failed> {
    let refused = |status, why: &str| Failed(status, why.to_owned());
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    // Pages of other origins cannot send this type without a preflight request.
    if !kind.eq_ignore_ascii_case("application/json") {
        return Err(refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the content type is not `application/json`"));
    }
    let body = match served.in_time(Bytes::from_request(request, &())).await {
        Some(Ok(body)) => body,
        Some(Err(BytesRejection::FailedToBufferBody(why))) if why.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            return Err(refused(StatusCode::PAYLOAD_TOO_LARGE, "the body is too long"));
        }
        Some(Err(_)) => return Err(refused(StatusCode::BAD_REQUEST, "the body cannot be read")),
        None => return Err(refused(StatusCode::REQUEST_TIMEOUT, "the body took too long")),
    };
    Post::parse(&body)
}
