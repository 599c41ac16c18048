//! Authorization, before a connection is upgraded and before a request is answered.
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, Method, StatusCode, Uri, header};
use forever_runtime::__layers::local;
use forever_runtime::store::BoxFuture;
use tracing::warn;

use super::network::Network;

/// Kind of a request, for [`Server::authorize`](super::Server::authorize).
///
/// ```
/// # mod forever { pub use forever_serve as serve; }
/// use forever::serve::{AuthRequest, Rejection, RequestKind};
///
/// /// Called by an `authorize` hook for a person who may not change anything.
/// fn read_only(request: &AuthRequest) -> Result<(), Rejection> {
///     match &request.kind {
///         kind if kind.is_read() => Ok(()),
///         RequestKind::Call(method) if method == "search" => Ok(()),
///         kind => Err(Rejection::forbidden(format!("only staff: {kind:?}"))),
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RequestKind {
    /// A WebSocket connection, which shows the conversation.
    Connect,
    /// Reading the messages of the conversation.
    ReadMessages,
    /// Reading the log of a turn.
    Stream,
    /// A POST, before its body is read. Each request in the body is authorized again, as
    /// [`Ask`](Self::Ask), [`ToolResult`](Self::ToolResult) or [`Approve`](Self::Approve).
    Post,
    /// A question.
    Ask,
    /// Cancelling a turn.
    Cancel,
    /// Cancelling all turns and deleting all messages.
    Clear,
    /// Replacing the messages of the conversation.
    ReplaceMessages,
    /// The result of a tool that runs at the client.
    ToolResult,
    /// Approval or refusal of a tool call.
    Approve,
    /// Setting the state of the agent.
    SetState,
    /// A call of the method of this name, registered with
    /// [`Server::callable`](super::Server::callable) or [`Server::expose`](super::Server::expose).
    Call(String),
}

impl RequestKind {
    /// Whether it only reads.
    pub fn is_read(&self) -> bool {
        matches!(self, RequestKind::Connect | RequestKind::ReadMessages | RequestKind::Stream)
    }

    /// The kind of an HTTP request to `/agents/{class}/{name}/..`.
    pub(super) fn of(method: &Method, uri: &Uri, headers: &HeaderMap) -> Self {
        match uri.path().split('/').nth(4) {
            _ if *method == Method::DELETE => RequestKind::Cancel,
            _ if *method != Method::GET && *method != Method::HEAD => RequestKind::Post,
            Some("get-messages") => RequestKind::ReadMessages,
            Some(_) => RequestKind::Stream,
            None if headers.contains_key(header::UPGRADE) => RequestKind::Connect,
            None => RequestKind::ReadMessages,
        }
    }
}

/// A request to be authorized.
///
/// ```
/// # mod forever { pub use forever_serve as serve; }
/// use forever::serve::{AuthRequest, Rejection};
///
/// /// The agents of a class belong to the users of their names.
/// fn owns(request: &AuthRequest, user: &str) -> Result<(), Rejection> {
///     if request.class == "Concierge" && request.name == user {
///         return Ok(());
///     }
///     tracing::warn!(client = ?request.client, agent = request.name, "refused");
///     Err(Rejection::forbidden("this is not your agent"))
/// }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AuthRequest {
    /// Kind of the request.
    pub kind: RequestKind,
    /// Class of the agent, as registered.
    pub class: String,
    /// Name of the agent.
    pub name: String,
    /// URI of the request, with its query.
    pub uri: Uri,
    /// The headers of the request.
    pub headers: HeaderMap,
    /// Address of the other end of the connection, if known; it may be a proxy.
    pub peer: Option<SocketAddr>,
    /// Address of the client.
    ///
    /// As reported by [trusted](super::Server::trusted_proxies) proxies, else that of `peer`.
    pub client: Option<IpAddr>,
}

/// Rejection of a request or a call, with the reason for the client.
///
/// Made by an [`authorize`](super::Server::authorize) hook, or as the error of a
/// [`callable`](super::Server::callable) method.
///
/// ```
/// use forever_serve::Rejection;
///
/// assert_eq!(Rejection::forbidden("only staff").to_string(), "refused: only staff");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    status: StatusCode,
    reason: String,
}

impl Rejection {
    /// Unauthenticated: status 401, with the reason.
    pub fn unauthorized(reason: impl Into<String>) -> Self {
        Rejection { status: StatusCode::UNAUTHORIZED, reason: reason.into() }
    }

