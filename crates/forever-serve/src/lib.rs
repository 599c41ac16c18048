//! Server of agents over HTTP and WebSocket, for the published npm packages (`agents`,
//! `@cloudflare/ai-chat`), the AI SDK's `useChat`, and plain server-sent events. Use it through the
//! `forever` crate, as `forever::serve` (feature `server`).
//!
//! ```
//! # mod forever { pub use {forever_chat as chat, forever_runtime::*, forever_serve as serve}; }
//! use forever::agent::Agent;
//! use forever::chat::message::Chunk;
//! use forever::chat::{ChatAgent, ChatBuilder, Turn};
//! use forever::serve::{Rejection, Server};
//! use forever::{BoxError, Forever};
//!
//! struct Concierge;
//!
//! impl Agent for Concierge {
//!     const CLASS: &'static str = "Concierge";
//!     type State = ();
//! }
//!
//! impl ChatAgent for Concierge {
//!     async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
//!         turn.write(Chunk::text_start("t")).await?;
//!         turn.write(Chunk::text_delta("t", "Good morning.")).await?;
//!         Ok(turn.write(Chunk::text_end("t")).await?)
//!     }
//! }
//!
//! # fn main() -> Result<(), BoxError> {
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let forever = Forever::builder().in_memory().chat_agent(|_| Concierge).open().await?;
//! let server = Server::new(&forever).authorize(|request| async move {
//!     // Your own users and their sessions: this one knows a single cookie.
//!     let known = request.headers.get("cookie").is_some_and(|cookie| cookie == "session=42");
//!     if known { Ok(()) } else { Err(Rejection::unauthorized("log in first")) }
//! });
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! let serving = tokio::spawn(server.listen(listener));
//! // At SIGTERM: clients are disconnected, to reconnect to the next process.
//! forever.close().await?;
//! serving.await??;
//! # Ok(())
//! # })
//! # }
//! ```
//!
//! A page of the package `agents` then connects with
//! `useAgent({ agent: "Concierge", name: "table-7" })`.
//!
//! # Where to look
//!
//! - [`Server`]: [`listen`](Server::listen) serves on a port, [`router`](Server::router) gives the
//!   routes to a program that has an `axum` server already.
//! - Who is served: [`Server::authorize`], whose hook gets an [`AuthRequest`] and returns a
//!   [`Rejection`]. Without it, clients of the same machine.
//! - What clients may change: [`ClientMessages`], and the methods that
//!   [`expose`](Server::expose) or [`callable`](Server::callable) name.
//! - Limits of sizes, connections and rates: the other methods of [`Server`], each with its
//!   default.
//!
//! The server stores nothing. A connection shows the stored log of a turn, which is the same for
//! all clients, so it may break at any moment, and the next connection continues. The routes, the
//! frames and the close codes are in the guide, `docs/guide/src/reference/wire.md`.

// A connection shows logs of turns (`subscriptions`), and subscribes to the chat's other events.
// `auth` authorizes, `quota` and `token_bucket` limit connections and requests; `protocol` has the
// frames; `transport` is the HTTP transport of the AI SDK.
#![forbid(unsafe_code)]

mod address;
mod auth;
mod client_messages;
mod connection;
mod conversation;
mod cors;
mod erased;
mod http;
mod listen;
mod network;
mod protocol;
mod quota;
mod subscriptions;
mod token_bucket;
mod transport;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use auth::Auth;
pub use auth::{AuthRequest, Rejection, RequestKind};
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::routing::{delete, get};
pub use client_messages::ClientMessages;
use forever_chat::ChatAgent;
use forever_runtime::__layers::local;
use forever_runtime::agent::{Agent, AgentHandle};
use forever_runtime::store::BoxFuture;
use forever_runtime::{BoxError, Error, ErrorKind, Forever, Result};
use http::Served;
pub use network::{Network, NotANetwork};
use serde_json::Value;
use token_bucket::RateLimit;
use tokio::net::TcpListener;

/// Server of agents over HTTP and WebSocket, with its limits.
///
/// [`listen`](Server::listen) serves on a port. [`router`](Server::router) makes the routes, for a
/// server that the program has already.
///
/// Unless [`authorize`](Server::authorize) or [`allow_anonymous`](Server::allow_anonymous) is set,
/// only clients on the same machine are authorized. Only agents of chat classes can be reached.
///
/// ```
/// # mod forever { pub use {forever_runtime::*, forever_serve as serve}; }
/// # fn server(forever: &forever::Forever, routes: axum::Router) -> axum::Router {
/// use forever::serve::Server;
/// use std::time::Duration;
///
/// Server::new(forever)
///     .allow_anonymous()
///     .allow_origins(["https://app.example.com"])
///     .max_frame(1 << 20)
///     .max_rate(10, 50)
///     .send_timeout(Duration::from_secs(10))
///     // The program's own page and routes.
///     .merge(routes)
///     .router()
/// # }
/// ```
#[must_use = "a server serves when `.router()` is served, or `.listen(..)` awaited"]
pub struct Server {
    forever: Forever,
    auth: Auth,
    limits: Limits,
    calls: Calls,
    messages: ClientMessages,
    others: Router,
}

