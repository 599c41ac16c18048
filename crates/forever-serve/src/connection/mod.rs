//! One WebSocket connection: handles the client's frames, and shows it the events of the chat.
//!
//! A log is shown on a connection in one of two ways. A turn that is accepted while the client is
//! connected is shown live. An earlier turn is offered (`resuming`, or `pending` before it begins);
//! once the client sends `resume_ack`, it is shown from its first chunk, marked as a replay. Both
//! read the same log, so nothing has to be kept in sync.
mod inbound;
mod outbound;

use std::collections::HashSet;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket};
use forever_chat::{ChatEvent, ChatEvents, ChatHandle, ToolAnswered, TurnStatus};
use forever_runtime::__layers::chain;
use forever_runtime::agent::{AgentHandle, Connection, Pushed};
use forever_runtime::{Error, ErrorKind, Forever, Result};
use futures_util::SinkExt;
use futures_util::stream::{self, BoxStream, FuturesUnordered, SelectAll, StreamExt};
use serde_json::Value;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{debug, warn};

use super::erased::Erased;
use super::http::{At, Served};
use super::protocol::{FromClient, ToClient};
use super::subscriptions::{Subscription, SubscriptionItem, Subscriptions};
use super::token_bucket::TokenBucket;

/// Close codes of a connection (RFC 6455, section 7.4.1, and its registry). After 1008 clients do
/// not reconnect.
mod close {
    pub(super) const POLICY: u16 = 1008;
    pub(super) const TOO_LONG: u16 = 1009;
    pub(super) const RESTART: u16 = 1012;
    pub(super) const TRY_AGAIN: u16 = 1013;
}

/// Why a connection ends.
enum Over {
    /// The client has disconnected.
    Gone,
    /// The client closes the connection, which is confirmed.
    Left,
    /// The server closes the connection, with a code and a reason.
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
    /// Type of its frame.
    of: &'static str,
    call: String,
    result: Result<ToolAnswered>,
}

type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// A probe that is not answered yet, with the id from the client.
struct HeldProbe(Option<String>);

struct Session<'a> {
    socket: WebSocket,
    served: &'a Served,
    at: &'a At,
    agent: AgentHandle<Erased>,
    subscriptions: Subscriptions,
    /// Turns that are offered, and shown once the client accepts.
    offered: HashSet<String>,
    /// Turns of this client's own questions.
    own: HashSet<String>,
    /// Turns under way that this client has cancelled. It shows no more of them.
    cancelled: HashSet<String>,
    /// Whether a question that the client does not show may be on its way: it was sent the
    /// conversation while it could ask.
    may_hide_question: bool,
    calls: FuturesUnordered<Called>,
    /// Answers to tool calls that have to wait for another event.
    answers: FuturesUnordered<Answering>,
    /// A probe that was answered with `pending`, and its turn. It is answered again when that turn
    /// ends without having begun.
    pending_probe: Option<(String, Option<String>)>,
    /// A probe that is answered when no answer to a tool call is waiting, or when a turn can be
    /// resumed.
    held_probe: Option<HeldProbe>,
    /// Whether the client's probes have ids, as in the package versions that match answers by id.
    probes: bool,
    /// The first message that was sent to the client, of a conversation that is longer.
    shown_from: Option<String>,
    /// The last state that this client has set, which is not sent back to it.
    own_state: Option<String>,
    /// How often it has cleared the chat or replaced its messages; these events are not sent back
    /// to it.
    own_clears: u32,
    own_replacements: u32,
    rate: TokenBucket,
    /// Time of the last frame from the client.
    heard: Instant,
    /// Number of frames that may still be buffered.
    waiting: u32,
}

/// Maximum number of frames that are buffered before a flush.
const WAITING: u32 = 64;

/// Next event of a connection.
enum Next {
    Frame(Option<std::result::Result<Message, axum::Error>>),
    Event(Box<Result<Option<ChatEvent>>>),
    Pushed(Option<Pushed>),
    Log(Arc<Subscription>, Vec<SubscriptionItem>),
    Called(String, std::result::Result<Value, String>),
    Answered(Answer),
    Ping,
    Closing,
}

