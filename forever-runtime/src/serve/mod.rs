//! Agents over HTTP and WebSocket: the URLs, routes and frames that the published npm packages speak (`agents`, `@cloudflare/ai-chat`), and
//! plain server-sent events for everybody else.
//!
//! Nothing of a chat is kept here. A connection shows logs of turns (`watching`), which are the same for everybody, and hears from the chat
//! what else happens; so it may break at any moment, and the next one goes on. `door` decides who comes in; `frame` has the wire's JSON, of
//! which docs/wire.md is the reference.
mod address;
mod connection;
mod door;
mod erased;
mod frame;
mod http;
mod watching;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use serde_json::Value;
use tokio::net::TcpListener;

pub use door::{Asking, Refused};

use crate::agent::{Agent, AgentHandle, BoxError};
use crate::chat::ChatAgent;
use crate::error::{Error, ErrorKind, Result};
use crate::fiber::frame::BoxFuture;
use crate::forever::Forever;
use door::Door;

/// What may come in and how much of it. [`router`](Server::router) makes the routes, [`listen`](Server::listen) serves them.
///
/// Who may come in: unless [`authorize`](Server::authorize) or [`allow_anonymous`](Server::allow_anonymous) says otherwise, those on the same
/// machine only.
#[must_use = "a server serves when `.router()` is served, or `.listen(..)` awaited"]
pub struct Server {
    forever: Forever,
    door: Door,
    limits: Limits,
    calls: Calls,
}

/// How much is taken from one client.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// The longest frame, in bytes.
    pub(crate) frame: usize,
    /// How many connections one agent may have.
    pub(crate) connections: usize,
    /// How many frames a connection may send in a second, and how many at once.
    pub(crate) rate: (u32, u32),
    /// How long a client may take to take a frame.
    pub(crate) send: Duration,
    /// How often it is looked whether a client is still there.
    pub(crate) ping: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { frame: 4 << 20, connections: 256, rate: (50, 200), send: Duration::from_secs(20), ping: Duration::from_secs(25) }
    }
}

type Call = dyn Fn(&Forever, &str, Vec<Value>) -> BoxFuture<'static, Result<Value, BoxError>> + Send + Sync;

/// What clients may call, by class and name.
type Calls = BTreeMap<(&'static str, String), Arc<Call>>;

/// The routes with which a runtime's agents are served to clients on the same machine: [`Server`] with nothing changed.
pub fn router(forever: &Forever) -> Router {
    Server::new(forever).router()
}

impl Server {
    /// Serves the agents of a runtime.
    pub fn new(forever: &Forever) -> Self {
        Server { forever: forever.clone(), door: Door::default(), limits: Limits::default(), calls: Calls::new() }
    }

    /// Lets everybody in.
    pub fn allow_anonymous(mut self) -> Self {
        self.door.anonymous = true;
        self
    }

    /// Asks before a connection is made, or a request answered.
    pub fn authorize<F, B>(mut self, ask: F) -> Self
    where
        F: Fn(Asking) -> B + Send + Sync + 'static,
        B: Future<Output = Result<(), Refused>> + Send + 'static,
    {
        self.door.authorize = Some(Arc::new(move |asking| Box::pin(ask(asking))));
        self
    }

    /// Lets pages of these origins in, such as `https://app.example.com`, besides those of the server's own; `*` lets all in.
    pub fn allow_origins<O: Into<String>>(mut self, origins: impl IntoIterator<Item = O>) -> Self {
        self.door.origins.extend(origins.into_iter().map(Into::into));
        self
    }

    /// The longest frame or body that is taken, in bytes; 4 MiB unless this is called. A longer one ends the connection.
    pub fn max_frame(mut self, bytes: usize) -> Self {
        self.limits.frame = bytes;
        self
    }

    /// How many connections one agent may have; 256 unless this is called.
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.limits.connections = connections;
        self
    }

    /// How many frames a connection may send in a second, and how many at once; 50 and 200 unless this is called. One that sends more is closed.
    pub fn max_rate(mut self, each_second: u32, at_once: u32) -> Self {
        self.limits.rate = (each_second, at_once);
        self
    }

    /// Lets clients call `name` of agents of this class, as `agent.call(name, args)`.
    pub fn callable<A, F, B>(mut self, name: impl Into<String>, call: F) -> Self
    where
        A: ChatAgent,
        F: Fn(AgentHandle<A>, Vec<Value>) -> B + Send + Sync + 'static,
        B: Future<Output = Result<Value, BoxError>> + Send + 'static,
    {
        let call: Arc<Call> = Arc::new(move |forever, agent, args| Box::pin(call(forever.agent::<A>(agent), args)));
        self.calls.insert((<A as Agent>::CLASS, name.into()), call);
        self
    }

    /// The routes. What serves them has to say who asks: `into_make_service_with_connect_info::<SocketAddr>()`; clients of which nobody knows where they are
    /// count as not on the same machine.
    pub fn router(self) -> Router {
        let served = Arc::new(http::Served::new(self.forever, self.door, self.limits, self.calls));
        Router::new()
            .route("/agents/{class}/{name}", get(http::agent))
            .route("/agents/{class}/{name}/get-messages", get(http::messages))
            .route("/agents/{class}/{name}/stream/{turn}", get(http::stream))
            .with_state(served)
    }

    /// Serves them until the runtime closes.
    ///
    /// # Errors
    /// When the listener fails.
    pub async fn listen(self, listener: TcpListener) -> Result<()> {
        let core = Arc::clone(self.forever.core());
        let service = self.router().into_make_service_with_connect_info::<SocketAddr>();
        let closing = async move { core.closing().await };
        axum::serve(listener, service)
            .with_graceful_shutdown(closing)
            .await
            .map_err(|why| Error::new(ErrorKind::Store, "failed to serve").because(why))
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("door", &self.door).field("limits", &self.limits).finish_non_exhaustive()
    }
}