/// Limits for clients.
#[derive(Debug, Clone)]
struct Limits {
    /// Maximum size of a frame, in bytes.
    frame: usize,
    /// Maximum number of connections of one agent.
    connections_per_agent: usize,
    /// Maximum number of connections.
    connections: usize,
    /// Rate limit of one connection: frames.
    rate: RateLimit,
    /// Rate limit of one agent: frames, connections and requests.
    agent_rate: RateLimit,
    /// Rate limit of new agents of one address.
    new_agents: RateLimit,
    /// Maximum size of the conversation that is sent to a client, in bytes.
    conversation: usize,
    /// Maximum time for a client to receive a frame.
    send: Duration,
    /// Interval of pings.
    ping: Duration,
    /// Maximum time for the head of a request.
    head: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            frame: 4 << 20,
            connections_per_agent: 256,
            connections: 10_000,
            rate: RateLimit { per_second: 50, burst: 200 },
            agent_rate: RateLimit { per_second: 500, burst: 2_000 },
            new_agents: RateLimit { per_second: 100, burst: 2_000 },
            conversation: 8 << 20,
            send: Duration::from_secs(20),
            ping: Duration::from_secs(25),
            head: Duration::from_secs(10),
        }
    }
}

type Call = dyn Fn(&Forever, &str, Vec<Value>) -> BoxFuture<'static, Result<Value, BoxError>> + Send + Sync;

