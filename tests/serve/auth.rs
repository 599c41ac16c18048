//! Who comes in, and what they are told who do not.
use std::sync::{Arc, Mutex};

use forever::ErrorKind;
use forever::serve::{AuthRequest, Rejection, Server};
use serde_json::json;
use tokio::net::TcpListener;

use crate::support::client::Client;
use crate::support::place::{Place, Up};
use crate::support::request::request;
use crate::support::scripted::Shared;
use crate::support::soon;

const HERE: &str = "/agents/chat-agent/ada";

async fn status(up: &Up, path: &str, headers: &[(&str, &str)]) -> u16 {
    let headers: String = headers.iter().flat_map(|(name, value)| [*name, ": ", *value, "\r\n"]).collect();
    let host = if headers.to_lowercase().contains("host: ") { String::new() } else { format!("Host: {}\r\n", up.address) };
    request(up.address, format!("GET {path} HTTP/1.1\r\n{host}{headers}Connection: close\r\n\r\n")).await.status
}

/// The statuses of a connection, of a request and of an event stream. Who is let in finds no such turn.
async fn statuses(up: &Up, headers: &[(&str, &str)]) -> [u16; 3] {
    let connected = match Client::try_connect(up.address, HERE, headers).await {
        Ok(client) => {
            client.leave().await;
            200
        }
        Err((status, _)) => status,
    };
    [connected, status(up, &format!("{HERE}/get-messages"), headers).await, status(up, &format!("{HERE}/stream/r1"), headers).await]
}

#[tokio::test]
async fn no_browser_takes_an_answer_for_a_page() {
    let place = Place::new();
    let up = place.up().await;
    for path in ["/get-messages", "/stream/none", "", "/other/stream"] {
        let answered = up.get(&format!("{HERE}{path}")).await;
        let head = answered.head.to_lowercase();
        assert!(head.contains("x-content-type-options: nosniff") && head.contains("default-src 'none'"), "{path}: {head}");
    }
    up.down().await;
}

const IN: [u16; 3] = [200, 200, 404];
const REFUSED: [u16; 3] = [403; 3];

#[tokio::test]
async fn who_is_not_let_in_is_told_why_and_no_agent_is_made_for_them() {
    let place = Place::new();
    let up = place
        .up_with(|server| {
            server.authorize(async |request: AuthRequest| {
                match request.headers.get("authorization").map(axum::http::HeaderValue::as_bytes) {
                    None => Err(Rejection::unauthorized("who are you?")),
                    Some(b"Bearer good") => Ok(()),
                    Some(_) => Err(Rejection::forbidden("not you")),
                }
            })
        })
        .await;
    for (headers, expected, why) in [(&[][..], 401, "who are you?"), (&[("authorization", "Bearer bad")][..], 403, "not you")] {
        let (status, said) = Client::try_connect(up.address, HERE, headers).await.err().unwrap();
        assert_eq!((status, said), (expected, json!({ "error": why }).to_string()));
        assert_eq!(statuses(&up, headers).await, [expected; 3]);
    }
    assert!(!up.agent("ada").is_awake());
    // Not a row either, of anything.
    let database = rusqlite::Connection::open(place.path()).unwrap();
    let tables: Vec<String> = {
        let mut tables = database.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'").unwrap();
        tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let rows = |table: &str| -> i64 { database.query_row(&format!("SELECT count(*) FROM \"{table}\""), [], |row| row.get(0)).unwrap() };
    let counted = tables
        .iter()
        .filter(|table| table.contains("agent") || table.contains("turn") || table.contains("chat") || table.contains("message"));
    let counted: Vec<(&String, i64)> = counted.map(|table| (table, rows(table))).collect();
    assert!(counted.len() >= 3, "{tables:?}");
    assert!(counted.iter().all(|(_, rows)| *rows == 0), "{counted:?}");
    drop(database);
    assert_eq!(statuses(&up, &[("authorization", "Bearer good")]).await, IN);
    up.down().await;
}

#[tokio::test]
async fn who_decides_is_told_who_asks_for_what() {
    let (place, seen) = (Place::new(), Arc::new(Mutex::new(Vec::new())));
    let told = Arc::clone(&seen);
    let up = place
        .up_with(|server| {
            server.authorize(move |request| {
                told.lock().unwrap().push(request);
                async { Ok(()) }
            })
        })
        .await;
    let path = "/agents/chat-agent/a%20b?_pk=1&token=x%2Fy";
    Client::try_connect(up.address, path, &[("x-of-mine", "yes")]).await.ok().unwrap().leave().await;
    status(&up, "/agents/chat-agent/c/stream/t?q", &[]).await;
    status(&up, "/agents/chat-agent/c/get-messages", &[]).await;
    // What cannot be an agent is not asked about.
    assert_eq!(status(&up, "/agents/nobody/c/get-messages", &[]).await, 400);
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    assert_eq!(seen.len(), 3);
    assert_eq!((seen[0].class.as_str(), seen[0].name.as_str(), seen[0].uri.to_string().as_str()), ("ChatAgent", "a b", path));
    assert_eq!(seen[0].headers["x-of-mine"], "yes");
    assert!(seen[0].peer.unwrap().ip().is_loopback());
    assert_eq!((seen[1].name.as_str(), seen[1].uri.path(), seen[1].uri.query()), ("c", "/agents/chat-agent/c/stream/t", Some("q")));
    assert_eq!(seen[2].uri.path(), "/agents/chat-agent/c/get-messages");
    up.down().await;
}

#[tokio::test]
async fn what_somebody_else_has_forwarded_is_not_from_the_same_machine() {
    let place = Place::new();
    let up = place.up().await;
    assert_eq!(statuses(&up, &[]).await, IN);
    for name in ["Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "Via", "x-real-ip", "CF-Connecting-IP"] {
        for value in ["for=127.0.0.1", "127.0.0.1", ""] {
            assert_eq!(statuses(&up, &[(name, value)]).await, REFUSED, "{name}: {value}");
        }
    }
    up.down().await;
    let up = place.up_with(Server::allow_anonymous).await;
    assert_eq!(statuses(&up, &[("X-Forwarded-For", "10.0.0.1")]).await, IN);
    up.down().await;
}

#[tokio::test]
async fn pages_of_others_do_not_come_in_and_those_that_are_named_do() {
    let place = Place::new();
    let up = place.up_with(|server| server.allow_origins(["https://app.example"])).await;
    let own = format!("http://{}", up.address);
    for origin in [own.as_str(), "http://localhost:5173", "https://app.example"] {
        assert_eq!(statuses(&up, &[("Origin", origin)]).await, IN, "{origin}");
    }
    let others = [
        "https://evil.example",
        "null",
        "https://app.example.evil",
        "http://app.example",
        "https://app.example:8443",
        "",
        "http://127.0.0.1.evil",
    ];
    for origin in others {
        assert_eq!(statuses(&up, &[("Origin", origin)]).await, REFUSED, "{origin}");
    }
    up.down().await;
}

#[tokio::test]
async fn a_name_that_somebody_else_has_made_point_here_is_not_the_same_machine() {
    let place = Place::new();
    let up = place.up().await;
    // What a browser sends from a page of `evil.example` when that name has come to mean 127.0.0.1: for the page it is its own server.
    let port = up.address.port();
    let (host, origin) = (format!("evil.example:{port}"), format!("http://evil.example:{port}"));
    for path in [format!("{HERE}/get-messages"), format!("{HERE}/stream/r1"), HERE.to_owned()] {
        assert_eq!(status(&up, &path, &[("Host", &host)]).await, 403, "{path}");
        assert_eq!(status(&up, &path, &[("Host", &host), ("Origin", &origin)]).await, 403, "{path}");
    }
    for host in ["localhost", "127.0.0.1", "[::1]", "LOCALHOST"] {
        let host = format!("{host}:{port}");
        assert_eq!(status(&up, &format!("{HERE}/get-messages"), &[("Host", &host)]).await, 200, "{host}");
    }
    up.down().await;
}

#[tokio::test]
async fn a_server_that_others_reach_says_first_who_comes_in() {
    let place = Place::new();
    let forever = place.builder().open().await.unwrap();
    for address in ["0.0.0.0:0", "[::]:0"] {
        let Ok(listener) = TcpListener::bind(address).await else { continue };
        let refused = soon("an answer", Server::new(&forever).listen(listener)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Value);
        assert!(refused.to_string().contains("allow_anonymous"), "{refused}");
    }
    for decided in [Server::new(&forever).allow_anonymous(), Server::new(&forever).authorize(async |_| Ok(()))] {
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], listener.local_addr().unwrap().port()));
        let serving = tokio::spawn(decided.listen(listener));
        Client::connect(address, "ada").await.settled().await;
        serving.abort();
    }
    forever.close().await.unwrap();
}

