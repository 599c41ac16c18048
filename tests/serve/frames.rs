//! Frames that nobody should send: generated from a seed, one connection after another, while others are served.
//!
//! What the generator makes stands in `generated`. Whatever it is, after each connection: one more client of the same agent and one of
//! another have an answer to its end; nothing of the other agent, and nothing of the inside, was in any byte that the hostile client was
//! sent; and its place is free again.
mod generated;

use std::time::Duration;

use forever::prelude::*;
use forever_testkit::prng::{Prng, from_environment};
use forever_testkit::sizes::size;
use serde_json::json;

use crate::support::client::{Client, asks};
use crate::support::place::{Place, Up};
use crate::support::raw::{CLOSE, FIN, Raw, frame, text};
use crate::support::scripted::Shared;
use crate::support::{panics, until};

/// Stands in everything that the other agent has: its questions, its answers, its state.
pub(crate) const MARK: &str = "zebra-4711";

/// Its turns, one that has ended and one under way, and its open call. The hostile client knows them.
const OTHERS: [&str; 3] = ["other-done", "other-runs", "other-call"];

/// What is nowhere in what clients are told: paths, statements, types and errors of the inside.
const INSIDE: [&str; 24] = [
    "/tmp/",
    ".rs:",
    "src/",
    "SELECT ",
    "INSERT ",
    "UPDATE ",
    "sqlite",
    "SQLite",
    "rusqlite",
    "panicked",
    "unwrap",
    "forever_runtime",
    "serde",
    "axum",
    "tungstenite",
    "hyper",
    " at line ",
    "invalid type",
    "missing field",
    "unknown variant",
    "expected ",
    "recursion limit",
    "constraint",
    "chat.db",
];

pub(crate) fn leaks_nothing(seed: u64, received: &str) {
    assert!(!received.contains(MARK), "seed {seed}: something of another agent: {received}");
    for inside in INSIDE {
        assert!(!received.contains(inside), "seed {seed}: {inside}: {received}");
    }
}

/// The other agent, with an answer that it has given and one that it is giving.
async fn marked(up: &Up) -> Client {
    let mut other = up.settled("other").await;
    let script = json!({ "script": [{ "say": MARK }, { "tool": OTHERS[2] }] });
    other.send(asks(OTHERS[0], &format!("u1-{MARK}"), script)).await;
    other.done(OTHERS[0]).await;
    let script = json!({ "script": [{ "say": MARK }, { "wait": "other" }, { "say": MARK }] });
    other.send(asks(OTHERS[1], &format!("u2-{MARK}"), script)).await;
    up.agent("other").set_state(&Shared { count: 1, note: MARK.to_owned() }).await.unwrap();
    other
}

/// One hostile connection.
async fn one(up: &Up, agent: &str, seed: u64) {
    let mut prng = Prng::new(seed);
    let path = format!("/agents/chat-agent/{agent}");
    let mut hostile = None;
    until("the place of the one before is free", async || {
        hostile = Raw::try_upgraded(up.address, &path).await.ok();
        hostile.is_some()
    })
    .await;
    let mut hostile = hostile.unwrap();
    for _ in 0..=prng.below(12) {
        hostile.send(&generated::bytes(&mut prng)).await;
    }
    match prng.below(4) {
        // It goes without a word, with an answer unread or a frame half sent.
        0 => {}
        1 => {
            hostile.send(&text(r#"{"type":"cf_agent_cha"#)[..9]).await;
            hostile.end().await;
        }
        _ => {
            hostile.send(&frame(FIN | CLOSE, &[], true, None)).await;
            hostile.end().await;
        }
    }
    leaks_nothing(seed, &hostile.text());
    // What the client has done wrong, or nothing; but never that something inside has failed.
    assert!(
        matches!(hostile.code(), None | Some(1000 | 1002 | 1005 | 1007 | 1009)),
        "seed {seed}: closed with {:?}: {}",
        hostile.code(),
        hostile.text()
    );
    drop(hostile);
    panics::none(&format!("seed {seed}"));
}

/// Whoever comes after it to the same agent has an answer to its end, and so has whoever was there.
async fn still_served(up: &Up, agent: &str, steady: &mut Client, seed: u64) {
    let mut next = up.let_in(agent).await;
    for (n, client) in [steady, &mut next].into_iter().enumerate() {
        client.seen.clear();
        let id = format!("steady-{seed}-{n}");
        // What the hostile client has put into the conversation may make the answer different, but not keep it from its end.
        client.send(json!({ "type": "cf_agent_chat_clear" })).await;
        client.send(asks(&id, &format!("u-{id}"), json!({ "script": [{ "say": "well " }, { "say": "served" }] }))).await;
        client.done(&id).await;
        assert_eq!(client.heard(&id).0, "well served", "seed {seed}");
    }
    next.leave().await;
}

#[tokio::test]
async fn no_frame_harms_another_client_or_tells_of_another_agent() {
    let (first, cases) = (from_environment("FOREVER_FRAMES_SEED", 1), size("FOREVER_FRAMES_CASES", 100, 500));
    let place = Place::in_memory();
    // Two places for this address: as many as there are clients at the same time, the hostile one among them.
    let up = place
        .up_with(|server| {
            server
                .max_connections_per_agent(3)
                .max_frame(64 << 10)
                .max_rate(100_000, 100_000)
                .max_agent_rate(100_000, 100_000)
                .send_timeout(Duration::from_secs(5))
        })
        .await;
    let mut other = marked(&up).await;
    let (mut agent, mut steady) = (String::new(), None);
    for seed in first..first + cases {
        // From time to time a new agent, so that none comes to have a past that is long.
        if seed % 200 == 0 || steady.is_none() {
            agent = format!("hostile-{seed}");
            steady = Some(up.settled(&agent).await);
        }
        let steady = steady.as_mut().unwrap();
        let all = async {
            one(&up, &agent, seed).await;
            // While it is served to others: they are those that are asked next.
            other.settled().await;
            still_served(&up, &agent, steady, seed).await;
        };
        tokio::time::timeout(Duration::from_secs(60), all).await.unwrap_or_else(|_| panic!("seed {seed} does not come to its end"));
    }
    // The other agent is as it was.
    place.gates.open("other");
    other.done(OTHERS[1]).await;
    assert_eq!(other.heard(OTHERS[1]).0, MARK.repeat(2));
    assert_eq!(up.agent("other").messages().await.unwrap().len(), 4);
    assert_eq!(up.agent("other").state().await.unwrap(), Shared { count: 1, note: MARK.to_owned() });
    let call = up.agent("other").messages().await.unwrap()[1]
        .parts
        .iter()
        .find_map(|part| part.get("state").cloned().filter(|state| state != "done"));
    assert_eq!(call, Some(json!("input-available")), "nobody has answered its call");
    drop(steady);
    other.leave().await;
    up.down().await;
    panics::none("at the end");
}
