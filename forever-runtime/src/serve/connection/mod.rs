//! One connection: what its client sends is carried out, and what happens in the chat is shown to
//! it.
//!
//! A log is shown on a connection in one of two ways. A turn that is accepted while the client is
//! there is shown as it comes. One that was there before is offered (`resuming`, or `pending`
//! before it begins), and shown from its first chunk, marked as a replay, when the client says
//! `resume_ack`. Both read the same log, so there is nothing to be kept in step.
mod asked;
mod shown;

use std::collections::HashSet;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket};
use futures_util::SinkExt;
use futures_util::stream::{self, BoxStream, FuturesUnordered, SelectAll, StreamExt};
use serde_json::Value;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tracing::{debug, warn};

use super::erased::Erased;
use super::frame::{FromClient, ToClient};
use super::http::{At, Served};
use super::rate::Rate;
use super::watching::{Shown, Watched, Watching};
use crate::agent::{AgentHandle, Connection, Pushed};
use crate::chat::{ChatEvent, ChatEvents, Chats, ToolAnswered, TurnStatus};
use crate::error::{Error, ErrorKind, Result, chain};
use crate::runtime::state::Runtime;

/// Codes with which a connection is closed (RFC 6455, section 7.4.1, and its registry). After 1008
/// clients do not come again.
mod close {
    pub(super) const POLICY: u16 = 1008;
    pub(super) const TOO_LONG: u16 = 1009;
    pub(super) const RESTART: u16 = 1012;
    pub(super) const TRY_AGAIN: u16 = 1013;
}

/// Why a connection ends.
enum Over {
    /// The client is gone.
    Gone,
    /// The client says that it goes, which is answered.
    Left,
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

/// Answer of the client to a tool call.
struct Answer {
    /// The type of its frame.
    of: &'static str,
    call: String,
    result: Result<ToolAnswered>,
}

type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// A probe whose answer waits, with the id that the client gave it.
struct HeldProbe(Option<String>);

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
    /// Turns under way that this client has cancelled. It shows nothing more of them.
    cancelled: HashSet<String>,
    /// Whether a question of this client may be on its way that it does not show: it was sent the
    /// conversation while it could ask.
    may_hide_question: bool,
    calls: FuturesUnordered<Called>,
    /// Answers to tool calls that cannot be stored before something else has happened.
    answers: FuturesUnordered<Answering>,
    /// A probe that was answered with `pending`, and its turn. It is answered once more when that
    /// turn ends without having begun.
    pending_probe: Option<(String, Option<String>)>,
    /// A probe that is answered when no answer to a tool call waits any more, or when a turn can be
    /// resumed.
    held_probe: Option<HeldProbe>,
    /// Whether the client gives its probes ids, as the packages do that find an answer by its id.
    probes: bool,
    /// The first message that the client was sent of a conversation that is longer.
    shown_from: Option<String>,
    /// The state that this client has set, which it is not sent.
    own_state: Option<String>,
    /// How often it has cleared the chat, and replaced its messages, which it is not told.
    own_clears: u32,
    own_replacements: u32,
    rate: Rate,
    /// When something was heard of the client.
    heard: Instant,
    /// How many frames may not have left yet.
    waiting: u32,
}

/// How many frames may wait until nothing else is there to be sent.
const WAITING: u32 = 64;

/// Something that a connection has to do with.
enum Next {
    Frame(Option<std::result::Result<Message, axum::Error>>),
    Event(Box<Result<Option<ChatEvent>>>),
    Pushed(Option<Pushed>),
    Log(Arc<Watched>, Vec<Shown>),
    Called(String, std::result::Result<Value, String>),
    Answered(Answer),
    Ping,
    Closing,
}

/// What happens at the agent, and in time.
type Happens = SelectAll<BoxStream<'static, Next>>;

