//! Chats that were opened and left leave nothing behind: no entry, and no memory to speak of.
use std::time::Duration;

use forever::chat::message::UiMessage;
use forever::prelude::*;
use forever::testing::entries_in_memory;
use forever_testkit::process::passes_alone;

use crate::support::place::{Place, Up};
use crate::support::until;

/// The memory of this process now, in bytes.
fn memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() * 1024
}

/// Opens so many chats and leaves them again: most as the server does for a connection, some over
/// one.
async fn open_and_leave(up: &Up, from: usize, chats: usize) {
    for n in from..from + chats {
        let agent = up.agent(&format!("chat-{n}"));
        if n % 100 == 0 {
            let client = up.settled(agent.name()).await;
            client.leave().await;
            continue;
        }
        let events = agent.chat_events().unwrap();
        let connection = agent.connect().await.unwrap();
        assert!(agent.messages().await.unwrap().is_empty());
        drop((events, connection));
        if n % 1_000 == 1 {
            let turn = agent.save_messages([UiMessage::user("u", "hi")]).await.unwrap();
            turn.wait().await.unwrap();
            agent.clear().await.unwrap();
        }
    }
    until("all are forgotten", async || entries_in_memory(&up.forever) == 0).await;
}

async fn measured(chats: usize) {
    let place = Place::in_memory();
    let forever = place.builder().idle_timeout(Duration::from_millis(50)).max_agents_in_memory(500).open().await.unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = forever::serve::Server::new(&forever).max_new_agents(1_000_000, 1_000_000);
    let up = Up { serving: tokio::spawn(server.listen(listener)), forever, address };
    // What the allocator and the store keep in any case.
    open_and_leave(&up, 0, 2_000).await;
    let before = memory();
    open_and_leave(&up, 2_000, chats).await;
    let after = memory();
    println!("{chats} chats: {before} bytes before, {after} after");
    assert!(after < before + (20 << 20), "{chats} chats: {before} bytes before, {after} after");
    up.down().await;
}

#[tokio::test]
#[ignore = "run in a process of its own by chats_that_were_left_take_no_memory"]
async fn measured_for_some() {
    measured(20_000).await;
}

#[tokio::test]
#[ignore = "takes minutes"]
async fn measured_for_many() {
    measured(100_000).await;
}

#[test]
#[cfg(target_os = "linux")]
fn chats_that_were_left_take_no_memory() {
    passes_alone("memory::measured_for_some");
}

#[tokio::test]
async fn agents_that_nothing_needs_leave_first_when_memory_is_full() {
    let place = Place::in_memory();
    let forever = place.builder().idle_timeout(Duration::from_secs(3600)).max_agents_in_memory(3).open().await.unwrap();
    let agent = |n: usize| forever.agent::<crate::support::scripted::Scripted>(format!("a{n}"));
    let at_work = agent(0).connect().await.unwrap();
    for n in 1..=2 {
        agent(n).wake().await.unwrap();
    }
    // The one that was used last is the one that stays.
    agent(1).wake().await.unwrap();
    agent(3).wake().await.unwrap();
    assert_eq!(entries_in_memory(&forever), 3);
    assert!(agent(0).is_awake() && agent(1).is_awake() && agent(3).is_awake());
    assert!(!agent(2).is_awake());
    let mut held = Vec::new();
    for n in 4..=7 {
        held.push(agent(n).connect().await.unwrap());
    }
    // None that has work leaves, however many they are.
    assert_eq!(entries_in_memory(&forever), 5);
    drop(held);
    assert_eq!(entries_in_memory(&forever), 3);
    assert!(agent(0).is_awake());
    drop(at_work);
    forever.close().await.unwrap();
}
