//! Requests that are not what they should be: paths, methods, heads and upgrades.
use forever::prelude::*;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::frames::{MARK, leaks_nothing};
use crate::support::place::{Place, Up};
use crate::support::request::{Answered, request};
use crate::support::{panics, until};

/// A server with an agent that has something to hide, and another one that is talked to.
async fn up(place: &Place) -> Up {
    let up = place.up().await;
    let mut other = up.settled("other").await;
    other.ask("r1", json!({ "script": [{ "say": MARK }] })).await;
    other.done("r1").await;
    other.leave().await;
    up
}

/// A client of a new agent has an answer to its end.
async fn serves(up: &Up) {
    let mut client = up.settled("steady").await;
    client.send(json!({ "type": "cf_agent_chat_clear" })).await;
    let id = format!("r{}", up.agent("steady").turns(&[]).await.unwrap().len());
    client.ask(&id, json!({})).await;
    client.done(&id).await;
    client.leave().await;
    panics::none("while served");
}

fn checked(what: &str, answered: &Answered) {
    leaks_nothing(0, &answered.all());
    // What is refused is refused in words of ours, or in none.
    assert!(answered.status < 500, "{what}: {answered:?}");
}

#[tokio::test]
async fn paths_that_mean_no_good_lead_to_no_other_agent() {
    let place = Place::new();
    let up = up(&place).await;
    let long = "x".repeat(257);
    let refused = [
        ("/agents/chat-agent/a%00b/get-messages", 400),
        ("/agents/chat-agent/a%0ab/get-messages", 400),
        ("/agents/chat-agent/%0d%0aSet-Cookie:%20a=b/get-messages", 400),
        ("/agents/chat-agent/%7f/get-messages", 400),
        ("/agents/chat-agent/%C2%85/get-messages", 400),
        ("/agents/chat-agent/%ff/get-messages", 400),
        ("/agents/chat-agent/%c0%af/get-messages", 400),
        (&format!("/agents/chat-agent/{long}/get-messages"), 400),
        (&format!("/agents/chat-agent/{}/get-messages", "%41".repeat(257)), 400),
        (&format!("/agents/chat-agent/{}/get-messages", "%C3%A9".repeat(129)), 400),
        ("/agents//other/get-messages", 400),
        ("/agents/chat-agent//get-messages", 400),
        ("/agents/ChatAgent/other/get-messages", 400),
        ("/agents/chat-agent%00/other/get-messages", 400),
        ("/agents/chat_agent/other/get-messages", 400),
        ("/agents/%63hat-agen/other/get-messages", 400),
        ("/agents/../chat-agent/other/get-messages", 404),
        ("/agents/chat-agent/steady/../other/get-messages", 404),
        ("//agents/chat-agent/other/get-messages", 404),
        ("/agents/chat-agent/other/get-messages/", 404),
        ("/agents/chat-agent/other/get-messages/x", 404),
        ("/agents/chat-agent/other/stream", 404),
        ("/agents/chat-agent/other/stream/", 404),
        ("/agents/chat-agent/other/stream/r1/x", 404),
        ("/agents/chat-agent/other/sub/chat-agent/x", 404),
        ("/agents/chat-agent/other/GET-MESSAGES", 404),
        ("/agents/chat-agent/other/get-messages%00", 404),
        ("/agents", 404),
        ("/", 404),
        ("/agents/chat-agent/get-messages", 426),
        ("/agents/chat-agent/other", 426),
    ];
    for (path, status) in refused {
        let answered = up.get(path).await;
        checked(path, &answered);
        assert_eq!(answered.status, status, "{path}: {answered:?}");
    }
    // Names that look like paths are names, each of an agent of its own, of which nothing is known.
    for name in [
        "..",
        "%2e%2e",
        ".",
        "..%2fother",
        "%2Fother",
        "other%2f",
        "..%5cother",
        "other%20",
        "OTHER",
        "other%23",
        "%25%30%30",
        "get-messages",
        "stream",
        "\\other",
        "other%3Fa=b",
        "%F0%9F%A6%93",
        "%E2%80%AEother",
    ] {
        let answered = up.get(&format!("/agents/chat-agent/{name}/get-messages")).await;
        checked(name, &answered);
        assert_eq!((answered.status, answered.body.as_str()), (200, "[]"), "{name}");
    }
    // And the query is none.
    assert!(up.get("/agents/chat-agent/other/get-messages?name=steady").await.body.contains(MARK));
    assert_eq!(up.get("/agents/chat-agent/steady/get-messages?name=other&_pk=other").await.body, "[]");
    // Broken percents are letters, or refused.
    for name in ["%", "%2", "%zz", "%u002e", "other%"] {
        let answered = up.get(&format!("/agents/chat-agent/{name}/get-messages")).await;
        checked(name, &answered);
        assert!(matches!((answered.status, answered.body.as_str()), (200, "[]") | (400, _)), "{name}: {answered:?}");
    }
    serves(&up).await;
    up.down().await;
}

