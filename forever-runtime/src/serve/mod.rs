//! Agents over HTTP and WebSocket: the URLs, routes and frames that the published npm packages speak (`agents`, `@cloudflare/ai-chat`), and
//! plain server-sent events for everybody else.
//!
//! Nothing of a chat is kept here. A connection shows logs of turns (`watching`), which are the same for everybody, and hears from the chat
//! what else happens; so it may break at any moment, and the next one goes on. `door` decides who comes in, `room` and `rate` how many and how
//! much; `frame` has the wire's JSON, of which docs/wire.md is the reference; `transport` is the HTTP transport of the AI SDK.
mod address;
mod client_messages;
mod connection;
mod cors;
mod door;
mod erased;
mod frame;
mod http;
mod listen;
mod network;
mod rate;
mod room;
mod transport;
mod watching;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::routing::{delete, get};
pub use client_messages::ClientMessages;
use door::Door;
pub use door::{Asking, Refused, RequestKind};
use http::Served;
pub use network::{Network, NotANetwork};
use rate::Limit;
use serde_json::Value;
use tokio::net::TcpListener;

use crate::agent::{Agent, AgentHandle, BoxError};
use crate::api::forever::Forever;
use crate::chat::ChatAgent;
use crate::error::{Error, ErrorKind, Result};
use crate::future::BoxFuture;

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
    messages: ClientMessages,
    others: Router,
}

