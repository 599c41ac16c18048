//! The response of the AI SDK's transport: UI message chunks as server-sent events, `[DONE]` last.
use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use forever_chat::message::UiMessage;
use forever_chat::{ChatHandle, Entry, Follow, StoredChunk, TurnEnd, TurnHandle, TurnState};
use forever_runtime::Result;
use forever_runtime::agent::AgentHandle;
use futures_util::stream;
use serde_json::json;

use super::super::erased::Erased;
use super::super::quota::Place;
use super::history;

/// Headers that identify the protocol to a client, and tell a proxy not to buffer.
const HEADERS: [(HeaderName, HeaderValue); 2] = [
    (HeaderName::from_static("x-vercel-ai-ui-message-stream"), HeaderValue::from_static("v1")),
    (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
];

/// Interval of comments, which keep a silent connection open.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Text for the client where an error has none.
const ERROR: &str = "An error occurred.";

/// The events of one response.
pub(super) struct Events {
    ready: VecDeque<Event>,
    log: Option<Log>,
}

/// The log of the turn, after the events in `ready`.
struct Log {
    turn: String,
    follow: Follow,
    /// Whether the page has the message already, so that a `start` of the log is left out.
    has_start: bool,
    /// Whether the next chunk has to be a `start-step`.
    ///
    /// A continuation adds a step of its own: `sendAutomaticallyWhen` reads the last step, and
    /// would send the answered calls of the step before again and again.
    wants_step: bool,
}

/// The events as a response, which holds its place among the connections until it ends.
pub(super) fn response(events: Events, place: Place) -> Response {
    let stream = stream::unfold(Some((events, place)), async |state| {
        let (mut events, place) = state?;
        match events.next().await {
            Ok(Some(event)) => Some((Ok(event), Some((events, place)))),
            Ok(None) => None,
            // The connection is broken off: an end without `[DONE]` would look like the end of the
            // answer.
            Err(why) => Some((Err(why), None)),
        }
    });
    (HEADERS, Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))).into_response()
}

/// The turn and the number of the next chunk, from the id of an event.
pub(super) fn parse_id(id: &[u8]) -> Option<(&str, u64)> {
    let (turn, number) = std::str::from_utf8(id).ok()?.rsplit_once(':')?;
    Some((turn, number.parse::<u64>().ok()?.checked_add(1)?))
}

impl Events {
    /// A response without a turn.
    pub(super) fn nothing() -> Self {
        Events { ready: [done()].into(), log: None }
    }

    /// The turn of a POST, from its first chunk; a continuation adds to the page's message. `None`
    /// if the chunks of a continuation are no longer stored.
    pub(super) async fn answer(agent: &AgentHandle<Erased>, turn: &TurnHandle) -> Result<Option<Self>> {
        let status = turn.status().await?;
        if status.state().is_settled() && !status.is_continuation() {
            return Self::settled(agent, turn).await.map(Some);
        }
        let mut events = Self::log(turn, 0).await?;
        events.expect_step(status.is_continuation());
        if status.state().is_settled() && !events.has_chunk().await? {
            return Ok(None);
        }
        Ok(Some(events))
    }

    /// Whether the log has a chunk now, which becomes ready.
    async fn has_chunk(&mut self) -> Result<bool> {
        let Some(log) = &mut self.log else { return Ok(false) };
        let Some(Entry::Chunk(number, chunk)) = log.follow.try_next().await? else { return Ok(false) };
        self.ready.extend(log.events(number, &chunk));
        Ok(true)
    }

    /// The turn under way, for a page that may not have its message.
    pub(super) async fn replay(agent: &AgentHandle<Erased>, turn: &TurnHandle) -> Result<Self> {
        if !turn.status().await?.is_continuation() {
            return Self::log(turn, 0).await;
        }
        let mut events = Self::log(turn, 0).await?;
        let before = stored_message(agent, turn).await?;
        // Until a turn ends, its message is stored in its earlier form.
        if turn.status().await?.state().is_settled() {
            return Self::settled(agent, turn).await;
        }
        if let Some(before) = before {
            events.ready = self::events(&before);
            if let Some(log) = &mut events.log {
                log.has_start = true;
            }
        }
        events.expect_step(true);
        Ok(events)
    }

