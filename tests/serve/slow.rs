//! Clients that do not take what they are sent.
use std::time::Duration;

use forever::prelude::*;
use forever::testing::VirtualClock;
use forever_testkit::process::passes_alone;
use serde_json::{Value, json};
use tokio::net::TcpSocket;

use crate::support::client::{Client, RESUMING, asks};
use crate::support::place::{Place, Up};
use crate::support::raw::{Raw, text};
use crate::support::{soon, until};

/// How long a client may take for a frame, by default.
const SEND_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a piece of the long answer is, and how many there are.
const PIECE: usize = 256 << 10;
const PIECES: u64 = 160;

fn long(first: &str) -> Value {
    json!({ "script": [{ "wait": first }, { "many": [PIECES, PIECE] }] })
}

/// A client with a small buffer that has asked, and does not read.
async fn stuck(up: &Up, id: &str) -> Raw {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    let mut raw = Raw::over(socket.connect(up.address).await.unwrap(), "/agents/chat-agent/slow").await.unwrap();
    raw.send(&text(asks(id, "u1", long("start")).to_string())).await;
    raw
}

/// All pieces, each once and in order.
fn is_whole(answer: &str) -> bool {
    answer.split_terminator(' ').filter(|piece| !piece.is_empty()).map(str::to_owned).eq((0..PIECES).map(|piece| piece.to_string()))
}

async fn resumed(up: &Up) {
    let mut client = up.client("slow").await;
    client.send(json!({ "type": "cf_agent_stream_resume_request", "probeId": "p" })).await;
    client.send(json!({ "type": "cf_agent_stream_resume_ack", "id": "r1" })).await;
    client.done("r1").await;
    // One that is over is in the conversation; one that is not is shown from its start.
    let messages = up.get("/agents/chat-agent/slow/get-messages").await;
    let messages: Value = serde_json::from_str(&messages.body).unwrap();
    assert!(is_whole(messages[1]["parts"][0]["text"].as_str().unwrap()));
    let (heard, numbers) = client.heard("r1");
    if !numbers.is_empty() {
        assert!(is_whole(&heard));
    }
}

#[tokio::test]
async fn who_takes_nothing_is_closed_and_asks_for_the_rest_and_nobody_else_waits() {
    let clock = VirtualClock::new();
    let place = Place::by(&clock);
    let up = place.up_with(|server| server.max_connections_per_agent(3)).await;
    let mut raw = stuck(&up, "r1").await;
    place.gates.reached("start").await;
    // Another of the same agent, and one of another, which have all of theirs while the first takes nothing.
    let (mut same, mut other) = (up.client("slow").await, up.settled("other").await);
    same.of_type(RESUMING).await;
    same.acknowledge("r1").await;
    place.gates.open("start");
    other.ask("r1", json!({})).await;
    other.done("r1").await;
    same.done("r1").await;
    assert!(is_whole(&same.heard("r1").0));
    until("its place is given back", async || {
        clock.advance(SEND_TIMEOUT);
        let tried = Client::try_connect(up.address, "/agents/chat-agent/slow", &[]).await;
        tried.is_ok()
    })
    .await;
    raw.received_all().await;
    assert!(matches!(raw.code(), None | Some(1013)));
    assert!(raw.received.len() < PIECE * usize::try_from(PIECES).unwrap() / 2, "it has had {}", raw.received.len());
    drop(same);
    resumed(&up).await;
    up.down().await;
}

#[tokio::test]
async fn who_takes_again_in_time_is_told_that_it_was_too_slow() {
    let clock = VirtualClock::new();
    let place = Place::by(&clock);
    let up = place.up().await;
    let mut raw = stuck(&up, "r1").await;
    place.gates.reached("start").await;
    place.gates.open("start");
    until("a frame waits for the client", async || clock.next_sleeper() == Some(SEND_TIMEOUT)).await;
    clock.advance(SEND_TIMEOUT);
    // The farewell waits behind that frame, for as long again.
    raw.received_all().await;
    assert_eq!(raw.code(), Some(1013));
    up.down().await;
}

/// The memory of this process now, in bytes.
fn memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() * 1024
}

