//! Fibers that are killed while they wait for time, messages, each other, or steps side by side.
use std::collections::BTreeSet;
use std::time::Duration;

use forever::fiber::FiberState;
use forever::prelude::*;
use forever_testkit::prng::Prng;
use forever_testkit::process::say;
use forever_testkit::waiting::eventually;

use super::process::{Desk, Place, Role, Worker};

const HOUR: Duration = Duration::from_secs(60 * 60);

#[fiber]
pub(super) async fn sleeper(desk: Res<Desk>, hours: u32) -> anyhow::Result<u32> {
    step!("begin", desk.work(&format!("{hours} begins"), ()).await?);
    sleep!(HOUR * hours);
    Ok(step!("wake", desk.work(&format!("{hours} wakes"), hours).await?))
}

#[fiber]
pub(super) async fn inbox(desk: Res<Desk>) -> anyhow::Result<Vec<u32>> {
    let mut numbers = Vec::new();
    loop {
        let number: u32 = recv!("number");
        if number == 0 {
            return Ok(numbers);
        }
        numbers.push(step!("note", desk.work(&format!("got {number}"), number).await?));
    }
}

#[fiber]
pub(super) async fn boss() -> anyhow::Result<Vec<u32>> {
    let handle = spawn!(inbox());
    Ok(wait!(handle)?)
}

