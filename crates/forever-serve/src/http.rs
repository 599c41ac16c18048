//! HTTP routes: upgrades to WebSocket, the messages of a chat, and logs of turns as server-sent
//! events.
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{ConnectInfo, FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use forever_chat::__server::classes;
use forever_chat::{ChatHandle, Entry, Follow};
use forever_runtime::__layers::{chain, engine_link, race, weak_agent};
use forever_runtime::agent::AgentHandle;
use forever_runtime::{Error, ErrorKind, Forever};
use futures_util::stream;
use serde_json::json;
use tracing::{debug, warn};

use super::auth::{Auth, AuthRequest, Rejection, RequestKind};
use super::conversation::{Conversation, Reads};
use super::erased::Erased;
use super::quota::{Full, Quotas};
use super::{Calls, ClientMessages, Limits, address, connection};

/// State shared by all connections of a server.
pub(super) struct Served {
    pub(super) forever: Forever,
    pub(super) auth: Auth,
    pub(super) limits: Limits,
    pub(super) calls: Calls,
    /// Policy for the messages that clients send.
    pub(super) messages: ClientMessages,
    /// The served classes, by their form in URLs.
    classes: BTreeMap<String, &'static str>,
    /// Limits and counts of connections.
    pub(super) quotas: Arc<Quotas>,
    conversations: Arc<Reads<std::result::Result<Arc<Conversation>, Arc<Error>>>>,
}

impl Served {
    pub(super) fn new(forever: Forever, auth: Auth, limits: Limits, calls: Calls, messages: ClientMessages) -> Self {
        let classes = classes(&forever).into_iter().map(|class| (address::kebab(class), class)).collect();
        let quotas = Arc::new(Quotas::new(limits.clone()));
        Served { forever, auth, limits, calls, messages, classes, quotas, conversations: Arc::default() }
    }

    /// The conversation of an agent, as it is now or later.
    pub(super) async fn conversation(&self, at: &At) -> forever_runtime::Result<Arc<Conversation>> {
        let (agent, most) = (at.agent(&self.forever), self.limits.conversation);
        let read = async move {
            let conversation = agent.messages().await.and_then(|messages| Conversation::of(&messages, most));
            conversation.map(Arc::new).map_err(Arc::new)
        };
        let shared = self.conversations.read((at.class, at.name.clone()), read).await;
        shared.map_err(|why| Error::new(why.kind(), "the conversation cannot be sent").with_source(why))
    }

    /// What `work` comes to; `None` if the client keeps it waiting for longer than `send_timeout`.
    /// The time is that of the clock of the runtime.
    pub(super) async fn in_time<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let late = async {
            // The server keeps the runtime open.
            if let Ok(engine) = engine_link(&self.forever).get() {
                engine.clock().sleep(self.limits.send).await;
            }
        };
        race(work, late).await
    }
}

/// An agent that the client is authorized for.
pub(super) struct At {
    pub(super) class: &'static str,
    /// The class as written in the URL.
    pub(super) segment: String,
    pub(super) name: String,
    /// Address of the client, if known.
    pub(super) client: Option<IpAddr>,
    /// The request for the authorization of frames, or of the parts of a POST, if there is a hook.
    pub(super) auth_request: Option<Box<AuthRequest>>,
}

impl At {
    /// Handle of the agent; a connection does not keep the runtime open.
    pub(super) fn agent(&self, forever: &Forever) -> AgentHandle<Erased> {
        weak_agent(forever, self.class, &self.name)
    }

    /// Asks the program's hook whether the client may do more than its request was authorized for.
    pub(super) async fn permits(&self, served: &Served, kind: RequestKind) -> Result<(), Rejection> {
        let Some((authorize, auth_request)) = served.auth.authorize.as_ref().zip(self.auth_request.as_ref()) else { return Ok(()) };
        authorize(AuthRequest { kind, ..AuthRequest::clone(auth_request) }).await
    }
}

/// Error response: status and text.
pub(super) struct Failed(pub(super) StatusCode, pub(super) String);

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        (self.0, Json(json!({ "error": self.1 }))).into_response()
    }
}

impl From<Rejection> for Failed {
    fn from(refused: Rejection) -> Self {
        let (status, reason) = refused.parts();
        Failed(status, reason)
    }
}

impl From<Full> for Failed {
    fn from(full: Full) -> Self {
        match full {
            Full::Agent => Failed(StatusCode::TOO_MANY_REQUESTS, "this agent has too many connections".to_owned()),
            Full::Asked => Failed(StatusCode::TOO_MANY_REQUESTS, "this agent has too many requests".to_owned()),
            Full::Named => Failed(StatusCode::TOO_MANY_REQUESTS, "this address has too many new agents".to_owned()),
            Full::Server => Failed(StatusCode::SERVICE_UNAVAILABLE, "the server has too many connections".to_owned()),
        }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        let status = match error.kind() {
            ErrorKind::NotFound => return Failed(StatusCode::NOT_FOUND, "not found".to_owned()),
            ErrorKind::Closed => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        warn!(error = %chain(&error), "a request failed");
        // Internal errors are not shown to clients.
        Failed(status, status.canonical_reason().unwrap_or_default().to_lowercase())
    }
}

impl FromRequestParts<Arc<Served>> for At {
    type Rejection = Failed;