/// Methods that clients may call, by class and name.
type Calls = BTreeMap<(&'static str, String), Arc<Call>>;

/// Routes of a [`Server`] with all defaults, for clients on the same machine.
pub fn router(forever: &Forever) -> Router {
    Server::new(forever).router()
}

impl Server {
    /// A server of the agents of a runtime.
    pub fn new(forever: &Forever) -> Self {
        let (auth, limits, calls) = (Auth::default(), Limits::default(), Calls::new());
        let messages = ClientMessages::default();
        Server { forever: forever.clone(), auth, limits, calls, messages, others: Router::new() }
    }

    /// Authorizes every client, of any machine. Defaults to clients on the same machine.
    ///
    /// An [`authorize`](Server::authorize) hook takes precedence. Pages of other origins are refused
    /// all the same, unless [`allow_origins`](Server::allow_origins) names them.
    pub fn allow_anonymous(mut self) -> Self {
        self.auth.anonymous = true;
        self
    }

    /// Sets the authorization hook of the program. Defaults to none: only clients on the same
    /// machine are authorized.
    ///
    /// It is called before a connection is accepted, before a request is answered, and before a
    /// frame changes anything; [`AuthRequest::kind`] says which. A rejection is answered with its
    /// status and reason.
    ///
    /// ```
    /// # mod forever { pub use {forever_runtime::*, forever_serve as serve}; }
    /// # fn with(server: forever::serve::Server) -> forever::serve::Server {
    /// use forever::serve::Rejection;
    ///
    /// server.authorize(|request| async move {
    ///     // Your own users and their sessions.
    ///     let is_staff = request.headers.contains_key("x-staff");
    ///     if is_staff || request.kind.is_read() { Ok(()) } else { Err(Rejection::forbidden("only staff may write")) }
    /// })
    /// # }
    /// ```
    ///
    /// For a frame, the headers are those of the request that opened its connection. A refused
    /// frame is answered with the reason, and the connection stays open.
    pub fn authorize<F, B>(mut self, ask: F) -> Self
    where
        F: Fn(AuthRequest) -> B + Send + Sync + 'static,
        B: Future<Output = Result<(), Rejection>> + Send + 'static,
    {
        self.auth.authorize = Some(Arc::new(move |auth_request| Box::pin(ask(auth_request))));
        self
    }

    /// Allows pages of these origins besides the server's own; `*` allows all. Defaults to none.
    ///
    /// An origin has the form `https://app.example.com`. Pages of a development server on the same
    /// machine are always allowed. Responses have the CORS headers, with credentials for an origin
    /// that is named, and without for `*`. Further calls add origins.
    pub fn allow_origins<O: Into<String>>(mut self, origins: impl IntoIterator<Item = O>) -> Self {
        self.auth.origins.extend(origins.into_iter().map(Into::into));
        self
    }

    /// Adds the addresses or networks of proxies that are trusted to report the address of a
    /// client. Defaults to none.
    ///
    /// The address is taken from `X-Forwarded-For`, else `Forwarded`, else the first that is there
    /// of `CF-Connecting-IP`, `True-Client-IP`, `X-Real-IP`, `X-Client-IP`, `X-Cluster-Client-IP`
    /// and `Fastly-Client-IP`. A trusted proxy has to set the header, or remove one set by
    /// its clients. The address is used for limits per address, and to decide whether a request
    /// comes from this machine. A request forwarded by any other proxy never does.
    ///
    /// ```
    /// # use forever_serve as serve;
    /// # fn with(server: serve::Server) -> Result<serve::Server, serve::NotANetwork> {
    /// use serve::Network;
    /// Ok(server.trusted_proxies(["10.0.0.0/8".parse::<Network>()?]))
    /// # }
    /// ```
    pub fn trusted_proxies<N: Into<Network>>(mut self, proxies: impl IntoIterator<Item = N>) -> Self {
        self.auth.proxies.extend(proxies.into_iter().map(Into::into));
        self
    }

    /// Sets what clients may write into a conversation. Defaults to [`ClientMessages::UserOnly`].
    pub fn client_messages(mut self, policy: ClientMessages) -> Self {
        self.messages = policy;
        self
    }

    /// Sets the maximum size of a frame and of the body of a POST, in bytes. Defaults to 4 MiB.
    ///
    /// A longer frame ends the connection with code 1009, a longer body is refused with 413.
    pub fn max_frame(mut self, bytes: usize) -> Self {
        self.limits.frame = bytes;
        self
    }

    /// Sets the maximum number of connections of one agent. Defaults to 256.
    ///
    /// `WebSocket`s and event streams count together. Further ones are refused with 429. One
    /// address gets no more places than it leaves free, so the first one half of them; for an IPv6
    /// address the first 64 bits count.
    pub fn max_connections_per_agent(mut self, connections: usize) -> Self {
        self.limits.connections_per_agent = connections;
        self
    }

    /// Sets the maximum number of connections, over all agents. Defaults to 10 000.
    ///
    /// Further ones are refused with 503. For one address, see
    /// [`max_connections_per_agent`](Self::max_connections_per_agent).
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.limits.connections = connections;
        self
    }

    /// Sets the rate limit of one connection: frames per second, and burst. Defaults to 50 and 200.
    ///
    /// A connection that sends more is closed with code 1008, after which the npm clients do not
    /// reconnect. A burst of 0 counts as 1.
    pub fn max_rate(mut self, per_second: u32, burst: u32) -> Self {
        self.limits.rate = RateLimit { per_second, burst };
        self
    }

    /// Sets the rate limit of one agent: per second, and burst. Defaults to 500 and 2 000.
    ///
    /// Frames, connections and requests of all its clients count. One address has half of it. A
    /// burst of 0 counts as 1.
    ///
    /// Beyond the limit, requests are answered with 429, and a connection is closed with code 1013:
    /// it may reconnect.
    pub fn max_agent_rate(mut self, per_second: u32, burst: u32) -> Self {
        self.limits.agent_rate = RateLimit { per_second, burst };
        self
    }

    /// Sets the rate limit of new agents of one address: per second, and burst.
    ///
    /// Defaults to 100 and 2 000.
    ///
    /// An agent is new if it has no connection and had no request in the last seconds. Beyond the
    /// limit, requests are refused with 429. For an IPv6 address the first 64 bits count.
    pub fn max_new_agents(mut self, per_second: u32, burst: u32) -> Self {
        self.limits.new_agents = RateLimit { per_second, burst };
        self
    }

    /// Sets how many bytes of a conversation a client is sent at a time. Defaults to 8 MiB.
    ///
    /// Of a longer conversation the newest messages that fit are sent, at least one, followed by a
    /// frame `forever_truncated`. The other messages stay stored.
    pub fn max_conversation_bytes(mut self, bytes: usize) -> Self {
        self.limits.conversation = bytes;
        self
    }

    /// Sets the maximum time for a client to receive a frame. Defaults to 20 s.
    ///
    /// A slower client is disconnected with code 1013, and requests the rest when it reconnects.
    /// Nothing is buffered for it meanwhile. The body of a POST has to arrive within this time too,
    /// or is refused with 408.
    pub fn send_timeout(mut self, time: Duration) -> Self {
        self.limits.send = time;
        self
    }

    /// Sets the interval of pings. Defaults to 25 s, and is at least 1 ms.
    ///
    /// Clients that miss three pings are disconnected.
    pub fn ping_interval(mut self, time: Duration) -> Self {
        self.limits.ping = time.max(Duration::from_millis(1));
        self
    }

    /// Sets the maximum time for the head of a request. Defaults to 10 s.
    ///
    /// Only [`listen`](Server::listen) enforces it.
    pub fn header_timeout(mut self, time: Duration) -> Self {
        self.limits.head = time;
        self
    }

    /// Adds other routes beside the agents, such as a page. They are not authorized here.
    ///
    /// # Panics
    /// If two of the added routes overlap.
    pub fn merge(mut self, routes: Router) -> Self {
        self.others = self.others.merge(routes);
        self
    }

    /// Adds a method of a class that clients may call, as `agent.call(name, args)`.
    ///
    /// If it returns a [`Rejection`], the client receives the reason; for any other error, only
    /// that the call failed.
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

    /// Lets clients call a method that is registered with
    /// [`Builder::callable`](forever_runtime::Builder::callable), as `agent.call(name, args)`.
    ///
    /// It is carried out by the worker that carries out the calls of the agent, whichever worker
    /// the client is connected to ([`AgentHandle::call`]). A single argument is passed as it is,
    /// several as a tuple, and none as `()`. A client that is gone voids calls that have not begun.
    /// If the call fails, the client receives only that it did.
    pub fn expose<A: ChatAgent>(self, name: impl Into<String>) -> Self {
        let name: String = name.into();
        let method = name.clone();
        self.callable(name, move |agent: AgentHandle<A>, mut args: Vec<Value>| {
            let args = match args.len() {
                0 => Value::Null,
                1 => args.remove(0),
                _ => Value::Array(args),
            };
            let call = agent.call::<Value>(method.clone(), args);
            async move { Ok(call.await?) }
        })
    }

    /// Returns the routes, to be served by the program.
    ///
    /// Serve them with `into_make_service_with_connect_info::<SocketAddr>()`: clients without a
    /// known address count as not on the same machine. `WebSocket`s end when the runtime closes,
    /// and `axum::serve` does not wait for their end, as [`listen`](Server::listen) does.
    ///
    /// # Panics
    /// If a route given to [`merge`](Server::merge) overlaps with one of the agents.
    pub fn router(self) -> Router {
        self.served().1
    }

    fn served(self) -> (Arc<Served>, Router) {
        let served = Arc::new(Served::new(self.forever, self.auth, self.limits, self.calls, self.messages));
        let router = Router::new()
            .route("/agents/{class}/{name}", get(http::agent).post(transport::post))
            .route("/agents/{class}/{name}/get-messages", get(http::messages))
            .route("/agents/{class}/{name}/stream/{turn}", get(http::stream).delete(transport::cancel_turn))
            .route("/agents/{class}/{name}/{chat}/stream", delete(transport::cancel).get(transport::resume))
            .layer(DefaultBodyLimit::max(served.limits.frame))
            .layer(from_fn_with_state(Arc::clone(&served), cors::tell))
            .with_state(Arc::clone(&served));
        (served, router.merge(self.others))
    }

    /// Serves the routes until the runtime closes.
    ///
    /// Then clients receive code 1012, upon which they reconnect, and the call returns when they
    /// are gone, after 5 s at the latest. While no connection can be accepted, for example without
    /// a free file descriptor, it logs a warning and tries again every 200 ms.
    ///
    /// # Cancel safety
    /// Dropping the future closes the listener. Connections that are open are served until the
    /// runtime closes.
    ///
    /// # Errors
    /// Kind [`Value`](ErrorKind::Value) if other machines reach the listener and neither
    /// `authorize` nor `allow_anonymous` is set; kind [`Store`](ErrorKind::Store) if it has no
    /// address.
    pub async fn listen(self, listener: TcpListener) -> Result<()> {
        let address = listener.local_addr().map_err(|why| Error::new(ErrorKind::Store, "failed to listen").with_source(why))?;
        if !self.auth.is_decided() && !local::is_loopback(address.ip()) {
            let why = format!("other machines reach {address}: authorize clients with `.authorize(..)` or `.allow_anonymous()`");
            return Err(Error::new(ErrorKind::Value, why));
        }
        let (forever, head) = (self.forever.clone(), self.limits.head);
        let (served, router) = self.served();
        listen::serve(listener, router, &forever, &served.quotas, head).await;
        Ok(())
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("auth", &self.auth).field("limits", &self.limits).finish_non_exhaustive()
    }
}