/// How much is taken from clients.
#[derive(Debug, Clone)]
struct Limits {
    /// The longest frame, in bytes.
    frame: usize,
    /// How many connections one agent may have.
    connections: usize,
    /// How many there may be in all.
    connections_in_all: usize,
    /// How many frames one connection may send.
    rate: Limit,
    /// How much one agent may be asked: frames, connections and requests.
    agent_rate: Limit,
    /// How many agents one address may name that are not named already.
    new_agents: Limit,
    /// How many bytes of a conversation one client is sent at a time.
    conversation: usize,
    /// How long a client may take to take a frame.
    send: Duration,
    /// How often it is looked whether a client is still there.
    ping: Duration,
    /// How long the head of a request may take.
    head: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            frame: 4 << 20,
            connections: 256,
            connections_in_all: 10_000,
            rate: Limit { each_second: 50, at_once: 200 },
            agent_rate: Limit { each_second: 500, at_once: 2_000 },
            new_agents: Limit { each_second: 100, at_once: 2_000 },
            conversation: 8 << 20,
            send: Duration::from_secs(20),
            ping: Duration::from_secs(25),
            head: Duration::from_secs(10),
        }
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
        let (door, limits, calls) = (Door::default(), Limits::default(), Calls::new());
        let messages = ClientMessages::default();
        Server { forever: forever.clone(), door, limits, calls, messages, others: Router::new() }
    }

    /// Lets everybody in.
    pub fn allow_anonymous(mut self) -> Self {
        self.door.anonymous = true;
        self
    }

    /// Asks before a connection is made, before a request is answered, and before a frame changes
    /// something: [`Asking::kind`] is which of these it is.
    ///
    /// With a frame come the headers of the request that made its connection. A frame that is
    /// refused is answered with the reason, and the connection stays.
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

    /// Trusts proxies at these addresses, or in these networks, to say where a request comes from.
    ///
    /// The address is taken from `X-Forwarded-For`, else `Forwarded`, else `CF-Connecting-IP`,
    /// `True-Client-IP` or `X-Real-IP`: a trusted proxy has to set it, or take away what its
    /// clients have set. It counts for limits of an address, and for whether a request comes from
    /// this machine. A request that another proxy has passed on never does.
    ///
    /// ```
    /// # use forever_runtime as forever;
    /// # fn with(server: forever::serve::Server) -> Result<forever::serve::Server, forever::serve::NotANetwork> {
    /// use forever::serve::Network;
    /// Ok(server.trusted_proxies(["10.0.0.0/8".parse::<Network>()?]))
    /// # }
    /// ```
    pub fn trusted_proxies<N: Into<Network>>(mut self, proxies: impl IntoIterator<Item = N>) -> Self {
        self.door.proxies.extend(proxies.into_iter().map(Into::into));
        self
    }

    /// What clients may write into a conversation. Defaults to [`ClientMessages::UserOnly`].
    pub fn client_messages(mut self, policy: ClientMessages) -> Self {
        self.messages = policy;
        self
    }

    /// The longest frame, and the longest body of a POST, in bytes; defaults to 4 MiB. A longer frame
    /// ends the connection with code 1009, a longer body is refused with 413.
    pub fn max_frame(mut self, bytes: usize) -> Self {
        self.limits.frame = bytes;
        self
    }

    /// How many connections one agent may have, `WebSocket`s and event streams together; 256 unless this is called. More are refused with 429.
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.limits.connections = connections;
        self
    }

    /// How many connections there may be in all; 10 000 unless this is called. More are refused with 503.
    pub fn max_connections_in_all(mut self, connections: usize) -> Self {
        self.limits.connections_in_all = connections;
        self
    }

    /// How many frames one connection may send in a second, and how many at once; 50 and 200 unless this is called. One that sends more is
    /// closed with code 1008, after which the clients of the npm packages do not come again.
    pub fn max_rate(mut self, each_second: u32, at_once: u32) -> Self {
        self.limits.rate = Limit { each_second, at_once };
        self
    }

    /// How many frames, connections and requests one agent takes from all its clients in a second, and how many at once; 500 and 2 000 unless
    /// this is called. What is more is answered with 429, and a connection that sends more is closed with code 1013: it may come again.
    pub fn max_agent_rate(mut self, each_second: u32, at_once: u32) -> Self {
        self.limits.agent_rate = Limit { each_second, at_once };
        self
    }

    /// How many agents one address may name in a second, and how many at once. Defaults to 100 and
    /// 2 000.
    ///
    /// An agent counts that has no connection and was not asked anything in the last seconds. What
    /// is more is refused with 429. Of an IPv6 address the first 64 bits count.
    pub fn max_new_agents(mut self, each_second: u32, at_once: u32) -> Self {
        self.limits.new_agents = Limit { each_second, at_once };
        self
    }

    /// Bytes of a conversation that a client is sent at a time. Defaults to 8 MiB.
    ///
    /// Of a longer conversation the newest messages are sent that fit, and one at least, followed
    /// by a frame `forever_truncated`. What was left out stays stored.
    pub fn max_conversation_bytes(mut self, bytes: usize) -> Self {
        self.limits.conversation = bytes;
        self
    }

    /// How long a client may take to take a frame; 20 s unless this is called. One that takes longer is closed with code 1013, and asks for the
    /// rest when it comes again. Nothing is kept for it meanwhile.
    pub fn send_timeout(mut self, time: Duration) -> Self {
        self.limits.send = time;
        self
    }

    /// How often a client is asked whether it is there; every 25 s unless this is called. One of which nothing is heard three times is gone.
    pub fn ping_interval(mut self, time: Duration) -> Self {
        self.limits.ping = time.max(Duration::from_millis(1));
        self
    }

    /// How long the head of a request may take, with [`listen`](Server::listen); 10 s unless this is called.
    pub fn header_timeout(mut self, time: Duration) -> Self {
        self.limits.head = time;
        self
    }

    /// Serves other routes beside the agents, such as a page. They are not asked about at the door.
    pub fn merge(mut self, routes: Router) -> Self {
        self.others = self.others.merge(routes);
        self
    }

    /// Lets clients call `name` of agents of this class, as `agent.call(name, args)`. They are told of an error that is a [`Refused`] why; of any
    /// other, only that there was one.
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
        self.served().1
    }

    fn served(self) -> (Arc<Served>, Router) {
        let served = Arc::new(Served::new(self.forever, self.door, self.limits, self.calls, self.messages));
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

    /// Serves them until the runtime closes. Clients are told to come again (code 1012), and waited for.
    ///
    /// # Errors
    /// Kind [`Value`](ErrorKind::Value) if other machines reach the listener and nobody has said who may come in; kind
    /// [`Store`](ErrorKind::Store) if it has no address.
    pub async fn listen(self, listener: TcpListener) -> Result<()> {
        let address = listener.local_addr().map_err(|why| Error::new(ErrorKind::Store, "failed to listen").with_source(why))?;
        if !self.door.is_decided() && !door::is_loopback(address.ip()) {
            let why = format!("other machines reach {address}: say who may come in, with `.authorize(..)` or `.allow_anonymous()`");
            return Err(Error::new(ErrorKind::Value, why));
        }
        let (runtime, head) = (Arc::clone(self.forever.runtime()), self.limits.head);
        let (served, router) = self.served();
        listen::serve(listener, router, &runtime, &served.rooms, head).await;
        Ok(())
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("door", &self.door).field("limits", &self.limits).finish_non_exhaustive()
    }
}