    /// A turn that has ended, with its whole message.
    async fn settled(agent: &AgentHandle<Erased>, turn: &TurnHandle) -> Result<Self> {
        let message = stored_message(agent, turn).await?;
        let (mut ready, status) = (message.as_ref().map(events).unwrap_or_default(), turn.status().await?);
        if message.as_ref().is_some_and(history::has_answered_calls) {
            // `sendAutomaticallyWhen` would send the answers again.
            ready.push_back(step());
        }
        ready.extend(status.end().map_or_else(|| vec![done()], |of| end(&of)));
        Ok(Events { ready, log: None })
    }

    /// The log of a turn from the chunk `next` on; `None` if the chunk before it is no longer
    /// stored, so that others may be missing as well.
    pub(super) async fn rest(turn: &TurnHandle, next: u64) -> Result<Option<Self>> {
        match turn.follow(next.saturating_sub(1)).await?.try_next().await? {
            Some(Entry::Chunk(number, _)) if number + 1 == next => {}
            Some(_) => return Ok(None),
            // The turn is under way.
            None => {}
        }
        Self::log(turn, next).await.map(Some)
    }

    async fn log(turn: &TurnHandle, next: u64) -> Result<Self> {
        let (id, follow) = (turn.id().to_owned(), turn.follow(next).await?);
        Ok(Events { ready: VecDeque::new(), log: Some(Log { turn: id, follow, has_start: false, wants_step: false }) })
    }

    fn expect_step(&mut self, wants: bool) {
        if let Some(log) = &mut self.log {
            log.wants_step = wants;
        }
    }

    async fn next(&mut self) -> std::result::Result<Option<Event>, io::Error> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            let Some(log) = &mut self.log else { return Ok(None) };
            match log.follow.next().await.map_err(io::Error::other)? {
                Some(Entry::Chunk(number, chunk)) => self.ready.extend(log.events(number, &chunk)),
                Some(Entry::End(of)) => {
                    self.ready.extend(end(&of));
                    self.log = None;
                }
                Some(_) => {}
                None => return Err(io::Error::other("the log of a turn has no end")),
            }
        }
    }
}

impl Log {
    fn events(&mut self, number: u64, chunk: &StoredChunk) -> Vec<Event> {
        let kind = chunk.read().map(|chunk| chunk.kind().to_owned()).unwrap_or_default();
        let mut events = Vec::new();
        if kind == "start" {
            if self.has_start {
                return events;
            }
        } else if std::mem::take(&mut self.wants_step) && kind != "start-step" {
            events.push(step());
        }
        let mut event = Event::default().data(chunk.json());
        // A turn id chosen by a client may contain characters that an event cannot.
        if !self.turn.contains(char::is_control) {
            event = event.id(format!("{}:{number}", self.turn));
        }
        events.push(event);
        events
    }
}

/// The stored message of a turn, if there is one.
async fn stored_message(agent: &AgentHandle<Erased>, turn: &TurnHandle) -> Result<Option<UiMessage>> {
    Ok(agent.messages().await?.into_iter().find(|message| message.id == turn.message_id()))
}

/// The events that build a message.
fn events(message: &UiMessage) -> VecDeque<Event> {
    history::chunks(message).iter().map(|chunk| Event::default().data(chunk.to_text())).collect()
}

/// The events after the last chunk.
fn end(end: &TurnEnd) -> Vec<Event> {
    let last = match end.state() {
        TurnState::Error | TurnState::Interrupted => Some(json!({ "type": "error", "errorText": end.client_text().unwrap_or(ERROR) })),
        TurnState::Aborted | TurnState::Skipped => Some(json!({ "type": "abort" })),
        _ => None,
    };
    last.map(|chunk| Event::default().data(chunk.to_string())).into_iter().chain([done()]).collect()
}

fn step() -> Event {
    Event::default().data(r#"{"type":"start-step"}"#)
}

fn done() -> Event {
    Event::default().data("[DONE]")
}
