//! Who is answered: clients on the same machine, or those that the program lets in; and no page of
//! another site.
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::Response;
use forever_runtime::__layers::local;

use crate::Shared;
use crate::failure::Failure;

/// The header that commands have to carry. A browser asks before it sends one of its own to another
/// site, and is not answered.
pub(crate) const COMMAND: &str = "x-forever-inspect";

/// Head of a request, for [`Inspector::authorize`](crate::Inspector::authorize).
///
/// ```
/// # mod forever { pub use forever_inspect as inspect; }
/// use forever::inspect::{Request, Verdict};
///
/// /// Given to `Inspector::authorize`, behind a proxy that has authenticated the user.
/// fn authorize(request: &Request<'_>) -> Verdict {
///     let user = request.headers.get("x-user").and_then(|user| user.to_str().ok());
///     match user {
///         None => Verdict::Unauthorized,
///         Some("ada") => Verdict::Allow,
///         Some(_) if request.is_command => Verdict::Forbidden,
///         Some(_) if request.path.ends_with("/export") => Verdict::Forbidden,
///         Some(_) => Verdict::Allow,
///     }
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Request<'a> {
    /// Headers.
    pub headers: &'a HeaderMap,
    /// Path below the inspector's own.
    pub path: &'a str,
    /// The other end of the connection, where the server says it.
    pub peer: Option<SocketAddr>,
    /// Whether it changes something.
    pub is_command: bool,
}

/// Decision about a request.
///
/// See [`Request`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is answered.
    Allow,
    /// It is refused with status 401, so that a browser or proxy asks for credentials.
    Unauthorized,
    /// It is refused with status 403.
    Forbidden,
}

type Authorize = dyn Fn(&Request<'_>) -> Verdict + Send + Sync;

/// The rules of one inspector.
#[derive(Default)]
pub(crate) struct Access {
    authorize: Option<Box<Authorize>>,
    hosts: Vec<String>,
    /// Whether everything is let in, as on a socket that only its owner can open.
    is_open: bool,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("is_authorized", &self.authorize.is_some()).field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

impl Access {
    pub(crate) fn authorize(&mut self, authorize: impl Fn(&Request<'_>) -> Verdict + Send + Sync + 'static) {
        self.authorize = Some(Box::new(authorize));
    }

    pub(crate) fn host(&mut self, host: &str) {
        self.hosts.push(host.to_ascii_lowercase());
    }

    pub(crate) fn open(&mut self) {
        self.is_open = true;
    }

    fn decide(&self, request: &Request<'_>) -> Result<(), Failure> {
        if self.is_open {
            return Ok(());
        }
        let host = host(request.headers)?;
        self.knows(host)?;
        if request.is_command {
            is_of_own_page(request.headers, host)?;
        }
        match &self.authorize {
            Some(authorize) => match authorize(request) {
                Verdict::Allow => Ok(()),
                Verdict::Unauthorized => Err(Failure::unauthorized()),
                Verdict::Forbidden => Err(Failure::forbidden("you are not allowed to do this")),
            },
            None if local::is_local(request.peer.map(|peer| peer.ip()), [Some(host)], request.headers.keys().map(HeaderName::as_str)) => {
                Ok(())
            }
            None => Err(Failure::forbidden("clients of other machines are not let in: the program has to say `.authorize(..)`")),
        }
    }

    /// Checks the name that the client has asked for. A site whose name is made to point here has
    /// its own.
    fn knows(&self, host: &str) -> Result<(), Failure> {
        let name = local::without_port(host).to_ascii_lowercase();
        let is_known = self.hosts.contains(&name)
            || match &self.authorize {
                Some(_) => self.hosts.is_empty(),
                None => local::names_this_machine(&name),
            };
        if is_known { Ok(()) } else { Err(Failure::forbidden("this host name is not let in: the program has to say `.host(..)`")) }
    }
}

/// The one `Host` header.
fn host(headers: &HeaderMap) -> Result<&str, Failure> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next().filter(|_| hosts.next().is_none()).and_then(|host| host.to_str().ok());
    host.ok_or_else(|| Failure::bad("a request has one `Host` header"))
}

/// Whether a command comes from the inspector's own page, or from no page.
fn is_of_own_page(headers: &HeaderMap, host: &str) -> Result<(), Failure> {
    let refused = || Failure::forbidden("commands of other pages are refused");
    if !headers.contains_key(COMMAND) {
        return Err(Failure::forbidden("a command needs the header `x-forever-inspect: 1`"));
    }
    if headers.get("sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none") {
        return Err(refused());
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let authority = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, authority)| authority);
    if authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host)) { Ok(()) } else { Err(refused()) }
}

