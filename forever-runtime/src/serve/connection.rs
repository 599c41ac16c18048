//! One connection: what its client sends is carried out, and what happens in the chat is shown to it.
//!
//! A log is shown on a connection in one of two ways. A turn that is accepted while the client is there is shown as it comes. One that was there
//! before is offered (`resuming`, or `pending` before it begins), and shown from its first chunk, marked as a replay, when the client says
//! `resume_ack`. Both read the same log, so there is nothing to be kept in step.
use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket};
use futures_util::future::select_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::erased::Erased;
use super::frame::{Body, FromClient, Response, ToClient};
use super::http::{At, Served};
use super::watching::{Shown, Watched, Watching};
use crate::agent::{AgentHandle, Connection, Pushed};
use crate::chat::{ChatEvent, ChatEvents, Chats, Entry, ToolAnswer, TurnEnd, TurnState, TurnStatus};
use crate::error::{Error, ErrorKind, Result, chain};

/// Codes with which a connection is closed (RFC 6455, section 7.4.1, and its registry). After 1008 clients do not come again.
mod close {
    pub(super) const POLICY: u16 = 1008;
    pub(super) const RESTART: u16 = 1012;
    pub(super) const TRY_AGAIN: u16 = 1013;
}

/// Why a connection ends.
enum Over {
    /// The client is gone.
    Gone,
    /// It is closed, with a code and a reason.
    Close(u16, &'static str),
    Failed(Error),
}

impl From<Error> for Over {
    fn from(error: Error) -> Self {
        if error.is_closed() { Over::Close(close::RESTART, "the server restarts") } else { Over::Failed(error) }
    }
}

type Called = Pin<Box<dyn Future<Output = (String, std::result::Result<Value, String>)> + Send>>;

struct Session<'a> {
    socket: WebSocket,
    served: &'a Served,
    at: &'a At,
    agent: AgentHandle<Erased>,
    watching: Watching,
    /// Turns that are offered, and not shown until the client says so.
    offered: HashSet<String>,
    /// Turns that this client has asked for.
    own: HashSet<String>,
    calls: FuturesUnordered<Called>,
    /// The state that this client has set, which it is not sent.
    own_state: Option<String>,
    /// How often it has cleared the chat, and replaced its messages, which it is not told.
    own_clears: u32,
    own_replacements: u32,
    rate: Rate,
    /// When something was heard of the client.
    heard: Instant,
}

/// Something that a connection has to do with.
enum Next {
    Frame(Option<std::result::Result<Message, axum::Error>>),
    Event(Result<Option<ChatEvent>>),
    Pushed(Option<Pushed>),
    Log(Box<(Watched, Result<Option<Shown>>)>),
    Called(String, std::result::Result<Value, String>),
    Ping,
    Closing,
}

/// Serves a connection to its end.
pub(super) async fn run(socket: WebSocket, served: Arc<Served>, at: &At) {
    let mut session = Session {
        socket,
        served: &served,
        at,
        agent: at.agent(&served.core()),
        watching: Watching::default(),
        offered: HashSet::new(),
        own: HashSet::new(),
        calls: FuturesUnordered::new(),
        own_state: None,
        own_clears: 0,
        own_replacements: 0,
        rate: Rate::new(served.limits.rate),
        heard: Instant::now(),
    };
    let over = session.serve().await;
    let (code, reason) = match over {
        Over::Gone => return,
        Over::Close(code, reason) => (code, reason),
        Over::Failed(error) => {
            warn!(agent.class = at.class, agent.name = at.name, error = %chain(&error), "a connection failed");
            (close::TRY_AGAIN, "try again")
        }
    };
    debug!(agent.class = at.class, agent.name = at.name, code, reason, "a connection is closed");
    let frame = CloseFrame { code, reason: Utf8Bytes::from_static(reason) };
    let _ = tokio::time::timeout(served.limits.send, session.socket.send(Message::Close(Some(frame)))).await;
}

