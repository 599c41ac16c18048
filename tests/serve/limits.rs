//! How much is taken from clients, what they are told who want more, and that what is taken is given back.
use std::time::Duration;

use forever::prelude::*;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::client::{Client, types};
use crate::support::events::Events;
use crate::support::place::{Place, Up};
use crate::support::raw::{FIN, PING, Raw, TEXT, frame, text};
use crate::support::{soon, until};

async fn refused(up: &Up, agent: &str) -> (u16, String) {
    Client::try_connect(up.address, &format!("/agents/chat-agent/{agent}"), &[]).await.err().unwrap()
}

// All clients of these tests have one address, which gets no more places than it leaves free: two of three.

#[tokio::test]
async fn an_agent_has_so_many_connections_and_no_more() {
    let place = Place::new();
    let up = place.up_with(|server| server.max_connections_per_agent(3)).await;
    let (one, two) = (up.settled("ada").await, up.settled("ada").await);
    let (status, said) = refused(&up, "ada").await;
    assert_eq!((status, said.as_str()), (429, r#"{"error":"this agent has too many connections"}"#));
    // Requests need no place, and others have their own.
    assert_eq!(up.get("/agents/chat-agent/ada/get-messages").await.status, 200);
    up.settled("bob").await.leave().await;
    one.leave().await;
    let three = up.let_in("ada").await;
    assert_eq!(refused(&up, "ada").await.0, 429);
    // One that goes without a word gives its place back too.
    drop(two);
    let _four = up.let_in("ada").await;
    assert_eq!(refused(&up, "ada").await.0, 429);
    drop(three);
    up.down().await;
}

#[tokio::test]
async fn there_are_so_many_connections_in_all_event_streams_among_them() {
    let place = Place::new();
    let up = place.up_with(|server| server.max_connections(3)).await;
    let mut one = up.settled("ada").await;
    one.ask("r1", json!({ "script": [{ "say": "a " }, { "wait": "half" }] })).await;
    place.gates.reached("half").await;
    let mut events = Events::of(up.address, "ada", "r1", None).await;
    events.some(3).await;
    let (status, said) = refused(&up, "bob").await;
    assert_eq!((status, said.as_str()), (503, r#"{"error":"the server has too many connections"}"#));
    assert_eq!(Events::of(up.address, "ada", "r1", None).await.status, 503);
    assert_eq!(up.get("/agents/chat-agent/ada/get-messages").await.status, 200);
    drop(events);
    let bob = up.let_in("bob").await;
    assert_eq!(refused(&up, "cyd").await.0, 503);
    bob.leave().await;
    one.leave().await;
    let _both = (up.let_in("cyd").await, up.let_in("dan").await);
    up.down().await;
}

#[tokio::test]
async fn what_is_refused_takes_no_place() {
    let place = Place::new();
    let up = place.up_with(|server| server.max_connections_per_agent(1).max_connections(1)).await;
    for _ in 0..5 {
        assert_eq!(up.get("/agents/chat-agent/ada").await.status, 426);
        assert_eq!(up.get("/agents/chat-agent/ada/stream/none").await.status, 404);
        assert_eq!(up.get("/agents/nobody/ada").await.status, 400);
        // Gone before the upgrade was answered, and after it, without having been a connection.
        let mut socket = TcpStream::connect(up.address).await.unwrap();
        socket.write_all(crate::support::raw::upgrade(up.address, "/agents/chat-agent/ada").as_bytes()).await.unwrap();
        drop(socket);
        until("there is a place", async || up.has_room("ada").await).await;
    }
    up.down().await;
}

#[tokio::test]
async fn a_frame_that_is_too_long_ends_its_connection_and_no_other() {
    let place = Place::new();
    let up = place.up_with(|server| server.max_frame(1_000)).await;
    let mut steady = up.settled("ada").await;
    let longest = |bytes: usize| format!("{:<bytes$}", json!({ "type": "rpc", "id": "c", "method": "m" }).to_string());
    let mut client = up.settled("ada").await;
    client.put(longest(1_000).into()).await;
    client.until(|frame| frame["id"] == "c").await;
    client.put(longest(1_001).into()).await;
    assert_eq!(client.closed().await, 1009);
    assert!(client.seen.iter().filter(|frame| frame["id"] == "c").count() == 1, "it was not carried out");
    // In pieces it is as long.
    let mut raw = Raw::upgraded(up.address, "/agents/chat-agent/ada").await;
    for n in 0..11 {
        raw.send(&frame(if n == 0 { TEXT } else { 0 }, &[b' '; 100], true, None)).await;
    }
    raw.send(&frame(FIN, b"{}", true, None)).await;
    raw.received_all().await;
    assert_eq!(raw.code(), Some(1009));
    // One that only says how long it will be is not waited for.
    for claims in [1 << 20, 1 << 40, u64::MAX >> 1, u64::MAX] {
        let mut raw = Raw::upgraded(up.address, "/agents/chat-agent/ada").await;
        raw.send(&frame(FIN | TEXT, b"{", true, Some(claims))).await;
        raw.received_all().await;
    }
    steady.ask("r1", json!({})).await;
    steady.done("r1").await;
    up.down().await;
}

#[tokio::test]
async fn who_sends_more_than_so_many_frames_is_closed_for_good() {
    let place = Place::new();
    // None come back, however long the test takes.
    let up = place.up_with(|server| server.max_rate(0, 5)).await;
    let mut steady = up.client("ada").await;
    for kind in ["calls", "pings", "noise"] {
        let mut raw = Raw::upgraded(up.address, "/agents/chat-agent/ada").await;
        for n in 0..6 {
            let call = json!({ "type": "rpc", "id": format!("call{n}"), "method": "m" }).to_string();
            let one = match kind {
                "calls" => text(call),
                "pings" => frame(FIN | PING, b"", true, None),
                _ => text("?"),
            };
            raw.send(&one).await;
        }
        raw.received_all().await;
        assert_eq!(raw.code(), Some(1008), "{kind}");
        assert!(!raw.text().contains("call5"), "the one too many was not carried out");
        if kind == "calls" {
            assert!((0..5).all(|n| raw.text().contains(&format!("call{n}"))), "{}", raw.text());
        }
    }
    steady.ask("r1", json!({})).await;
    steady.done("r1").await;
    up.down().await;
}

#[tokio::test]
async fn frames_may_be_sent_again_after_a_while() {
    let place = Place::new();
    // One of the first two answers the server's first ping.
    let up = place.up_with(|server| server.max_rate(100, 2)).await;
    let mut client = up.client("ada").await;
    for _ in 0..10 {
        // What was answered was counted before, so that at least this much time has passed.
        client.settled().await;
        tokio::time::sleep(Duration::from_millis(15)).await;
    }
    up.down().await;
}

#[tokio::test]
async fn an_agent_is_asked_so_much_in_all_and_others_as_before() {
    let place = Place::new();
    let up = place.up_with(|server| server.max_agent_rate(0, 12)).await;
    // A connection each, a frame each, a request, and an event stream of nothing. They do not answer pings, which would count too.
    let mut clients = Vec::new();
    for _ in 0..2 {
        let mut client = Raw::upgraded(up.address, "/agents/chat-agent/ada").await;
        client.send(&text(r#"{"type":"rpc","id":"c","method":"m"}"#)).await;
        client.received_until("does not exist").await;
        clients.push(client);
    }
    assert_eq!(up.get("/agents/chat-agent/ada/get-messages").await.status, 200);
    assert_eq!(up.get("/agents/chat-agent/ada/stream/none").await.status, 404);
    let (status, said) = refused(&up, "ada").await;
    assert_eq!((status, said.as_str()), (429, r#"{"error":"this agent has too many requests"}"#));
    assert_eq!(up.get("/agents/chat-agent/ada/get-messages").await.status, 429);
    assert_eq!(up.get("/agents/chat-agent/ada/stream/none").await.status, 429);
    for client in &mut clients {
        client.send(&text(r#"{"type":"cf_agent_chat_clear"}"#)).await;
        client.received_all().await;
        assert_eq!(client.code(), Some(1013));
    }
    let mut other = up.client("bob").await;
    other.ask("r1", json!({})).await;
    other.done("r1").await;
    up.down().await;
}

#[tokio::test]
async fn an_agent_may_be_asked_again_after_a_while() {
    let place = Place::new();
    // One is the connection, one answers the server's first ping.
    let up = place.up_with(|server| server.max_agent_rate(200, 6)).await;
    let mut client = up.client("ada").await;
    client.next().await.unwrap();
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(15)).await;
        client.settled().await;
        tokio::time::sleep(Duration::from_millis(15)).await;
        assert_eq!(up.get("/agents/chat-agent/ada/get-messages").await.status, 200);
    }
    up.down().await;
}

#[tokio::test]
async fn a_client_waits_for_so_many_calls_and_no_more() {
    let place = Place::new();
    let gates = place.gates.clone();
    let up = place
        .up_with(move |server| {
            server.max_rate(1_000, 1_000).callable("slow", move |_: forever::agent::AgentHandle<crate::support::scripted::Scripted>, _| {
                let gates = gates.clone();
                async move {
                    gates.pass("go").await;
                    Ok(json!(1))
                }
            })
        })
        .await;
    let mut client = up.settled("ada").await;
    for n in 0..65 {
        client.send(json!({ "type": "rpc", "id": format!("c{n}"), "method": "slow" })).await;
    }
    let one = client.next().await.unwrap();
    assert_eq!(one, json!({ "type": "rpc", "id": "c64", "success": false, "error": "too many calls at once" }));
    place.gates.open("go");
    for _ in 0..64 {
        assert_eq!(client.next().await.unwrap()["success"], true);
    }
    client.send(json!({ "type": "rpc", "id": "again", "method": "slow" })).await;
    assert_eq!(client.next().await.unwrap()["success"], true);
    up.down().await;
}

#[tokio::test]
async fn who_is_silent_for_too_long_is_gone() {
    let place = Place::new();
    let up = place.up_with(|server| server.max_connections_per_agent(3).ping_interval(Duration::from_millis(20))).await;
    // One that answers pings, by taking what it is sent, and one that does nothing.
    let mut there = up.settled("ada").await;
    let mut silent = Raw::upgraded(up.address, "/agents/chat-agent/ada").await;
    silent.received_all().await;
    assert!(silent.received.windows(2).any(|two| two == [FIN | PING, 0]), "it was asked");
    let _next = up.let_in("ada").await;
    there.ask("r1", json!({})).await;
    there.done("r1").await;
    assert_eq!(types(&there.seen[..1]), ["cf_agent_identity"]);
    up.down().await;
}

#[tokio::test]
async fn the_head_of_a_request_has_so_much_time() {
    let place = Place::new();
    let up = place.up_with(|server| server.header_timeout(Duration::from_millis(100))).await;
    let whole = format!("GET /agents/chat-agent/ada/get-messages HTTP/1.1\r\nHost: {}\r\n\r\n", up.address);
    let halves = ["", "GET ", "GET /agents/chat-agent/ada HTTP/1.1\r\nHost: x\r\nA: b", &whole];
    for sent in halves {
        let mut socket = TcpStream::connect(up.address).await.unwrap();
        socket.write_all(sent.as_bytes()).await.unwrap();
        let mut received = Vec::new();
        let read = soon(&format!("the server closes behind {sent:?}"), socket.read_to_end(&mut received)).await;
        let text = String::from_utf8_lossy(&received);
        // A request that was whole is answered, and the next one is not waited for any longer.
        assert_eq!(text.starts_with("HTTP/1.1 200"), sent == whole, "{sent}: {read:?} {text}");
    }
    // A connection is no head.
    let mut client = up.client("ada").await;
    client.ask("r1", json!({ "script": [{ "wait": "long" }] })).await;
    place.gates.reached("long").await;
    tokio::time::sleep(Duration::from_millis(250)).await;
    place.gates.open("long");
    client.done("r1").await;
    up.down().await;
}

#[tokio::test]
async fn conversations_that_nobody_takes_have_places_of_their_own() {
    let place = Place::new();
    let up = place.up_with(|server| server.max_connections_per_agent(3).max_connections(5)).await;
    // More than sockets hold.
    let long = forever::chat::message::UiMessage::user("m", "x".repeat(16 << 20));
    for agent in ["ada", "bob"] {
        up.agent(agent).set_messages([long.clone()]).await.unwrap();
    }
    let get =
        |agent: &str| format!("GET /agents/chat-agent/{agent}/get-messages HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", up.address);
    let begun = async |agent: &str| {
        let mut socket = TcpStream::connect(up.address).await.unwrap();
        socket.write_all(get(agent).as_bytes()).await.unwrap();
        let mut head = [0; 12];
        soon("a head", socket.read_exact(&mut head)).await.unwrap();
        (String::from_utf8_lossy(&head[9..]).into_owned(), socket)
    };
    let (one, two) = (begun("ada").await, begun("ada").await);
    assert_eq!((&*one.0, &*two.0), ("200", "200"));
    assert_eq!(begun("ada").await.0, "429");
    let three = begun("bob").await;
    assert_eq!((&*three.0, &*begun("bob").await.0), ("200", "503"));
    // Connections have theirs.
    up.settled("ada").await.leave().await;
    // One that is taken whole gives its place back, and so does one that is left.
    let mut socket = one.1;
    let mut rest = Vec::new();
    soon("the rest", socket.read_to_end(&mut rest)).await.unwrap();
    assert!(rest.len() > 16 << 20 && rest.ends_with(b"]"), "{}", rest.len());
    drop((two, three));
    for agent in ["ada", "ada", "bob"] {
        until("a place is given back", async || begun(agent).await.0 == "200").await;
    }
    up.down().await;
}