/// Lets a request through or not, and says what browsers may do with the answer.
pub(crate) async fn check(State(shared): State<Arc<Shared>>, request: axum::extract::Request, next: Next) -> Response {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0);
    let is_command = !matches!(*request.method(), Method::GET | Method::HEAD);
    let head = Request { headers: request.headers(), path: request.uri().path(), peer, is_command };
    let mut response = match shared.access.decide(&head) {
        Ok(()) if is_command && !shared.has_actions => {
            Failure::forbidden("this inspector is read-only: the program has to say `.allow_actions()`").into_response_now()
        }
        Ok(()) => next.run(request).await,
        Err(failure) => failure.into_response_now(),
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

const HEADERS: [(&str, &str); 6] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'self'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
    ("cross-origin-resource-policy", "same-origin"),
    ("x-frame-options", "DENY"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(access: &Access, peer: Option<&str>, is_command: bool, headers: &[(&'static str, &str)]) -> bool {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_str(value).unwrap());
        }
        let peer = peer.map(|peer| peer.parse().unwrap());
        access.decide(&Request { headers: &map, path: "/", peer, is_command }).is_ok()
    }

    #[test]
    fn without_a_hook_only_this_machine_is_let_in_by_its_own_name() {
        let access = Access::default();
        let local = Some("127.0.0.1:1");
        for (peer, host, allowed) in [
            (local, "localhost:7117", true),
            (local, "[::1]:7117", true),
            (local, "evil.example:7117", false),
            (Some("10.0.0.1:1"), "localhost", false),
            (None, "localhost", false),
        ] {
            assert_eq!(asked(&access, peer, false, &[("host", host)]), allowed, "{peer:?} {host}");
        }
        assert!(!asked(&access, local, false, &[]));
        assert!(!asked(&access, local, false, &[("host", "localhost"), ("host", "localhost")]));
        assert!(!asked(&access, local, false, &[("host", "localhost"), ("x-forwarded-host", "a.example")]));
    }

    #[test]
    fn commands_come_from_the_own_page_alone() {
        let access = Access::default();
        let asks = |more: &[(&'static str, &str)]| asked(&access, Some("127.0.0.1:1"), true, &[&[("host", "localhost:1")], more].concat());
        assert!(!asks(&[]));
        assert!(asks(&[(COMMAND, "1")]));
        assert!(asks(&[(COMMAND, "1"), ("origin", "http://localhost:1"), ("sec-fetch-site", "same-origin")]));
        assert!(!asks(&[(COMMAND, "1"), ("origin", "http://localhost:2")]));
        assert!(!asks(&[(COMMAND, "1"), ("origin", "null")]));
        assert!(!asks(&[(COMMAND, "1"), ("sec-fetch-site", "cross-site")]));
        assert!(!asks(&[(COMMAND, "1"), ("sec-fetch-site", "same-site")]));
    }

    #[test]
    fn a_hook_decides_for_all_machines() {
        let mut access = Access::default();
        access.authorize(|request| if request.headers.contains_key("authorization") { Verdict::Allow } else { Verdict::Unauthorized });
        assert!(!asked(&access, Some("127.0.0.1:1"), false, &[("host", "ops.example")]));
        let with = [("host", "ops.example"), ("authorization", "Bearer x")];
        assert!(asked(&access, Some("8.8.8.8:1"), false, &with));
        assert!(!asked(&access, Some("8.8.8.8:1"), true, &with));
        access.host("other.example");
        assert!(!asked(&access, Some("8.8.8.8:1"), false, &with));
    }
}