#[test]
#[cfg(target_os = "linux")]
fn what_slow_clients_have_not_taken_is_not_kept_for_them() {
    passes_alone("slow::measured_what_is_kept");
}

#[test]
#[cfg(target_os = "linux")]
fn lengths_that_are_only_claimed_and_questions_that_are_repeated_take_no_memory() {
    passes_alone("slow::measured_what_is_claimed");
}

/// Twenty clients that take nothing of an answer of 40 MiB. If what they have not taken were kept for each, that would be 800 MiB. What may be kept is,
/// for each: the frame that is being sent (a piece), the socket's buffers (which are the kernel's, and not counted here), and what a reader of
/// the log has read ahead (a batch of chunks). The log itself is in the database, whose cache is bounded.
#[tokio::test]
#[ignore = "run in a process of its own by what_slow_clients_have_not_taken_is_not_kept_for_them"]
async fn measured_what_is_kept() {
    let place = Place::new();
    let up = place.up_with(|server| server.send_timeout(Duration::from_secs(600))).await;
    let mut stuck_clients = vec![stuck(&up, "r1").await];
    place.gates.reached("start").await;
    for _ in 1..20 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4 << 10).unwrap();
        let mut raw = Raw::over(socket.connect(up.address).await.unwrap(), "/agents/chat-agent/slow").await.unwrap();
        raw.received_until(RESUMING).await;
        raw.send(&text(json!({ "type": "cf_agent_stream_resume_ack", "id": "r1" }).to_string())).await;
        raw.received_until("replayComplete").await;
        stuck_clients.push(raw);
    }
    let before = memory();
    place.gates.open("start");
    up.agent("slow").turn("r1").await.unwrap().unwrap().wait().await.unwrap();
    let grown = memory().saturating_sub(before);
    println!("kept_mib={}", grown >> 20);
    assert!(grown < 400 << 20, "{} MiB", grown >> 20);
    drop(stuck_clients);
}

#[tokio::test]
#[ignore = "run in a process of its own by lengths_that_are_only_claimed_and_questions_that_are_repeated_take_no_memory"]
async fn measured_what_is_claimed() {
    use crate::support::raw::{FIN, TEXT, frame};
    let place = Place::new();
    let up = place
        .up_with(|server| server.max_connections_per_agent(400).max_rate(1_000_000, 1_000_000).max_agent_rate(1_000_000, 1_000_000))
        .await;
    // One turn that says nothing, asked for again and again.
    let mut client = up.settled("again").await;
    client.ask("r1", json!({ "script": [{ "say": "a " }, { "wait": "never" }] })).await;
    place.gates.reached("never").await;
    for round in 0..2 {
        let before = memory();
        for _ in 0..20 {
            for _ in 0..500 {
                client.acknowledge("r1").await;
            }
            client.settled().await;
            client.seen.clear();
        }
        let again = memory().saturating_sub(before);
        println!("acknowledged_kib={}", again >> 10);
        assert!(round == 0 || again < 8 << 20, "{} KiB for what was asked for before", again >> 10);
    }
    // Questions that are refused, with long ids.
    for round in 0..2 {
        let before = memory();
        for n in 0..100 {
            client.send(asks(&format!("{round} {n} {}", "x".repeat(500_000)), "u", json!({}))).await;
            client.settled().await;
            client.seen.clear();
        }
        let refused = memory().saturating_sub(before);
        println!("refused_kib={}", refused >> 10);
        assert!(round == 0 || refused < 8 << 20, "{} KiB for what was refused", refused >> 10);
    }
    let mut clients = Vec::new();
    let before = memory();
    // Half of a frame that is to have the longest length that is taken.
    for _ in 0..200 {
        let mut raw = Raw::upgraded(up.address, "/agents/chat-agent/claims").await;
        raw.send(&frame(FIN | TEXT, b"{", true, Some(4 << 20))).await;
        clients.push(raw);
    }
    up.settled("other").await.leave().await;
    let claimed = memory().saturating_sub(before);
    println!("claimed_mib={}", claimed >> 20);
    assert!(claimed < 100 << 20, "{} MiB for lengths", claimed >> 20);
    drop(clients);
    soon("it is closed", up.down()).await;
}
