//! What browsers are told: which pages may read an answer.
use crate::support::place::{Place, Up};
use crate::support::request::request;

const MESSAGES: &str = "/agents/chat-agent/ada/get-messages";

/// The status, and the headers that browsers look at.
async fn asked(up: &Up, method: &str, headers: &[(&str, &str)]) -> (u16, Vec<String>) {
    let headers: String = headers.iter().flat_map(|(name, value)| [*name, ": ", *value, "\r\n"]).collect();
    let text = format!("{method} {MESSAGES} HTTP/1.1\r\nHost: {}\r\n{headers}Connection: close\r\n\r\n", up.address);
    let answered = request(up.address, text).await;
    let of_browsers = |line: &&str| line.starts_with("access-control") || line.starts_with("vary");
    let mut told: Vec<String> = answered.head.lines().filter(of_browsers).map(str::to_owned).collect();
    told.sort();
    (answered.status, told)
}

#[tokio::test]
async fn pages_that_are_let_in_may_read_what_they_are_answered() {
    let place = Place::new();
    let up = place.up_with(|server| server.allow_origins(["https://app.example"])).await;
    let own = format!("http://{}", up.address);
    for (origin, told) in [
        (own.as_str(), &["vary: origin"][..]),
        (
            "https://app.example",
            &["access-control-allow-credentials: true", "access-control-allow-origin: https://app.example", "vary: origin"],
        ),
        (
            "http://localhost:5173",
            &["access-control-allow-credentials: true", "access-control-allow-origin: http://localhost:5173", "vary: origin"],
        ),
    ] {
        assert_eq!(asked(&up, "GET", &[("origin", origin)]).await, (200, told.iter().map(|&line| line.into()).collect()), "{origin}");
    }
    assert_eq!(asked(&up, "GET", &[]).await, (200, vec![]));
    assert_eq!(asked(&up, "GET", &[("origin", "https://evil.example")]).await, (403, vec![]));
}

#[tokio::test]
async fn whoever_lets_in_all_pages_gives_none_a_persons_credentials() {
    let place = Place::new();
    let up = place.up_with(|server| server.allow_origins(["*"])).await;
    let told = vec!["access-control-allow-origin: *".to_owned(), "vary: origin".to_owned()];
    assert_eq!(asked(&up, "GET", &[("origin", "https://any.example")]).await, (200, told));
}

/// Browsers send no credentials when they ask first, so nobody can decide about them then.
#[tokio::test]
async fn browsers_that_ask_first_are_answered_by_the_origin_alone() {
    let place = Place::new();
    let refuses = |server: forever::serve::Server| {
        server.allow_origins(["https://app.example"]).authorize(async |_| Err(forever::serve::Rejection::unauthorized("who are you?")))
    };
    let up = place.up_with(refuses).await;
    let asks = |origin| [("origin", origin), ("access-control-request-method", "GET"), ("access-control-request-headers", "authorization")];
    let (status, told) = asked(&up, "OPTIONS", &asks("https://app.example")).await;
    assert_eq!(status, 204);
    assert_eq!(
        told,
        [
            "access-control-allow-credentials: true",
            "access-control-allow-headers: authorization",
            "access-control-allow-methods: GET, POST, DELETE",
            "access-control-allow-origin: https://app.example",
            "access-control-max-age: 86400",
            "vary: origin",
        ]
    );
    assert_eq!(asked(&up, "OPTIONS", &asks("https://evil.example")).await, (403, vec![]));
    // Whoever is refused may read that, and why.
    let (status, told) = asked(&up, "GET", &[("origin", "https://app.example")]).await;
    assert!(status == 401 && told.contains(&"access-control-allow-origin: https://app.example".to_owned()), "{status} {told:?}");
}