#[tokio::test]
async fn who_decides_may_fail_or_never_say_and_harms_nobody_else() {
    let place = Place::new();
    let gates = place.gates.clone();
    let up = place
        .up_with(|server| {
            server.max_connections_per_agent(1).authorize(move |request: AuthRequest| {
                let gates = gates.clone();
                async move {
                    match request.name.as_str() {
                        "fails" => panic!("a panic of the program"),
                        "silent" => {
                            gates.pass("decided").await;
                            Err(Rejection::forbidden("no"))
                        }
                        _ => Ok(()),
                    }
                }
            })
        })
        .await;
    let mut steady = up.settled("ada").await;
    let address = up.address;
    let waiting: Vec<_> =
        (0..50).map(|_| tokio::spawn(async move { Client::try_connect(address, "/agents/chat-agent/silent", &[]).await.err() })).collect();
    place.gates.reached("decided").await;
    for _ in 0..3 {
        // What is said of it is nothing of the program's.
        let failed = up.get("/agents/chat-agent/fails/get-messages").await;
        assert!(!failed.all().contains("panic"), "{failed:?}");
        assert_ne!(failed.status, 200);
    }
    steady.ask("r1", json!({})).await;
    steady.done("r1").await;
    // Who waits has no place.
    steady.leave().await;
    assert!(up.has_room("ada").await);
    place.gates.open("decided");
    for waited in waiting {
        assert_eq!(soon("those who wait are told", waited).await.unwrap().unwrap().0, 403);
    }
    assert!(!up.agent("silent").is_awake() && !up.agent("fails").is_awake());
    up.down().await;
}

#[tokio::test]
async fn another_page_beside_the_agents_is_served_without_being_asked_about() {
    let place = Place::new();
    let page = axum::Router::new().route("/", axum::routing::get(async || "a page"));
    let up = place.up_with(|server| server.merge(page).authorize(async |_| Err(Rejection::forbidden("no")))).await;
    let answered = up.get("/").await;
    assert_eq!((answered.status, answered.body.as_str()), (200, "a page"));
    assert_eq!(statuses(&up, &[]).await, REFUSED);
    up.agent("ada").set_state(&Shared::default()).await.unwrap();
    up.down().await;
}

#[tokio::test]
async fn another_protocol_of_the_package_is_refused_before_it_is_spoken() {
    let place = Place::new();
    let up = place.up().await;
    let path = format!("{HERE}?_pk=1&__agents_transport=capnweb");
    assert_eq!(Client::try_connect(up.address, &path, &[]).await.err().map(|(status, _)| status), Some(400));
    up.down().await;
}