/// A worker: starts fibers that wait, and sends to one of them when all do.
pub(super) async fn wait(with: Role) {
    let forever = with.builder.open().await.unwrap();
    forever.spawn(sleeper(1)).id("short").await.unwrap();
    forever.spawn(sleeper(100)).id("long").await.unwrap();
    forever.spawn(inbox()).id("inbox").await.unwrap();
    forever.spawn(boss()).id("boss").await.unwrap();
    // Two sleepers, two inboxes, and the one that waits for one of them.
    let waiting = async || forever.fibers().state(FiberState::Waiting).await.unwrap().fibers.len();
    eventually("the waits of all", async || waiting().await >= 5).await;
    forever.send("inbox", "number", &7).await.unwrap();
    say("sent");
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn fibers_killed_while_they_wait_go_on_and_those_that_fell_due_meanwhile_do_at_open() {
    let place = Place::new();
    for _ in 0..3 {
        let mut worker = Worker::start("wait", &place);
        worker.said("sent");
        worker.kill();
    }
    let forever = place.open_later(2).await;
    assert_eq!(forever.fiber::<sleeper>("short").wait().await.unwrap(), 1);
    assert_eq!(forever.fiber::<sleeper>("long").status().await.unwrap().state, FiberState::Waiting);
    forever.send("inbox", "number", &0).await.unwrap();
    assert_eq!(forever.fiber::<inbox>("inbox").wait().await.unwrap(), [7, 7, 7], "each that was sent, once");
    let all = forever.fibers().await.unwrap().fibers;
    let child = all.iter().find(|fiber| fiber.parent.as_deref() == Some("boss")).unwrap();
    assert_eq!((child.deaths, all.len()), (0, 5), "to die while it waits is no death of a fiber");
    for number in [5, 0] {
        forever.send(&child.id, "number", &number).await.unwrap();
    }
    assert_eq!(forever.fiber::<boss>("boss").wait().await.unwrap(), [5]);
    let journal = place.journal();
    for once in ["1 begins", "100 begins", "1 wakes", "got 5"] {
        assert_eq!(journal.iter().filter(|line| *line == once).count(), 1, "{once}: {journal:?}");
    }
    assert!(!journal.contains(&"100 wakes".to_owned()));
}

const NUMBERS: u32 = 120;

/// A worker: sends what earlier ones have not begun to send.
pub(super) async fn send(with: Role) {
    let journal = with.journal().text();
    let begun = journal.lines().filter_map(|line| line.split_once(" sending ")?.1.parse().ok()).max().unwrap_or(0);
    let forever = with.builder.open().await.unwrap();
    let handle = forever.spawn(inbox()).id("inbox").await.unwrap();
    for number in begun + 1..=NUMBERS {
        with.desk.write(&format!("sending {number}"));
        forever.send("inbox", "number", &number).await.unwrap();
        with.desk.write(&format!("sent {number}"));
    }
    forever.send("inbox", "number", &0).await.unwrap();
    handle.wait().await.unwrap();
    forever.close().await.unwrap();
}

fn after<'a>(journal: &'a [String], word: &'a str) -> impl Iterator<Item = u32> + 'a {
    journal.iter().filter_map(move |line| line.strip_prefix(word)?.parse().ok())
}

#[tokio::test]
async fn a_message_sent_before_a_kill_is_received_exactly_once_and_in_order() {
    let (place, mut prng) = (Place::new(), Prng::of_purpose(1, "messages"));
    for kill in 1..=12 {
        let mut worker = Worker::start("send", &place);
        let longer = Duration::from_micros(prng.below(3000_u64));
        // Every other kill is while they are sent, and the others while they are received.
        let word = if kill % 2 == 0 { "got " } else { "sent " };
        worker.until(&place, |journal| after(journal, word).count() >= 4 * kill, longer);
        worker.kill();
    }
    assert!(Worker::last("send", &place).end().success());
    let journal = place.journal();
    let received = place.open().await.fiber::<inbox>("inbox").wait().await.unwrap();
    assert!(received.windows(2).all(|pair| pair[0] < pair[1]), "{received:?}");
    let received: BTreeSet<u32> = received.into_iter().collect();
    let sent: BTreeSet<u32> = after(&journal, "sent ").collect();
    assert!(received.is_superset(&sent), "lost: {:?}", sent.difference(&received));
    // What a kill has hit while it was sent may have been stored or not.
    assert!(received.iter().all(|number| after(&journal, "sending ").any(|begun| begun == *number)));
}

const BRANCHES: u32 = 600;

/// The items of the branches whose results are stored: `17` of `squares[17]`.
const RESULTS: &str = "SELECT branch, rtrim(substr(branch, 9), ']') FROM branch_results";

#[fiber]
pub(super) async fn side(desk: Res<Desk>) -> anyhow::Result<Vec<u32>> {
    let squares = steps!(for n in 0..BRANCHES, limit = 4, desk.work(&format!("branch {n}"), n * n).await?);
    Ok(squares)
}

/// A worker: runs steps side by side.
pub(super) async fn run_side(with: Role) {
    let forever = with.builder.open().await.unwrap();
    forever.spawn(side()).key("side").await.unwrap().wait().await.unwrap();
    forever.close().await.unwrap();
}

#[tokio::test]
async fn steps_side_by_side_killed_between_arrivals_repeat_none_that_has_arrived() {
    let (place, mut prng) = (Place::new(), Prng::of_purpose(1, "side"));
    let mut arrived = BTreeSet::new();
    // More often than a fiber without progress is recovered: each result is progress.
    for kill in 1..=14 {
        let before = place.journal().len();
        let mut worker = Worker::start("side", &place);
        let longer = Duration::from_micros(prng.below(4000_u64));
        // The first four may be those that the last kill has hit; when the fifth begins, one has arrived.
        worker.until(&place, |journal| journal.len() >= before + 5, longer);
        worker.kill();
        for branch in after(&place.journal()[before..], "branch ") {
            assert!(!arrived.contains(&branch), "kill {kill}: branch {branch} ran again");
        }
        arrived = place.stored().rows(RESULTS).into_iter().map(|(_, item)| item).collect();
        assert!(!arrived.is_empty());
    }
    let before = place.journal().len();
    assert!(Worker::last("side", &place).end().success());
    assert!(after(&place.journal()[before..], "branch ").all(|branch| !arrived.contains(&branch)));
    let result = place.open().await.fiber_by_key::<side>("side").await.unwrap().wait().await.unwrap();
    assert_eq!(result, (0..BRANCHES).map(|n| n * n).collect::<Vec<_>>());
}
