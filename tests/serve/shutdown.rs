//! The end of a server and the next one: who is told, what is left, and what those have who come again.
use std::time::Duration;

use forever::prelude::*;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::support::client::{Client, RESUMING, heard};
use crate::support::events::Events;
use crate::support::place::{Place, Up};
use crate::support::raw::Raw;
use crate::support::{soon, until};

fn script(gate: &str) -> Value {
    json!({ "script": [{ "say": "w0 " }, { "say": "w1 " }, { "wait": gate }, { "say": "w2 " }, { "say": "w3 " }] })
}

/// Clients of three agents in the middle of an answer: who has asked, and who looks on.
async fn in_the_middle(up: &Up) -> Vec<(String, Client)> {
    let mut clients = Vec::new();
    for name in ["ada", "bob", "cyd"] {
        let (mut asks, mut sees) = (up.settled(name).await, up.settled(name).await);
        asks.ask("r1", script("half")).await;
        for client in [&mut asks, &mut sees] {
            client.until(|frame| frame["body"].as_str().is_some_and(|body| body.contains("w1 "))).await;
        }
        clients.extend([(name.to_owned(), asks), (name.to_owned(), sees)]);
    }
    clients
}

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

#[tokio::test]
async fn clients_are_told_to_come_again_and_have_the_whole_answer_in_the_next_process() {
    let place = Place::new();
    let before = tasks();
    let up = place.up_with(|server| server.max_connections_per_agent(3)).await;
    let address = up.address;
    let clients = in_the_middle(&up).await;
    up.down().await;
    let mut had = Vec::new();
    for (name, mut client) in clients {
        assert_eq!(client.closed().await, 1012);
        assert!(client.seen.iter().all(|frame| frame["done"] != true), "no end is told of what has not ended");
        had.push((name, client.heard("r1")));
    }
    until("no task is left", async || tasks() == before).await;
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens");
    let up = place.up_at(address, |server| server.max_connections_per_agent(3)).await;
    let mut again = Vec::new();
    for (name, (text, numbers)) in had {
        assert_eq!(text, "w0 w1 ");
        let mut client = up.client(&name).await;
        client.of_type(RESUMING).await;
        // From where it was, as a client does that keeps what it has.
        let from = numbers.len();
        client.send(json!({ "type": "cf_agent_stream_resume_ack", "id": "r1", "from": from })).await;
        client.until(|frame| frame["replayComplete"] == true).await;
        again.push((client, numbers));
    }
    place.gates.open("half");
    for (mut client, mut numbers) in again {
        client.done("r1").await;
        let (text, rest) = client.heard("r1");
        numbers.extend(rest);
        assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>(), "each chunk once");
        assert_eq!(text, "w2 w3 ");
    }
    for name in ["ada", "bob", "cyd"] {
        let messages = up.agent(name).messages().await.unwrap();
        assert_eq!((messages.len(), messages[1].text().as_str()), (2, "w0 w1 w2 w3 "));
    }
    up.down().await;
}

#[tokio::test]
async fn a_client_that_was_told_is_waited_for() {
    let place = Place::new();
    let up = place.up().await;
    let mut client = Raw::upgraded(up.address, "/agents/chat-agent/ada").await;
    client.received_until("cf_agent_identity").await;
    let closing = tokio::spawn(up.forever.close().into_future());
    assert_eq!(client.told_to_go().await, 1012);
    soon("the runtime closes", closing).await.unwrap().unwrap();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!up.serving.is_finished(), "it has not answered yet");
    client.received_all().await;
    soon("`listen` returns", up.serving).await.unwrap().unwrap();
}

#[tokio::test]
async fn event_streams_end_without_an_end_and_requests_are_answered() {
    let place = Place::new();
    let before = tasks();
    // Half a head is waited for as long as heads are.
    let up = place.up_with(|server| server.header_timeout(Duration::from_millis(300))).await;
    let mut asks = up.settled("ada").await;
    asks.ask("r1", script("half")).await;
    place.gates.reached("half").await;
    let mut events = Events::of(up.address, "ada", "r1", None).await;
    events.some(4).await;
    // One that has been answered and may ask again, one that has said half of what it wants, and one that has said nothing.
    let mut idle = Vec::new();
    for said in [
        format!("GET /agents/chat-agent/ada/get-messages HTTP/1.1\r\nHost: {}\r\n\r\n", up.address),
        "GET /agents".to_owned(),
        String::new(),
    ] {
        let mut socket = TcpStream::connect(up.address).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut socket, said.as_bytes()).await.unwrap();
        idle.push(socket);
    }
    idle[0].readable().await.unwrap();
    up.down().await;
    assert_eq!(events.next().await, None);
    assert!(!events.text().contains("event: end"));
    drop(idle);
    until("no task is left", async || tasks() == before).await;
}

#[tokio::test]
async fn what_is_asked_of_a_runtime_that_closes_is_refused_and_not_half_done() {
    let place = Place::new();
    let up = place.up().await;
    let mut client = up.settled("ada").await;
    client.ask("r1", script("half")).await;
    place.gates.reached("half").await;
    let closing = tokio::spawn(up.forever.close().into_future());
    // It is closed whatever it is sent meanwhile.
    for n in 0..50 {
        client.ask(&format!("late-{n}"), json!({})).await;
    }
    assert_eq!(client.closed().await, 1012);
    soon("the runtime closes", closing).await.unwrap().unwrap();
    soon("`listen` returns", up.serving).await.unwrap().unwrap();
    // Those that were accepted are there, and answered; the others were never shown as accepted.
    let up = place.up().await;
    let agent = up.agent("ada");
    place.gates.open("half");
    let turns = agent.turns(&[]).await.unwrap();
    for turn in &turns {
        agent.turn(turn.id()).await.unwrap().unwrap().wait().await.unwrap();
    }
    assert_eq!(agent.messages().await.unwrap().len(), 2 * turns.len());
    assert_eq!(heard(&client.seen, "r1").0, "w0 w1 ");
    up.down().await;
}

/// What a process leaves whose end nobody has announced: its threads and sockets are gone from one moment to the next.
#[test]
fn a_server_that_is_gone_at_once_leaves_answers_that_go_on() {
    let place = Place::new();
    let life = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut had = life.block_on(async {
        let up = place.up().await;
        let mut client = up.settled("ada").await;
        client.ask("r1", script("half")).await;
        client.until(|frame| frame["body"].as_str().is_some_and(|body| body.contains("w1 "))).await;
        place.gates.reached("half").await;
        client.heard("r1").1
    });
    life.shutdown_background();
    let life = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    life.block_on(async {
        let up = place.up().await;
        let mut client = up.client("ada").await;
        client.of_type(RESUMING).await;
        client.send(json!({ "type": "cf_agent_stream_resume_ack", "id": "r1", "from": had.len() })).await;
        client.until(|frame| frame["replayComplete"] == true).await;
        place.gates.open("half");
        client.done("r1").await;
        let (text, numbers) = client.heard("r1");
        had.extend(numbers);
        assert_eq!((text.as_str(), had.clone()), ("w2 w3 ", (0..had.len() as u64).collect()));
        up.down().await;
    });
}