#[tokio::test]
async fn a_path_answers_its_own_methods_only() {
    let place = Place::new();
    let up = up(&place).await;
    let host = up.address;
    let paths = [
        // Its own: a body that is not JSON, and turns that are not there.
        ("/agents/chat-agent/other", Some(("POST", 415))),
        ("/agents/chat-agent/other/get-messages", None),
        ("/agents/chat-agent/other/stream/none", Some(("DELETE", 404))),
        ("/agents/chat-agent/other/page/stream", Some(("DELETE", 204))),
    ];
    for (path, own) in paths {
        for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "get"] {
            let text = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            let answered = request(up.address, text).await;
            checked(method, &answered);
            let expected = own.filter(|(own, _)| *own == method).map_or(405, |(_, status)| status);
            assert_eq!(answered.status, expected, "{method} {path}: {answered:?}");
        }
        let answered = request(up.address, format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")).await;
        checked("CONNECT", &answered);
        assert!(matches!(answered.status, 400 | 404 | 405), "{answered:?}");
    }
    assert_eq!(up.agent("other").messages().await.unwrap().len(), 2);
    serves(&up).await;
    up.down().await;
}

#[tokio::test]
async fn heads_that_are_odd_are_answered_or_refused() {
    let place = Place::new();
    let up = up(&place).await;
    let (host, path) = (up.address, "/agents/chat-agent/steady/get-messages");
    let of = |line: &str, rest: &str| format!("{line}\r\n{rest}Connection: close\r\n\r\n");
    let get = format!("GET {path} HTTP/1.1");
    let long = "x".repeat(200_000);
    let odd: [(String, &[u16]); 18] = [
        // Without a host, as HTTP/1.0 has it: nobody else's page can leave it out.
        // One that does not say which host it means may mean any.
        (format!("GET {path} HTTP/1.0\r\n\r\n"), &[403]),
        (format!("GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n"), &[200]),
        (of(&get, ""), &[400, 403]),
        (of(&get, &format!("Host: {host}\r\nHost: evil.example\r\n")), &[400, 403]),
        (of(&get, "Host: \r\n"), &[400, 403]),
        (of(&get, &format!("Host: {host}\r\nContent-Length: 5\r\n")) + "hello", &[200]),
        (of(&get, &format!("Host: {host}\r\nTransfer-Encoding: chunked\r\n")) + "5\r\nhello\r\n0\r\n\r\n", &[200]),
        (of(&get, &format!("Host: {host}\r\nContent-Length: -5\r\n")), &[400]),
        (of(&get, &format!("Host: {host}\r\nContent-Length: 5\r\nContent-Length: 6\r\n")), &[400]),
        (of(&get, &format!("Host: {host}\r\nX-Long: {long}\r\n")), &[431]),
        (of(&get, &format!("Host: {host}\r\n{}", "A: b\r\n".repeat(200))), &[431]),
        (of(&get, &format!("Host: {host}\r\nA b: c\r\n")), &[400]),
        (of(&get, &format!("Host: {host}\r\nA: \u{0}\r\n")), &[400]),
        (of(&format!("GET /{long} HTTP/1.1"), &format!("Host: {host}\r\n")), &[0, 400, 414, 431]),
        (of("GET  HTTP/1.1", ""), &[400]),
        (of(&format!("GET {path} HTTP/3.0"), ""), &[400]),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), &[0, 400]),
        ("\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\u{0}\u{1}\r\n\r\n".to_owned(), &[400]),
    ];
    for (text, expected) in odd {
        let answered = request(up.address, &text).await;
        let what: String = text.chars().take(120).collect();
        checked(&what, &answered);
        assert!(expected.contains(&answered.status), "{what:?}: {answered:?}");
    }
    serves(&up).await;
    up.down().await;
}