    async fn from_request_parts(parts: &mut Parts, served: &Arc<Served>) -> Result<Self, Failed> {
        let bad = |why: &str| Failed(StatusCode::BAD_REQUEST, why.to_owned());
        let Ok(Path(path)) = Path::<HashMap<String, String>>::from_request_parts(parts, served).await else {
            return Err(bad("the path cannot be read"));
        };
        let (segment, name) = (path.get("class").cloned().unwrap_or_default(), path.get("name").cloned().unwrap_or_default());
        let class = served
            .classes
            .get(&segment)
            .copied()
            .ok_or_else(|| bad("there is no such class of agents; `ChatAgent` is `chat-agent` here"))?;
        if !address::is_name(&name) {
            return Err(bad("no agent has such a name"));
        }
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0);
        let (uri, headers) = (parts.uri.clone(), parts.headers.clone());
        let kind = RequestKind::of(&parts.method, &uri, &headers);
        let client = served.auth.client(&headers, peer);
        let auth_request = AuthRequest { kind, class: class.to_owned(), name: name.clone(), uri, headers, peer, client };
        let asks_again = matches!(auth_request.kind, RequestKind::Connect | RequestKind::Post);
        let again = (asks_again && served.auth.authorize.is_some()).then(|| Box::new(auth_request.clone()));
        if let Err(refused) = served.auth.lets_in(auth_request).await {
            return Err(refused.into());
        }
        Ok(At { class, segment, name, client, auth_request: again })
    }
}

/// Size of the read buffer of a connection, and of its writes, in bytes. Frames of clients are
/// short, and there are many connections.
const READ: usize = 4 << 10;
const WRITE: usize = 16 << 10;

/// Upgrades a request to a WebSocket connection, or refuses it.
pub(super) async fn agent(
    State(served): State<Arc<Served>>,
    at: At,
    uri: Uri,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Failed> {
    // Another protocol that the npm package can be configured to use.
    if uri.query().is_some_and(|query| query.split('&').any(|pair| pair.starts_with("__agents_transport="))) {
        return Err(Failed(StatusCode::BAD_REQUEST, "only the JSON transport is spoken here".to_owned()));
    }
    let Ok(upgrade) = upgrade else {
        return Err(Failed(
            StatusCode::UPGRADE_REQUIRED,
            "this is for WebSockets; `/get-messages` and `/stream/{turn}` are not".to_owned(),
        ));
    };
    if served.forever.is_closing() {
        return Err(Error::closed().into());
    }
    let place = served.quotas.enter(&at)?;
    // Frames that are slightly too long are read, so that their sender gets a reply.
    let limit = served.limits.frame.saturating_mul(2);
    let upgrade = upgrade.max_message_size(limit).max_frame_size(limit).read_buffer_size(READ).write_buffer_size(WRITE);
    Ok(upgrade.on_upgrade(move |socket| async move {
        debug!(agent.class = at.class, agent.name = at.name, "a client is connected");
        connection::run(socket, served, &at).await;
        drop(place);
    }))
}

/// Size of the pieces in which a conversation is passed to its connection, in bytes.
const PIECE: usize = 64 << 10;

/// `GET /agents/{class}/{name}/get-messages`: the conversation. It occupies a place until its last
/// piece is passed on.
pub(super) async fn messages(State(served): State<Arc<Served>>, at: At) -> Result<Response, Failed> {
    let reading = served.quotas.read(&at)?;
    let text = served.conversation(&at).await?.whole();
    let headers = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json")), (header::CONTENT_LENGTH, text.len().into())];
    // A connection that gets a whole body buffers all of it, however slowly its client reads.
    let pieces = stream::unfold((text, reading), async |(mut rest, reading)| {
        let piece = rest.split_to(rest.len().min(PIECE));
        (!piece.is_empty()).then_some((Ok::<_, Infallible>(piece), (rest, reading)))
    });
    Ok((headers, Body::from_stream(pieces)).into_response())
}

/// `GET /agents/{class}/{name}/stream/{turn}`: the log of a turn as server-sent events. The id of
/// an event is the number of its chunk; the response begins after `Last-Event-ID`. The last event,
/// `end`, has no id.
pub(super) async fn stream(
    State(served): State<Arc<Served>>,
    at: At,
    Path(path): Path<HashMap<String, String>>,
    headers: HeaderMap,
) -> Result<Response, Failed> {
    let from = match headers.get("last-event-id") {
        None => 0,
        Some(last) => {
            let last = last.to_str().ok().and_then(|last| last.parse::<u64>().ok());
            let Some(from) = last.and_then(|last| last.checked_add(1)) else {
                return Err(Failed(StatusCode::BAD_REQUEST, "`Last-Event-ID` is the number of a chunk".to_owned()));
            };
            from
        }
    };
    let place = served.quotas.enter(&at)?;
    let turn = path.get("turn").map(String::as_str).unwrap_or_default();
    let Some(turn) = at.agent(&served.forever).turn(turn).await? else {
        return Err(Failed(StatusCode::NOT_FOUND, "there is no such turn".to_owned()));
    };
    let events = stream::unfold(Some((turn.follow(from).await?, place)), async |shown| {
        let (follow, place) = shown?;
        let (event, follow) = event(follow).await;
        Some((event, follow.map(|follow| (follow, place))))
    });
    let heartbeat = KeepAlive::new().interval(Duration::from_secs(15));
    Ok(Sse::new(events).keep_alive(heartbeat).into_response())
}

async fn event(mut follow: Follow) -> (Result<Event, Infallible>, Option<Follow>) {
    match follow.next().await {
        Ok(Some(Entry::Chunk(number, chunk))) => (Ok(Event::default().id(number.to_string()).data(chunk.json())), Some(follow)),
        Ok(Some(Entry::End(end))) => {
            let said = json!({ "state": end.state().as_str(), "reason": end.client_text() });
            (Ok(Event::default().event("end").data(said.to_string())), None)
        }
        Ok(Some(_)) => (Ok(Event::default().comment("")), Some(follow)),
        // The client reconnects, with the number of the last chunk that it has.
        Ok(None) | Err(_) => (Ok(Event::default().comment("the server is going away")), None),
    }
}
