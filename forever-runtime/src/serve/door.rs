//! Who comes in: decided before a connection is upgraded and before a request is answered.
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode, Uri, header};
use tracing::warn;

use crate::future::BoxFuture;

/// Somebody who asks to be let in.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Asking {
    /// The class of the agent, as it was registered.
    pub class: String,
    /// The agent's name.
    pub name: String,
    /// What was asked for, with its query.
    pub uri: Uri,
    /// The headers of the request.
    pub headers: HeaderMap,
    /// From where, if that is known.
    pub peer: Option<SocketAddr>,
}

/// Somebody is not let in, or a call is not made for them. They are told why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    status: StatusCode,
    reason: String,
}

impl Refused {
    /// Nobody knows who it is: status 401. They are told the reason.
    pub fn unauthorized(reason: impl Into<String>) -> Self {
        Refused { status: StatusCode::UNAUTHORIZED, reason: reason.into() }
    }

    /// They may not: status 403. They are told the reason.
    pub fn forbidden(reason: impl Into<String>) -> Self {
        Refused { status: StatusCode::FORBIDDEN, reason: reason.into() }
    }

    pub(super) fn parts(self) -> (StatusCode, String) {
        (self.status, self.reason)
    }

    pub(super) fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "refused: {}", self.reason)
    }
}

impl std::error::Error for Refused {}

type Authorize = dyn Fn(Asking) -> BoxFuture<'static, Result<(), Refused>> + Send + Sync;

/// Decides.
#[derive(Default, Clone)]
pub(super) struct Door {
    pub(super) anonymous: bool,
    pub(super) authorize: Option<Arc<Authorize>>,
    pub(super) origins: Vec<String>,
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").field("anonymous", &self.anonymous).field("origins", &self.origins).finish_non_exhaustive()
    }
}

/// The page from which somebody asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Page {
    /// None, or one of the server's own.
    Own,
    /// One that was named.
    Named,
    /// One of all.
    Any,
}

/// What a proxy adds to a request of somebody else: that the proxy is on the same machine says nothing of them.
const FORWARDED: [&str; 3] = ["forwarded", "x-forwarded-for", "x-real-ip"];

impl Door {
    /// Whether somebody has said who comes in.
    pub(super) fn is_decided(&self) -> bool {
        self.anonymous || self.authorize.is_some()
    }

    pub(super) async fn lets_in(&self, asking: Asking) -> Result<(), Refused> {
        self.page(&asking.headers, asking.peer)?;
        if let Some(authorize) = &self.authorize {
            return authorize(asking).await;
        }
        if self.anonymous || is_local(&asking.headers, asking.peer) {
            return Ok(());
        }
        warn!(peer = ?asking.peer, "a client was refused: say `.authorize(..)` or `.allow_anonymous()` to serve other machines");
        Err(Refused::forbidden("clients of other machines are not let in"))
    }

    /// Pages of others are not let in: a browser that shows them sends cookies and reaches the local machine.
    pub(super) fn page(&self, headers: &HeaderMap, peer: Option<SocketAddr>) -> Result<Page, Refused> {
        let Some(origin) = headers.get(header::ORIGIN) else { return Ok(Page::Own) };
        let refused = || Refused::forbidden("pages of this origin are not let in");
        let origin = origin.to_str().map_err(|_| refused())?;
        let authority = origin.split_once("://").map_or(origin, |(_, authority)| authority);
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        if host == Some(authority) {
            return Ok(Page::Own);
        }
        // Of a development server on the same machine, too.
        let local = names_this_machine(authority) && is_local(headers, peer) && host.is_some_and(names_this_machine);
        if local || self.origins.iter().any(|allowed| allowed == origin) {
            return Ok(Page::Named);
        }
        if self.origins.iter().any(|allowed| allowed == "*") { Ok(Page::Any) } else { Err(refused()) }
    }
}

/// Whether it comes from the same machine, and means it. A page of somebody else whose name has come to point here is asked for by that name.
fn is_local(headers: &HeaderMap, peer: Option<SocketAddr>) -> bool {
    let forwarded = FORWARDED.iter().any(|name| headers.contains_key(*name));
    let mut hosts = headers.get_all(header::HOST).iter();
    let meant = hosts.all(|host| host.to_str().is_ok_and(names_this_machine));
    !forwarded && meant && peer.is_some_and(|peer| is_loopback(peer.ip()))
}

/// Whether a name, with its port if it has one, means this machine to everybody.
fn names_this_machine(authority: &str) -> bool {
    let name = match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => authority,
    };
    name.eq_ignore_ascii_case("localhost") || name.trim_matches(['[', ']']).parse().is_ok_and(is_loopback)
}

pub(super) fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(peer: &str, headers: &[(&str, &str)]) -> Asking {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(header::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        let (class, name) = ("chat".to_owned(), "a".to_owned());
        Asking { class, name, uri: Uri::from_static("/agents/chat/a"), headers: map, peer: peer.parse().ok() }
    }

    async fn status(door: &Door, asking: Asking) -> u16 {
        door.lets_in(asking).await.map_or_else(|refused| refused.parts().0.as_u16(), |()| 200)
    }

    #[tokio::test]
    async fn only_the_same_machine_comes_in_unless_somebody_says_so() {
        let (closed, open) = (Door::default(), Door { anonymous: true, ..Door::default() });
        for (peer, let_in) in [("127.0.0.1:1", 200), ("[::1]:1", 200), ("[::ffff:127.0.0.1]:1", 200), ("10.0.0.1:1", 403), ("unknown", 403)]
        {
            assert_eq!(status(&closed, asking(peer, &[])).await, let_in, "{peer}");
            assert_eq!(status(&open, asking(peer, &[])).await, 200);
        }
        for header in FORWARDED {
            assert_eq!(status(&closed, asking("127.0.0.1:1", &[(header, "127.0.0.1")])).await, 403, "{header}");
        }
    }

    #[tokio::test]
    async fn pages_of_other_origins_do_not_come_in() {
        let door = Door::default();
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
            assert_eq!(status(&door, asking("127.0.0.1:1", &[("origin", origin), ("host", host)])).await, expected, "{origin}");
        }
        let door = Door { origins: vec!["https://app.example".to_owned()], anonymous: true, ..Door::default() };
        assert_eq!(status(&door, asking("10.0.0.1:1", &[("origin", "https://app.example"), ("host", "api.example")])).await, 200);
        assert_eq!(status(&door, asking("10.0.0.1:1", &[("origin", "https://app.example.evil"), ("host", "api.example")])).await, 403);
    }

    #[tokio::test]
    async fn whoever_is_asked_decides() {
        let authorize: Arc<Authorize> = Arc::new(|asking| {
            let known = asking.headers.contains_key(header::AUTHORIZATION);
            Box::pin(async move { if known { Ok(()) } else { Err(Refused::unauthorized("who are you?")) } })
        });
        let door = Door { authorize: Some(authorize), ..Door::default() };
        assert_eq!(status(&door, asking("127.0.0.1:1", &[])).await, 401);
        assert_eq!(status(&door, asking("10.0.0.1:1", &[("authorization", "x")])).await, 200);
    }
}