    /// Not permitted: status 403, with the reason.
    pub fn forbidden(reason: impl Into<String>) -> Self {
        Rejection { status: StatusCode::FORBIDDEN, reason: reason.into() }
    }

    pub(super) fn parts(self) -> (StatusCode, String) {
        (self.status, self.reason)
    }

    pub(super) fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "refused: {}", self.reason)
    }
}

impl std::error::Error for Rejection {}

type Authorize = dyn Fn(AuthRequest) -> BoxFuture<'static, Result<(), Rejection>> + Send + Sync;

/// Authorization of requests, by their origin, their address and the program's hook.
#[derive(Default, Clone)]
pub(super) struct Auth {
    pub(super) anonymous: bool,
    pub(super) authorize: Option<Arc<Authorize>>,
    pub(super) origins: Vec<String>,
    /// Proxies that are trusted to report the address of a client.
    pub(super) proxies: Vec<Network>,
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auth").field("anonymous", &self.anonymous).field("origins", &self.origins).finish_non_exhaustive()
    }
}

/// Origin of the page that sends a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Page {
    /// No page, or one of the server's own origin.
    Own,
    /// An origin that was allowed by name.
    Named,
    /// Any origin, since all are allowed.
    Any,
}

/// Headers in which a trusted proxy reports the address of a client; the first that is present
/// counts.
const ONE_ADDRESS: [&str; 6] =
    ["cf-connecting-ip", "true-client-ip", "x-real-ip", "x-client-ip", "x-cluster-client-ip", "fastly-client-ip"];

impl Auth {
    /// Whether the program has set an authorization.
    pub(super) fn is_decided(&self) -> bool {
        self.anonymous || self.authorize.is_some()
    }

    pub(super) async fn lets_in(&self, request: AuthRequest) -> Result<(), Rejection> {
        self.page(&request.headers, request.peer)?;
        if let Some(authorize) = &self.authorize {
            return authorize(request).await;
        }
        if self.anonymous || self.is_local(&request.headers, request.peer) {
            return Ok(());
        }
        warn!(peer = ?request.peer, "a client was refused: call `.authorize(..)` or `.allow_anonymous()` to serve other machines");
        Err(Rejection::forbidden("clients of other machines are not allowed"))
    }

    /// Refuses pages of other origins: a browser that shows them sends cookies and can reach the
    /// local machine.
    pub(super) fn page(&self, headers: &HeaderMap, peer: Option<SocketAddr>) -> Result<Page, Rejection> {
        let Some(origin) = headers.get(header::ORIGIN) else { return Ok(Page::Own) };
        let refused = || Rejection::forbidden("pages of this origin are not allowed");
        let origin = origin.to_str().map_err(|_| refused())?;
        let authority = origin.split_once("://").map_or(origin, |(_, authority)| authority);
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        if host == Some(authority) {
            return Ok(Page::Own);
        }
        // A development server on the same machine is allowed as well.
        let is_development = local::names_this_machine(authority) && self.is_local(headers, peer);
        if is_development || self.origins.iter().any(|allowed| allowed == origin) {
            return Ok(Page::Named);
        }
        if self.origins.iter().any(|allowed| allowed == "*") { Ok(Page::Any) } else { Err(refused()) }
    }
}

impl Auth {
    /// Whether a request comes from the same machine. A trusted proxy says where it comes from.
    fn is_local(&self, headers: &HeaderMap, peer: Option<SocketAddr>) -> bool {
        let hosts = headers.get_all(header::HOST).iter().map(|host| host.to_str().ok());
        if self.is_trusted(peer) {
            return local::is_local(self.forwarded(headers, peer), hosts, []);
        }
        local::is_local(peer.map(|peer| peer.ip()), hosts, headers.keys().map(HeaderName::as_str))
    }

    /// Address of a client: as reported by trusted proxies, else the other end of the connection.
    pub(super) fn client(&self, headers: &HeaderMap, peer: Option<SocketAddr>) -> Option<IpAddr> {
        self.forwarded(headers, peer).or(peer.map(|peer| peer.ip()))
    }

    fn is_trusted(&self, peer: Option<SocketAddr>) -> bool {
        peer.is_some_and(|peer| self.proxies.iter().any(|proxy| proxy.contains(peer.ip())))
    }