impl Session<'_> {
    async fn serve(&mut self) -> Over {
        match self.try_serve().await {
            Ok(never) => match never {},
            Err(over) => over,
        }
    }

    async fn try_serve(&mut self) -> std::result::Result<std::convert::Infallible, Over> {
        // First listened to, then looked at: what comes in between is seen twice, and not missed.
        let mut events = self.agent.chat_events()?;
        self.offer_what_is_under_way().await?;
        let mut connection = self.agent.connect().await?;
        let first = connection.try_recv();
        let state_follows = matches!(first, Some(Pushed::State(_)));
        let (at, name) = (self.at, &self.at.name);
        self.send(&ToClient::Identity { name, agent: &at.segment, state_follows }).await?;
        if let Some(first) = first {
            self.pushed(first).await?;
        }
        if self.offered.is_empty() {
            self.catch_up().await?;
        }
        let mut ping = tokio::time::interval(self.served.limits.ping);
        ping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            match self.next(&mut events, &mut connection, &mut ping).await {
                Next::Frame(frame) => self.frame(frame).await?,
                Next::Event(event) => match event? {
                    Some(event) => self.event(event).await?,
                    None => return Err(Over::Close(close::RESTART, "the server restarts")),
                },
                Next::Pushed(Some(pushed)) => self.pushed(pushed).await?,
                Next::Pushed(None) | Next::Closing => return Err(Over::Close(close::RESTART, "the server restarts")),
                Next::Log(log) => self.log(*log).await?,
                Next::Called(id, result) => self.called(&id, result).await?,
                Next::Ping => self.ping().await?,
            }
        }
    }

    async fn next(&mut self, events: &mut ChatEvents, connection: &mut Connection, ping: &mut tokio::time::Interval) -> Next {
        let core = self.served.core();
        let Session { socket, watching, calls, .. } = self;
        let called = async {
            match calls.next().await {
                Some((id, result)) => Next::Called(id, result),
                None => std::future::pending().await,
            }
        };
        let parts: [Pin<Box<dyn Future<Output = Next> + Send + '_>>; 7] = [
            // In this order, if several are ready: what has happened is told before what is asked next is answered.
            Box::pin(async { Next::Event(events.recv().await) }),
            Box::pin(async { Next::Pushed(connection.recv().await) }),
            Box::pin(called),
            Box::pin(async { Next::Frame(socket.recv().await) }),
            Box::pin(async { Next::Log(Box::new(watching.next().await)) }),
            Box::pin(async {
                ping.tick().await;
                Next::Ping
            }),
            Box::pin(async {
                core.closing().await;
                Next::Closing
            }),
        ];
        select_all(parts).await.0
    }

    async fn send(&mut self, frame: &ToClient<'_>) -> std::result::Result<(), Over> {
        let text = serde_json::to_string(frame)
            .map_err(|why| Over::Failed(Error::new(ErrorKind::Value, "a frame cannot be written").because(why)))?;
        self.put(Message::Text(text.into())).await
    }

    async fn put(&mut self, message: Message) -> std::result::Result<(), Over> {
        match tokio::time::timeout(self.served.limits.send, self.socket.send(message)).await {
            Ok(Ok(())) => Ok(()),
            // What it has not taken it asks for when it comes again.
            Ok(Err(_)) | Err(_) => Err(Over::Gone),
        }
    }

    async fn ping(&mut self) -> std::result::Result<(), Over> {
        if self.heard.elapsed() > self.served.limits.ping * 3 {
            return Err(Over::Gone);
        }
        self.put(Message::Ping(axum::body::Bytes::new())).await
    }

    /// Turns that were there before the client was.
    async fn offer_what_is_under_way(&mut self) -> std::result::Result<(), Over> {
        let recovering = self.chats()?.recovering(self.agent.id());
        for turn in self.agent.turns(&[TurnState::Queued, TurnState::Running]).await? {
            self.offer(turn.id()).await?;
            if turn.state() == TurnState::Running {
                self.resuming(&turn, None).await?;
            } else {
                self.send(&ToClient::Pending { id: turn.id(), probe_id: None }).await?;
            }
        }
        match recovering {
            Some(id) => self.send(&ToClient::Recovering { recovering: true, id: &id }).await,
            None => Ok(()),
        }
    }

    fn chats(&self) -> Result<Arc<Chats>> {
        self.served.core().resources.get::<Arc<Chats>>().map(|chats| Arc::clone(&chats)).ok_or_else(Error::closed)
    }

    /// What a client may have missed that was there before, and comes again when it is over.
    async fn catch_up(&mut self) -> std::result::Result<(), Over> {
        let messages = self.agent.messages().await?;
        if messages.is_empty() { Ok(()) } else { self.send(&ToClient::Messages { messages: &messages, connect: true }).await }
    }

    /// From now on nothing of a turn is shown but its end, until the client asks for it.
    async fn offer(&mut self, turn: &str) -> std::result::Result<(), Over> {
        if let Some(turn) = self.agent.turn(turn).await? {
            self.watching.offer(&turn).await?;
            self.offered.insert(turn.id().to_owned());
        }
        Ok(())
    }

    async fn frame(&mut self, frame: Option<std::result::Result<Message, axum::Error>>) -> std::result::Result<(), Over> {
        let Some(Ok(message)) = frame else { return Err(Over::Gone) };
        self.heard = Instant::now();
        if !self.rate.takes_one() {
            return Err(Over::Close(close::POLICY, "too many frames"));
        }
        match message {
            Message::Text(text) => match serde_json::from_str::<FromClient>(&text) {
                Ok(frame) => self.asked(frame).await,
                Err(why) => {
                    debug!(%why, "a frame was not understood");
                    Ok(())
                }
            },
            Message::Close(_) => Err(Over::Gone),
            Message::Binary(_) | Message::Ping(_) | Message::Pong(_) => Ok(()),
        }
    }

    async fn asked(&mut self, frame: FromClient) -> std::result::Result<(), Over> {
        match frame {
            FromClient::Ask { id, init } => match init.body.as_deref().map(serde_json::from_str::<Body>) {
                Some(Ok(body)) => self.ask(&id, body).await,
                _ => Ok(()),
            },
            FromClient::Cancel { id } => {
                self.agent.cancel(&id, "it was cancelled").await?;
                Ok(())
            }
            FromClient::Clear => {
                self.own_clears += 1;
                Ok(self.agent.clear().await?)
            }
            FromClient::Messages { messages } => match self.agent.set_messages(messages).await {
                Ok(()) => {
                    self.own_replacements += 1;
                    Ok(())
                }
                Err(error) if matches!(error.kind(), ErrorKind::Busy | ErrorKind::Value) => {
                    debug!(error = %chain(&error), "messages were not replaced");
                    Ok(())
                }
                Err(error) => Err(error.into()),
            },
            FromClient::ResumeRequest { probe_id } => self.resume(probe_id.as_deref()).await,
            FromClient::ResumeAck { id, from } => self.acknowledged(&id, from.unwrap_or(0)).await,
            FromClient::ToolResult { tool_call_id, output, state, error_text, auto_continue } => {
                let answer = if state.as_deref() == Some("output-error") {
                    ToolAnswer::Error(error_text.unwrap_or_else(|| "the tool has failed".to_owned()))
                } else {
                    ToolAnswer::Output(output)
                };
                self.answer(&tool_call_id, answer, auto_continue).await
            }
            FromClient::ToolApproval { tool_call_id, approved, auto_continue } => {
                let answer = if approved { ToolAnswer::Approved } else { ToolAnswer::Refused };
                self.answer(&tool_call_id, answer, auto_continue).await
            }
            FromClient::State { state } => self.set_state(&state).await,
            FromClient::Call { id, method, args } => self.call(id, &method, args).await,
            FromClient::Unknown => Ok(()),
        }
    }

    /// A question: a turn of the client's own.
    async fn ask(&mut self, id: &str, body: Body) -> std::result::Result<(), Over> {
        let Body { messages, trigger, client_tools, other } = body;
        let last = messages.last().map(|message| message.id.clone());
        // Answers are the server's; what a client says of them does not count.
        let mut said = Vec::new();
        let there: HashSet<String> = self.agent.messages().await?.into_iter().map(|message| message.id).collect();
        for message in messages {
            if message.role == crate::chat::message::Role::User || !there.contains(&message.id) {
                said.push(message);
            }
        }
        let mut new = self.agent.save_messages(said).id(id).body(&other).client_tools(client_tools);
        if let (Some("regenerate-message"), Some(last)) = (trigger.as_deref(), last) {
            new = new.after(last);
        }
        self.own.insert(id.to_owned());
        match new.await {
            Ok(turn) if turn.accepted() => {
                self.watching.start(&turn, 0, false, true).await?;
                Ok(())
            }
            // Sent again: it may be under way since.
            Ok(turn) => {
                self.offer(turn.id()).await?;
                self.send(&ToClient::Resuming { id, probe_id: None }).await
            }
            Err(error) if error.is_closed() => Err(error.into()),
            Err(error) => {
                debug!(error = %chain(&error), "a question was refused");
                let body = if error.kind() == ErrorKind::Busy { "Another answer is being given." } else { "The question was refused." };
                let refused = Response { id, body: body.into(), done: true, error: true, outcome: Some("error"), ..Response::default() };
                self.send(&ToClient::Response(refused)).await
            }
        }
    }

    async fn answer(&mut self, call: &str, answer: ToolAnswer, auto_continue: bool) -> std::result::Result<(), Over> {
        match self.agent.answer_tool(call, answer, auto_continue).await {
            Ok(answered) => {
                match answered.continued {
                    // The client asks for it by itself.
                    Some(turn) => self.offer(turn.id()).await,
                    None => Ok(()),
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether there is something to be resumed.
    async fn resume(&mut self, probe_id: Option<&str>) -> std::result::Result<(), Over> {
        let open = self.agent.turns(&[TurnState::Queued, TurnState::Running]).await?;
        if let Some(turn) = open.iter().find(|turn| turn.state() == TurnState::Running).or(open.first()) {
            let id = turn.id();
            if self.own.contains(id) && !self.offered.contains(id) {
                // It is shown on this connection as it comes.
                return self.send(&ToClient::ResumeNone { reason: Some("idle"), probe_id }).await;
            }
            self.offer(id).await?;
            return if turn.state() == TurnState::Running {
                self.resuming(turn, probe_id).await
            } else {
                self.send(&ToClient::Pending { id, probe_id }).await
            };
        }
        // An error stands until something else is asked.
        if let Some(last) = self.agent.turns(&[]).await?.pop().filter(|last| last.state() == TurnState::Error) {
            return self.resuming(&last, probe_id).await;
        }
        self.send(&ToClient::ResumeNone { reason: Some("idle"), probe_id }).await
    }

    /// A turn that is under way can be had.
    ///
    /// Whoever asks is told first, of one that adds to an answer, that there is nothing for them: what asks is the stream of a new message
    /// (`ai` from 6.0.250 on), in which there is nothing to add to. So it is their page that takes it, as that of every other client does.
    async fn resuming(&mut self, turn: &TurnStatus, probe_id: Option<&str>) -> std::result::Result<(), Over> {
        let id = turn.id();
        if turn.is_continuation() {
            self.send(&ToClient::ResumeNone { reason: Some("continuation-owned"), probe_id }).await?;
            return self.send(&ToClient::Resuming { id, probe_id: None }).await;
        }
        self.send(&ToClient::Resuming { id, probe_id }).await
    }

    /// The client wants the log of a turn.
    async fn acknowledged(&mut self, id: &str, from: u64) -> std::result::Result<(), Over> {
        let turn = self.agent.turn(id).await?;
        self.offered.remove(id);
        let Some(turn) = turn else {
            return self.send(&ToClient::Response(Response { id, done: true, replay: true, ..Response::default() })).await;
        };
        let status = turn.status().await?;
        match status.state() {
            TurnState::Queued | TurnState::Running | TurnState::Error => {
                Ok(self.watching.start(&turn, from, true, self.own.contains(id)).await?)
            }
            // Its message is in the conversation.
            state => {
                let outcome = (state != TurnState::Completed).then(|| state.as_str());
                let message_ids = origins(&status);
                let ended = Response { id, done: true, replay: true, message_ids, outcome, ..Response::default() };
                self.send(&ToClient::Response(ended)).await
            }
        }
    }

    async fn event(&mut self, event: ChatEvent) -> std::result::Result<(), Over> {
        match event {
            ChatEvent::Accepted(turn) => {
                if self.own.contains(turn.id()) {
                    return Ok(());
                }
                // One that goes on with an answer brings nothing new; what it goes on with was told by itself.
                if !turn.is_continuation() {
                    self.transcript().await?;
                }
                self.show(&turn).await
            }
            ChatEvent::Began(turn) => {
                if self.offered.contains(turn.id()) {
                    self.resuming(&turn, None).await
                } else {
                    self.show(&turn).await
                }
            }
            ChatEvent::Recovering { turn, recovering } => self.send(&ToClient::Recovering { recovering, id: &turn }).await,
            ChatEvent::Updated(message) => self.send(&ToClient::Updated { message: &message }).await,
            ChatEvent::Replaced if self.own_replacements > 0 => {
                self.own_replacements -= 1;
                Ok(())
            }
            ChatEvent::Replaced => self.transcript().await,
            ChatEvent::Cleared if self.own_clears > 0 => {
                self.own_clears -= 1;
                Ok(())
            }
            ChatEvent::Cleared => self.send(&ToClient::Clear).await,
            ChatEvent::Missed(_) => Err(Over::Close(close::TRY_AGAIN, "too slow")),
        }
    }

    /// Shows a turn as it comes, unless it is shown or offered.
    async fn show(&mut self, turn: &TurnStatus) -> std::result::Result<(), Over> {
        if self.watching.watches(turn.id()) || self.offered.contains(turn.id()) {
            return Ok(());
        }
        if let Some(turn) = self.agent.turn(turn.id()).await? {
            self.watching.start(&turn, 0, false, false).await?;
        }
        Ok(())
    }

    async fn transcript(&mut self) -> std::result::Result<(), Over> {
        let messages = self.agent.messages().await?;
        self.send(&ToClient::Messages { messages: &messages, connect: false }).await
    }

    async fn log(&mut self, (mut watched, shown): (Watched, Result<Option<Shown>>)) -> std::result::Result<(), Over> {
        let shown = match shown {
            Ok(Some(shown)) => shown,
            Ok(None) => return Ok(()),
            // Deleted since, with what it had to say.
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let status = &watched.status;
        let (id, continuation, replay) = (status.id(), status.is_continuation(), watched.replays);
        match shown {
            Shown::Entry(Entry::Chunk(number, chunk)) => {
                let body = chunk.json().into();
                let piece = Response { id, body, continuation, replay, seq: Some(number), ..Response::default() };
                self.send(&ToClient::Response(piece)).await?;
                watched.begun = true;
                self.watching.go_on(watched);
            }
            Shown::CaughtUp => {
                let caught_up = Response { id, continuation, replay: true, replay_complete: true, ..Response::default() };
                self.send(&ToClient::Response(caught_up)).await?;
                watched.replays = false;
                self.watching.go_on(watched);
            }
            Shown::Entry(Entry::End(end)) => {
                self.watching.stop(id);
                self.ended(&watched, &end).await?;
            }
        }
        Ok(())
    }

    /// The end of a turn; its message comes first.
    async fn ended(&mut self, watched: &Watched, end: &TurnEnd) -> std::result::Result<(), Over> {
        let status = &watched.status;
        let (id, continuation) = (status.id(), status.is_continuation());
        let message_ids = origins(status);
        let own = watched.own;
        self.own.remove(id);
        let offered = self.offered.remove(id);
        if !own && !watched.replays && end.state() != TurnState::Skipped {
            self.transcript().await?;
        }
        if offered && continuation {
            // The client is about to ask for it, and would otherwise take the end for that of another, empty message.
            let first = Response { id, body: r#"{"type":"start"}"#.into(), continuation, replay: true, ..Response::default() };
            self.send(&ToClient::Response(first)).await?;
        }
        let ended = Response { id, done: true, message_ids, continuation, ..Response::default() };
        match end.state() {
            TurnState::Error | TurnState::Interrupted => {
                let text = end.reason().unwrap_or("An error occurred.");
                if watched.replays {
                    return self.send(&ToClient::Response(Response { body: text.into(), error: true, ..ended })).await;
                }
                let error = Response { id, body: text.into(), error: true, message_ids, continuation, ..Response::default() };
                self.send(&ToClient::Response(error)).await?;
                self.send(&ToClient::Response(Response { outcome: Some("error"), ..ended })).await?;
                // Clients keep the message that they have made of the chunks, which does not say what became of it.
                if own { Ok(()) } else { self.transcript().await }
            }
            TurnState::Aborted | TurnState::Skipped => {
                self.send(&ToClient::Response(Response { outcome: Some(end.state().as_str()), ..ended })).await
            }
            _ => {
                // Nothing was said.
                let body = end.reason().map_or("", |_| "No response was generated by the agent.");
                self.send(&ToClient::Response(Response { body: body.into(), replay: watched.replays, ..ended })).await
            }
        }
    }

    async fn pushed(&mut self, pushed: Pushed) -> std::result::Result<(), Over> {
        match pushed {
            Pushed::State(state) => {
                if self.own_state.take_if(|own| own == state.json()).is_some() {
                    return Ok(());
                }
                let raw: &RawValue = serde_json::from_str(state.json())
                    .map_err(|why| Over::Failed(Error::new(ErrorKind::Value, "a state is no JSON").because(why)))?;
                self.send(&ToClient::State { state: raw }).await
            }
            Pushed::Broadcast(message) => self.put(Message::Text(message.json().into())).await,
            Pushed::Missed(_) => Err(Over::Close(close::TRY_AGAIN, "too slow")),
        }
    }

    async fn set_state(&mut self, state: &Value) -> std::result::Result<(), Over> {
        let chats = self.chats()?;
        let text = match chats.classes.get(self.at.class).ok_or_else(Error::closed)?.state(&state.to_string()) {
            Ok(text) => text,
            Err(why) => {
                debug!(error = %chain(&why), "a state was refused");
                return self.send(&ToClient::StateError { error: "the state was refused" }).await;
            }
        };
        self.own_state = Some(text.clone());
        self.agent.set_state_text(text).await?;
        Ok(())
    }

    async fn call(&mut self, id: String, method: &str, args: Vec<Value>) -> std::result::Result<(), Over> {
        let Some(call) = self.served.calls.get(&(self.at.class, method.to_owned())) else {
            let error = format!("Method {method} does not exist");
            let refused = ToClient::Called { id: &id, success: false, result: None, error: Some(&error), done: None };
            return self.send(&refused).await;
        };
        let called = call(&self.served.forever, &self.at.name, args);
        let name = (self.at.class, method.to_owned());
        self.calls.push(Box::pin(async move {
            let result = called.await.map_err(|why| {
                warn!(agent.class = name.0, call = name.1, error = %chain(&*why), "a call of a client failed");
                "the call failed".to_owned()
            });
            (id, result)
        }));
        Ok(())
    }

    async fn called(&mut self, id: &str, result: std::result::Result<Value, String>) -> std::result::Result<(), Over> {
        let (success, error) = (result.is_ok(), result.as_ref().err().map(String::as_str));
        self.send(&ToClient::Called { id, success, result: result.as_ref().ok(), error, done: success.then_some(true) }).await
    }
}

/// The messages that a turn answers; one that adds to an answer answers nobody anew.
fn origins(status: &TurnStatus) -> &[String] {
    if status.is_continuation() { &[] } else { status.origins() }
}

/// How many frames a client may still send.
struct Rate {
    each_second: f64,
    at_once: f64,
    left: f64,
    since: Instant,
}

impl Rate {
    fn new((each_second, at_once): (u32, u32)) -> Self {
        let (each_second, at_once) = (f64::from(each_second), f64::from(at_once.max(1)));
        Rate { each_second, at_once, left: at_once, since: Instant::now() }
    }

    fn takes_one(&mut self) -> bool {
        let now = Instant::now();
        let passed = now.duration_since(self.since).as_secs_f64();
        self.since = now;
        self.left = (self.left + passed * self.each_second).min(self.at_once);
        if self.left < 1.0 {
            return false;
        }
        self.left -= 1.0;
        true
    }
}