#[tokio::test]
async fn upgrades_that_are_not_right_upgrade_nothing() {
    let place = Place::new();
    let up = up(&place).await;
    let host = up.address;
    let right = [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let wrong = [("Connection", "close"), ("Upgrade", "h2c"), ("Sec-WebSocket-Version", "8"), ("Upgrade", "")];
    let mut heads = Vec::new();
    for (n, _) in right.iter().enumerate() {
        heads.push(right.iter().enumerate().filter(|(at, _)| *at != n).map(|(_, header)| *header).collect::<Vec<_>>());
    }
    for (name, value) in wrong {
        heads.push(right.iter().map(|header| if header.0 == name { (name, value) } else { *header }).collect());
    }
    for head in heads {
        let head: String = head.iter().flat_map(|(name, value)| [*name, ": ", *value, "\r\n"]).collect();
        let mut text = format!("GET /agents/chat-agent/nobody HTTP/1.1\r\nHost: {host}\r\n{head}");
        if !head.contains("Connection") {
            text += "Connection: close\r\n";
        }
        let mut socket = TcpStream::connect(up.address).await.unwrap();
        socket.write_all(format!("{text}\r\n").as_bytes()).await.unwrap();
        let mut received = vec![0; 4096];
        let read = tokio::io::AsyncReadExt::read(&mut socket, &mut received).await.unwrap();
        let received = String::from_utf8_lossy(&received[..read]).into_owned();
        leaks_nothing(0, &received);
        assert!(received.starts_with("HTTP/1.1 426") || received.starts_with("HTTP/1.1 400"), "{head}: {received}");
    }
    assert!(!up.agent("nobody").is_awake());
    serves(&up).await;
    up.down().await;
}

#[tokio::test]
async fn sockets_that_stand_open_or_half_open_keep_nobody_out() {
    let place = Place::new();
    let up = place.up_with(|server| server.max_connections_per_agent(1).max_connections(50)).await;
    let mut open = Vec::new();
    for n in 0..300 {
        let mut socket = TcpStream::connect(up.address).await.unwrap();
        let said = [
            "",
            "G",
            "GET /agents/chat-agent/ada HTTP/1.1\r\nHost: a",
            "GET /agents/chat-agent/ada/get-messages HTTP/1.1\r\nContent-Length: 9\r\n\r\n",
        ];
        socket.write_all(said[n % said.len()].as_bytes()).await.unwrap();
        open.push(socket);
    }
    serves(&up).await;
    // They come, are upgraded, and go, in whatever order.
    for _ in 0..3 {
        let flood: Vec<_> = (0..40)
            .map(|n| {
                let address = up.address;
                tokio::spawn(async move {
                    crate::support::raw::Raw::try_upgraded(address, &format!("/agents/chat-agent/f{}", n % 10)).await.is_ok()
                })
            })
            .collect();
        for one in flood {
            one.await.unwrap();
        }
    }
    until("all places are free", async || {
        let mut free = true;
        for n in 0..10 {
            free &= up.has_room(&format!("f{n}")).await;
        }
        free
    })
    .await;
    drop(open);
    up.down().await;
    panics::none("at the end");
}