    /// Address of a request that a trusted proxy has forwarded. In a list it is the last address
    /// that is not a trusted proxy's, since a client may have written the ones before it.
    fn forwarded(&self, headers: &HeaderMap, peer: Option<SocketAddr>) -> Option<IpAddr> {
        if !self.is_trusted(peer) {
            return None;
        }
        let lists = [("x-forwarded-for", false), ("forwarded", true)];
        for (name, is_pairs) in lists {
            if !headers.contains_key(name) {
                continue;
            }
            let values: Option<Vec<&str>> = headers.get_all(name).iter().map(|value| value.to_str().ok()).collect();
            let values = values?.join(",");
            let hops = values.split(',').rev().map(|hop| address(if is_pairs { for_of(hop)? } else { hop }));
            for hop in hops {
                // An unreadable hop may be any client.
                let hop = hop?;
                if !self.proxies.iter().any(|proxy| proxy.contains(hop)) {
                    return Some(hop);
                }
            }
            return None;
        }
        let there = ONE_ADDRESS.iter().find_map(|name| headers.get(*name))?;
        address(there.to_str().ok()?)
    }
}

/// The `for` of a hop in a `Forwarded` header (RFC 7239).
fn for_of(hop: &str) -> Option<&str> {
    let pairs = hop.split(';').filter_map(|pair| pair.trim().split_once('='));
    let mut of = pairs.filter(|(key, _)| key.trim().eq_ignore_ascii_case("for"));
    of.next().map(|(_, value)| value.trim().trim_matches('"'))
}