fn happens(events: ChatEvents, connection: Connection, runtime: Arc<Runtime>, every: Duration) -> Happens {
    let events = stream::unfold(events, async |mut events| Some((Next::Event(Box::new(events.recv().await)), events)));
    let pushed = stream::unfold(connection, async |mut connection| Some((Next::Pushed(connection.recv().await), connection)));
    let mut pings = interval(every);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let pings = stream::unfold(pings, async |mut pings| {
        pings.tick().await;
        Some((Next::Ping, pings))
    });
    let closing = stream::once(async move {
        runtime.closing().await;
        Next::Closing
    });
    [events.boxed(), pushed.boxed(), pings.boxed(), closing.boxed()].into_iter().collect()
}

/// Serves a connection to its end.
pub(super) async fn run(socket: WebSocket, served: Arc<Served>, at: &At) {
    let mut session = Session {
        socket,
        served: &served,
        at,
        agent: at.agent(&served.forever.agents),
        watching: Watching::default(),
        offered: HashSet::new(),
        own: HashSet::new(),
        cancelled: HashSet::new(),
        may_hide_question: false,
        calls: FuturesUnordered::new(),
        answers: FuturesUnordered::new(),
        pending_probe: None,
        held_probe: None,
        probes: false,
        shown_from: None,
        own_state: None,
        own_clears: 0,
        own_replacements: 0,
        rate: Rate::new(served.limits.rate),
        heard: Instant::now(),
        waiting: 0,
    };
    let over = session.serve().await;
    let (code, reason) = match over {
        Over::Gone => return,
        Over::Left => {
            // The answer to its farewell has been prepared when that was read.
            let _ = timeout(served.limits.send, session.socket.close()).await;
            return;
        }
        Over::Close(code, reason) => (code, reason),
        Over::Failed(error) => {
            warn!(agent.class = at.class, agent.name = at.name, error = %chain(&error), "a connection failed");
            (close::TRY_AGAIN, "try again")
        }
    };
    debug!(agent.class = at.class, agent.name = at.name, code, reason, "a connection is closed");
    let farewell = async {
        let frame = CloseFrame { code, reason: Utf8Bytes::from_static(reason) };
        if session.socket.send(Message::Close(Some(frame))).await.is_ok() {
            // Until the client has answered: a socket that is dropped with something unread takes
            // back what was sent.
            while let Some(Ok(_)) = session.socket.recv().await {}
        }
    };
    if timeout(served.limits.send, farewell).await.is_err() {
        debug!(agent.class = at.class, agent.name = at.name, "a client was not told that its connection is closed");
    }
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
        let events = self.agent.chat_events()?;
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
            // A client that comes again may still believe that an answer is being recovered.
            self.send(&ToClient::Recovering { recovering: false, id: None, connect: true }).await?;
        }
        let mut happens = happens(events, connection, self.served.runtime(), self.served.limits.ping);
        loop {
            match self.next(&mut happens).await? {
                Next::Frame(frame) => self.frame(frame).await?,
                Next::Event(event) => match (*event)? {
                    Some(event) => self.event(event).await?,
                    None => return Err(Over::Close(close::RESTART, "the server restarts")),
                },
                Next::Pushed(Some(pushed)) => self.pushed(pushed).await?,
                Next::Pushed(None) | Next::Closing => return Err(Over::Close(close::RESTART, "the server restarts")),
                Next::Log(watched, shown) => self.log(&watched, shown).await?,
                Next::Called(id, result) => self.called(&id, result).await?,
                Next::Answered(answer) => self.answered_late(answer).await?,
                Next::Ping => self.ping().await?,
            }
        }
    }

    /// What is to be done next. What was sent leaves when there is nothing else to be sent with it.
    async fn next(&mut self, happens: &mut Happens) -> std::result::Result<Next, Over> {
        let there = poll_fn(|context| Poll::Ready(self.poll_next(happens, context))).await;
        if there.is_pending() || self.waiting >= WAITING {
            self.flush().await?;
        }
        match there {
            Poll::Ready(next) => Ok(next),
            Poll::Pending => Ok(poll_fn(|context| self.poll_next(happens, context)).await),
        }
    }

    /// In this order, if there are several: events are sent before the next request is answered.
    fn poll_next(&mut self, happens: &mut Happens, context: &mut Context<'_>) -> Poll<Next> {
        if let Poll::Ready(Some(next)) = happens.poll_next_unpin(context) {
            return Poll::Ready(next);
        }
        if let Poll::Ready(Some((id, result))) = self.calls.poll_next_unpin(context) {
            return Poll::Ready(Next::Called(id, result));
        }
        if let Poll::Ready(Some(answer)) = self.answers.poll_next_unpin(context) {
            return Poll::Ready(Next::Answered(answer));
        }
        if let Poll::Ready(frame) = self.socket.poll_next_unpin(context) {
            return Poll::Ready(Next::Frame(frame));
        }
        self.watching.poll_news(context).map(|(watched, shown)| Next::Log(watched, shown))
    }

    async fn send(&mut self, frame: &ToClient<'_>) -> std::result::Result<(), Over> {
        let text = serde_json::to_string(frame)
            .map_err(|why| Over::Failed(Error::new(ErrorKind::Value, "a frame cannot be written").with_source(why)))?;
        self.put(Message::Text(text.into())).await
    }

    /// Sends it with what comes next, or when nothing does.
    async fn put(&mut self, message: Message) -> std::result::Result<(), Over> {
        self.waiting += 1;
        in_time(self.served.limits.send, self.socket.feed(message)).await
    }

    async fn flush(&mut self) -> std::result::Result<(), Over> {
        if self.waiting == 0 {
            return Ok(());
        }
        self.waiting = 0;
        in_time(self.served.limits.send, self.socket.flush()).await
    }

    async fn ping(&mut self) -> std::result::Result<(), Over> {
        if self.heard.elapsed() > self.served.limits.ping * 3 {
            return Err(Over::Gone);
        }
        self.put(Message::Ping(axum::body::Bytes::new())).await
    }

    fn chats(&self) -> Result<Arc<Chats>> {
        self.served.forever.exec.resources.get::<Arc<Chats>>().map(|chats| Arc::clone(&chats)).ok_or_else(Error::closed)
    }

    async fn frame(&mut self, frame: Option<std::result::Result<Message, axum::Error>>) -> std::result::Result<(), Over> {
        let Some(Ok(message)) = frame else { return Err(Over::Gone) };
        self.heard = Instant::now();
        if !self.rate.takes_one() {
            return Err(Over::Close(close::POLICY, "too many frames"));
        }
        if self.served.rooms.ask(self.at).is_err() {
            return Err(Over::Close(close::TRY_AGAIN, "the agent is asked too much"));
        }
        match message {
            Message::Text(text) if text.len() > self.served.limits.frame => Err(Over::Close(close::TOO_LONG, "a frame is too long")),
            Message::Text(text) => match serde_json::from_str::<FromClient>(&text) {
                Ok(FromClient::Unknown) => self.malformed(&text).await,
                Ok(frame) => self.asked(frame).await,
                Err(why) => {
                    debug!(%why, "a frame was not understood");
                    self.malformed(&text).await
                }
            },
            Message::Close(_) => Err(Over::Left),
            Message::Binary(_) | Message::Ping(_) | Message::Pong(_) => Ok(()),
        }
    }
}

/// The messages that a turn answers; a turn that adds to an answer answers none anew.
fn origins(status: &TurnStatus) -> &[String] {
    if status.is_continuation() { &[] } else { status.origins() }
}

/// The client takes what it is sent, in time.
async fn in_time(limit: Duration, sent: impl Future<Output = std::result::Result<(), axum::Error>>) -> std::result::Result<(), Over> {
    match timeout(limit, sent).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(Over::Gone),
        // What it has not taken it asks for when it comes again.
        Err(_) => Err(Over::Close(close::TRY_AGAIN, "too slow")),
    }
}