/// Events of the agent, and timers.
type Happens = SelectAll<BoxStream<'static, Next>>;

fn happens(events: ChatEvents, connection: Connection, forever: Forever, every: Duration) -> Happens {
    let events = stream::unfold(events, async |mut events| Some((Next::Event(Box::new(events.recv().await)), events)));
    let pushed = stream::unfold(connection, async |mut connection| Some((Next::Pushed(connection.recv().await), connection)));
    let mut pings = interval(every);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let pings = stream::unfold(pings, async |mut pings| {
        pings.tick().await;
        Some((Next::Ping, pings))
    });
    let closing = stream::once(async move {
        forever.closing().await;
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
        agent: at.agent(&served.forever),
        subscriptions: Subscriptions::default(),
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
        rate: TokenBucket::new(served.limits.rate),
        heard: Instant::now(),
        waiting: 0,
    };
    let over = session.serve().await;
    let (code, reason) = match over {
        Over::Gone => return,
        Over::Left => {
            // The reply to its close frame was prepared when that was read.
            let _ = served.in_time(session.socket.close()).await;
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
            // Until the client has answered: a socket that is dropped with unread data discards
            // what was sent.
            while let Some(Ok(_)) = session.socket.recv().await {}
        }
    };
    if served.in_time(farewell).await.is_none() {
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
        // Subscribes first and reads then: an event in between is seen twice, not missed.
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
            // A client that reconnects may still show that an answer is being recovered.
            self.send(&ToClient::Recovering { recovering: false, id: None, connect: true }).await?;
        }
        let mut happens = happens(events, connection, self.served.forever.clone(), self.served.limits.ping);
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

    /// The next event. Buffered frames are flushed when no more follow at once.
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

    /// Order of several events: events of the chat are sent before the next request is answered.
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
        self.subscriptions.poll_news(context).map(|(watched, shown)| Next::Log(watched, shown))
    }

    async fn send(&mut self, frame: &ToClient<'_>) -> std::result::Result<(), Over> {
        let text = serde_json::to_string(frame).map_err(|why| not_written("a frame", why))?;
        self.put(Message::Text(text.into())).await
    }

    /// Buffers a message, to be sent with the next one or when there is none.
    async fn put(&mut self, message: Message) -> std::result::Result<(), Over> {
        self.waiting += 1;
        taken(self.served.in_time(self.socket.feed(message)).await)
    }

    async fn flush(&mut self) -> std::result::Result<(), Over> {
        if self.waiting == 0 {
            return Ok(());
        }
        self.waiting = 0;
        taken(self.served.in_time(self.socket.flush()).await)
    }

    async fn ping(&mut self) -> std::result::Result<(), Over> {
        if self.heard.elapsed() > self.served.limits.ping * 3 {
            return Err(Over::Gone);
        }
        self.put(Message::Ping(axum::body::Bytes::new())).await
    }

    async fn frame(&mut self, frame: Option<std::result::Result<Message, axum::Error>>) -> std::result::Result<(), Over> {
        let Some(Ok(message)) = frame else { return Err(Over::Gone) };
        self.heard = Instant::now();
        if !self.rate.takes_one() {
            return Err(Over::Close(close::POLICY, "too many frames"));
        }
        if self.served.quotas.ask(self.at).is_err() {
            return Err(Over::Close(close::TRY_AGAIN, "the agent has too many requests"));
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

fn not_written(what: &str, why: serde_json::Error) -> Over {
    Over::Failed(Error::new(ErrorKind::Value, format!("{what} cannot be written")).with_source(why))
}

/// The messages that a turn answers; a continuation answers no new ones.
fn origins(status: &TurnStatus) -> &[String] {
    if status.is_continuation() { &[] } else { status.origins() }
}

/// Fails if the client has not received a message in time.
fn taken(sent: Option<std::result::Result<(), axum::Error>>) -> std::result::Result<(), Over> {
    // The client requests the rest when it reconnects.
    let slow = Err(Over::Close(close::TRY_AGAIN, "too slow"));
    sent.map_or(slow, |sent| sent.map_err(|_| Over::Gone))
}