/// An address, with or without a port.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let address = bare.parse::<IpAddr>().or_else(|_| text.parse::<SocketAddr>().map(|address| address.ip()));
    address.ok().map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auth_request(peer: &str, headers: &[(&str, &str)]) -> AuthRequest {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(header::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        if !map.contains_key(header::HOST) {
            map.insert(header::HOST, header::HeaderValue::from_static("localhost:8080"));
        }
        let (class, name, peer) = ("chat".to_owned(), "a".to_owned(), peer.parse().ok());
        AuthRequest { kind: RequestKind::Connect, class, name, uri: Uri::from_static("/agents/chat/a"), headers: map, peer, client: None }
    }

    async fn status(auth: &Auth, auth_request: AuthRequest) -> u16 {
        auth.lets_in(auth_request).await.map_or_else(|refused| refused.parts().0.as_u16(), |()| 200)
    }

    #[tokio::test]
    async fn only_the_same_machine_comes_in_unless_somebody_says_so() {
        let (closed, open) = (Auth::default(), Auth { anonymous: true, ..Auth::default() });
        for (peer, let_in) in [("127.0.0.1:1", 200), ("[::1]:1", 200), ("[::ffff:127.0.0.1]:1", 200), ("10.0.0.1:1", 403), ("unknown", 403)]
        {
            assert_eq!(status(&closed, auth_request(peer, &[])).await, let_in, "{peer}");
            assert_eq!(status(&open, auth_request(peer, &[])).await, 200);
        }
        for header in
            ONE_ADDRESS.into_iter().chain(["forwarded", "via", "cdn-loop", "x-forwarded-for", "x-forwarded-host", "x-original-url"])
        {
            assert_eq!(status(&closed, auth_request("127.0.0.1:1", &[(header, "127.0.0.1")])).await, 403, "{header}");
        }
    }

    #[tokio::test]
    async fn a_request_that_names_no_host_or_two_is_not_local() {
        let mut without = auth_request("127.0.0.1:1", &[]);
        without.headers.clear();
        assert_eq!(status(&Auth::default(), without).await, 403);
        let mut two = auth_request("127.0.0.1:1", &[]);
        two.headers.append(header::HOST, header::HeaderValue::from_static("localhost"));
        assert_eq!(status(&Auth::default(), two).await, 403);
    }

    #[tokio::test]
    async fn what_a_trusted_proxy_says_counts_and_what_others_say_does_not() {
        /// Where from, with which headers; which client it is of, and with which status.
        type Case = (&'static str, &'static [(&'static str, &'static str)], Option<&'static str>, u16);
        let cases: [Case; 17] = [
            ("127.0.0.1:1", &[("x-forwarded-for", "203.0.113.9")], Some("203.0.113.9"), 403),
            ("127.0.0.1:1", &[("x-forwarded-for", "::1")], Some("::1"), 200),
            // What stands before the address that the proxy has seen may be a lie.
            ("127.0.0.1:1", &[("x-forwarded-for", "::1, 203.0.113.9")], Some("203.0.113.9"), 403),
            ("127.0.0.1:1", &[("x-forwarded-for", "::1, 203.0.113.9, 10.1.2.3")], Some("203.0.113.9"), 403),
            ("127.0.0.1:1", &[("x-forwarded-for", "203.0.113.9, ::1"), ("x-real-ip", "::1")], Some("::1"), 200),
            ("127.0.0.1:1", &[("x-forwarded-for", "::1"), ("x-forwarded-for", "203.0.113.9")], Some("203.0.113.9"), 403),
            ("127.0.0.1:1", &[("x-forwarded-for", "nonsense")], Some("127.0.0.1"), 403),
            ("127.0.0.1:1", &[("x-forwarded-for", "10.0.0.1, 10.0.0.2")], Some("127.0.0.1"), 403),
            ("127.0.0.1:1", &[("forwarded", "for=\"[2001:db8::7]:4711\";proto=https")], Some("2001:db8::7"), 403),
            ("127.0.0.1:1", &[("forwarded", "For=\"[::1]\"")], Some("::1"), 200),
            ("127.0.0.1:1", &[("forwarded", "for=_hidden")], Some("127.0.0.1"), 403),
            ("127.0.0.1:1", &[("cf-connecting-ip", "203.0.113.9")], Some("203.0.113.9"), 403),
            ("127.0.0.1:1", &[("via", "1.1 proxy")], Some("127.0.0.1"), 403),
            // A proxy that does not say where a request comes from is not the one who asks.
            ("127.0.0.1:1", &[], Some("127.0.0.1"), 403),
            ("10.9.9.9:1", &[("x-real-ip", "127.0.0.1")], Some("127.0.0.1"), 200),
            // One that is not trusted.
            ("192.0.2.1:1", &[("x-forwarded-for", "::1")], Some("192.0.2.1"), 403),
            ("[::1]:1", &[("x-forwarded-for", "::1")], Some("::1"), 403),
        ];
        let proxies = ["127.0.0.1".parse().unwrap(), "10.0.0.0/8".parse().unwrap()];
        let auth = Auth { proxies: proxies.to_vec(), ..Auth::default() };
        for (peer, headers, client, let_in) in cases {
            let auth_request = auth_request(peer, headers);
            let client = client.map(|client| client.parse().unwrap());
            assert_eq!(auth.client(&auth_request.headers, auth_request.peer), client, "{peer} {headers:?}");
            assert_eq!(status(&auth, auth_request).await, let_in, "{peer} {headers:?}");
        }
    }

    #[tokio::test]
    async fn pages_of_other_origins_do_not_come_in() {
        let auth = Auth::default();
        let cases = [
            ("https://evil.example", "localhost:8080", 403),
            ("http://localhost.evil.example", "localhost:8080", 403),
            ("null", "localhost:8080", 403),
            ("http://localhost:8080", "localhost:8080", 200),
            ("http://localhost:5173", "localhost:8080", 200),
            ("http://[::1]:5173", "127.0.0.1:8080", 200),
            // A name that somebody else has made point here.
            ("http://localhost:5173", "rebound.example:8080", 403),
        ];
        for (origin, host, expected) in cases {
            assert_eq!(status(&auth, auth_request("127.0.0.1:1", &[("origin", origin), ("host", host)])).await, expected, "{origin}");
        }
        let auth = Auth { origins: vec!["https://app.example".to_owned()], anonymous: true, ..Auth::default() };
        assert_eq!(status(&auth, auth_request("10.0.0.1:1", &[("origin", "https://app.example"), ("host", "api.example")])).await, 200);
        assert_eq!(
            status(&auth, auth_request("10.0.0.1:1", &[("origin", "https://app.example.evil"), ("host", "api.example")])).await,
            403
        );
    }

    #[tokio::test]
    async fn whoever_is_asked_decides() {
        let authorize: Arc<Authorize> = Arc::new(|auth_request| {
            let known = auth_request.headers.contains_key(header::AUTHORIZATION);
            Box::pin(async move { if known { Ok(()) } else { Err(Rejection::unauthorized("who are you?")) } })
        });
        let auth = Auth { authorize: Some(authorize), ..Auth::default() };
        assert_eq!(status(&auth, auth_request("127.0.0.1:1", &[])).await, 401);
        assert_eq!(status(&auth, auth_request("10.0.0.1:1", &[("authorization", "x")])).await, 200);
    }
}
