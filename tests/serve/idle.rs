//! Connections that are open and idle: what each costs the server.
use forever_testkit::process::{Process, say, this_test};
use futures_util::stream::{self, StreamExt};
use serde_json::json;

use crate::support::client::{Client, NONE};
use crate::support::place::Place;

/// How many bytes a connection that is idle may take, with the agent that is awake for it.
const EACH: usize = 20_000;

/// How many connections are there before it is measured: what all have in common is there with the first.
const BEFORE: usize = 50;

/// A server in a process of its own, where no client takes memory.
struct Served {
    process: Process,
    address: std::net::SocketAddr,
}

impl Served {
    fn start() -> Self {
        let mut process = Process::start(&mut this_test("idle::serves").unwrap()).unwrap();
        let address = process.said().unwrap().unwrap().parse().unwrap();
        Served { process, address }
    }

    /// The memory of its process now, in bytes.
    fn memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() * 1024
    }

    /// A client that has opened a chat of its own, and asked whether something is under way there.
    async fn client(&self, chat: usize) -> Client {
        let mut client = Client::connect(self.address, &format!("chat-{chat}")).await;
        client.send(json!({ "type": "cf_agent_stream_resume_request", "probeId": "p" })).await;
        client.of_type(NONE).await;
        client
    }

    async fn clients(&self, chats: std::ops::Range<usize>) -> Vec<Client> {
        stream::iter(chats).map(|chat| self.client(chat)).buffer_unordered(20).collect().await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the process of `Served`"]
async fn serves() {
    let place = Place::new();
    let up = place.up_with(|server| server.max_new_agents(1_000_000, 1_000_000)).await;
    say(up.address);
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    ended.await.unwrap().unwrap();
    up.down().await;
}

async fn measured(connections: usize) {
    let served = Served::start();
    let mut clients = served.clients(0..BEFORE).await;
    let before = served.memory();
    clients.extend(served.clients(BEFORE..BEFORE + connections).await);
    let after = served.memory();
    let each = after.saturating_sub(before) / connections;
    println!(
        "idle_connections={connections}\nidle_memory_before_bytes={before}\nidle_memory_after_bytes={after}\nidle_connection_bytes={each}"
    );
    assert!(each < EACH, "{connections} connections: {before} bytes before, {after} after, {each} each");
    drop(clients);
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn a_connection_that_is_idle_takes_little_memory() {
    // Enough of them that what the allocator of the process keeps for itself makes little of the figure.
    measured(600).await;
}

#[tokio::test]
#[ignore = "2 000 connections"]
async fn measured_for_many() {
    measured(2_000).await;
}
