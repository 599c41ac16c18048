//! Senders against ends: many senders beside fibers that receive, close, end, fail, are cancelled and
//! restarted. Each message that was accepted is found again: received, handed over by a close, or
//! unread at the end.
//!
//! `FOREVER_SENDERS` is the number of messages, some thousands by default and a million in the long
//! form.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use forever::fiber::{FiberHandle, FiberState};
use forever::prelude::*;
use forever::{ErrorKind, Retention};
use forever_testkit::database::{self, Database};
use forever_testkit::prng::Prng;
use forever_testkit::waiting::{settled, soon};

/// Where each message was found. A message that is consumed is in the snapshot of its fiber at
/// least, and in here once the code has gone on.
#[derive(Clone, Default)]
struct Ledger {
    fates: Arc<Mutex<BTreeMap<u64, Fate>>>,
    /// Fibers that have failed.
    failed: Arc<Mutex<BTreeSet<u64>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Received,
    HandedOver,
    Unread,
}

impl Ledger {
    fn note(&self, message: u64, fate: Fate) {
        self.fates.lock().unwrap().insert(message, fate);
    }

    fn found(&self, message: u64) -> Option<Fate> {
        self.fates.lock().unwrap().get(&message).copied()
    }

    /// Fails in the first attempt of a fiber.
    async fn try_it(&self, fiber: u64) -> anyhow::Result<()> {
        tokio::task::yield_now().await;
        if self.failed.lock().unwrap().insert(fiber) { Err(anyhow::anyhow!("the first attempt")) } else { Ok(()) }
    }
}

/// Receives so many messages, or until a step says that it is over.
#[fiber]
async fn receives(ledger: Res<Ledger>, number: u64, most: u32, how: String) -> anyhow::Result<u32> {
    let mut received = 0;
    for n in 0..most {
        let message: u64 = if n % 3 == 2 {
            match try_recv!("go") {
                Some(message) => message,
                None => break,
            }
        } else {
            recv!("go")
        };
        ledger.note(message, Fate::Received);
        received += 1;
        step!("work", tokio::task::yield_now().await);
    }
    if how == "fails" {
        step!("try", ledger.try_it(number).await?);
    }
    if how == "closes" {
        let left: Vec<u64> = close!("go");
        for message in &left {
            ledger.note(*message, Fate::HandedOver);
        }
        step!("tidy", tokio::task::yield_now().await);
    }
    Ok(received)
}

/// How messages ended.
#[derive(Default)]
struct Counts {
    accepted: u64,
    refused: u64,
    closed: u64,
    found: BTreeMap<Fate, u64>,
    /// In the snapshot of a cancelled fiber: consumed, and dropped before the code went on.
    in_snapshot: u64,
    restarted: u64,
    vanished: Vec<(String, u64)>,
}

impl Counts {
    fn add(&mut self, round: Counts) {
        let Counts { accepted, refused, closed, found, in_snapshot, restarted, mut vanished } = round;
        self.accepted += accepted;
        self.refused += refused;
        self.closed += closed;
        self.in_snapshot += in_snapshot;
        self.restarted += restarted;
        for (fate, messages) in found {
            *self.found.entry(fate).or_default() += messages;
        }
        self.vanished.append(&mut vanished);
    }
}

/// What the senders of one fiber were answered.
#[derive(Default)]
struct Answers {
    accepted: Vec<u64>,
    refused: u64,
    closed: u64,
}

async fn send_all(forever: Forever, id: String, numbers: std::ops::Range<u64>) -> Answers {
    let mut answers = Answers::default();
    for n in numbers {
        let send = forever.send(&id, "go", &n);
        // Those with an id are sent twice: the second answer is that of the first.
        let answer = if n % 4 == 0 {
            match send.message_id(format!("m{n}")).await {
                Ok(()) => forever.send(&id, "go", &n).message_id(format!("m{n}")).await,
                Err(error) => Err(error),
            }
        } else {
            send.await
        };
        match answer {
            Ok(()) => answers.accepted.push(n),
            Err(error) if error.is_invalid_state() => answers.refused += 1,
            Err(error) if error.kind() == ErrorKind::TopicClosed => answers.closed += 1,
            Err(error) => panic!("{error}"),
        }
        if n % 5 == 0 {
            tokio::task::yield_now().await;
        }
    }
    answers
}

/// The values that the snapshot of a fiber has.
async fn in_snapshot(forever: &Forever, id: &str) -> BTreeSet<u64> {
    let view = forever.view(id).await.unwrap();
    let values = view.frames.into_iter().flat_map(|frame| frame.locals).filter_map(|local| local.value.value);
    let numbers = |value: serde_json::Value| match value {
        serde_json::Value::Array(values) => values.iter().filter_map(serde_json::Value::as_u64).collect(),
        value => value.as_u64().into_iter().collect::<Vec<_>>(),
    };
    values.flat_map(numbers).collect()
}

/// Notes what a fiber that has ended has not received.
async fn note_unread(handle: &FiberHandle<u32>, ledger: &Ledger) {
    let status = handle.status().await.unwrap();
    let left = handle.messages().await.unwrap();
    let counted: u64 = status.unread.iter().map(|topic| topic.messages).sum();
    assert_eq!(counted, left.len() as u64, "the counts and the list of {}", handle.id());
    for message in left {
        ledger.note(message.value.as_u64().unwrap(), Fate::Unread);
    }
}

/// One fiber with its senders; counts where their messages were found. `planted` deletes the unread
/// messages of a fiber.
async fn round(forever: Forever, ledger: Ledger, number: u64, planted: Option<Arc<Mutex<Database>>>) -> Counts {
    const SENDERS: u64 = 4;
    const EACH: u64 = 10;
    let mut counts = Counts::default();
    let mut dice = Prng::of_case(7, number, 0);
    let how = ["ends", "closes", "fails", "cancelled", "restarted"][dice.below(5_usize)];
    let id = format!("f{number}");
    let handle = forever.spawn(receives(number, dice.below(12), how.into())).id(&id).await.unwrap();
    let first = number * 1000;
    let mut senders = tokio::task::JoinSet::new();
    for sender in 0..SENDERS {
        let from = first + sender * EACH;
        senders.spawn(send_all(forever.clone(), id.clone(), from..from + EACH));
    }
    if matches!(how, "cancelled" | "restarted") {
        for _ in 0..dice.below(200_u32) {
            tokio::task::yield_now().await;
        }
        // It may have ended by then.
        let _ = forever.cancel(&id, "enough").await;
    }
    let mut answers = Answers::default();
    while let Some(sender) = senders.join_next().await {
        let Answers { mut accepted, refused, closed } = sender.unwrap();
        answers.accepted.append(&mut accepted);
        answers.refused += refused;
        answers.closed += closed;
    }
    // One that still waits gets no message any more.
    let mut ended = soon(&id, async {
        loop {
            let status = handle.status().await.unwrap();
            match status.state {
                state if state.is_final() => return state,
                FiberState::Waiting => drop(forever.cancel(&id, "no more").await),
                _ => settled().await,
            }
        }
    })
    .await;
    if ended == FiberState::Failed {
        counts.restarted += 1;
        // It keeps its messages, and receives none of them twice.
        forever.resume(&id).await.unwrap();
        ended = match soon(&id, handle.wait()).await {
            Ok(_) => FiberState::Completed,
            Err(error) => panic!("{error}"),
        };
    }
    if let Some(database) = planted {
        database.lock().unwrap().run(&format!("DELETE FROM messages WHERE fiber = (SELECT seq FROM fibers WHERE id = '{id}')"));
    }
    note_unread(&handle, &ledger).await;
    let snapshot = if ended == FiberState::Cancelled { in_snapshot(&forever, &id).await } else { BTreeSet::new() };
    if how == "restarted" && ended == FiberState::Cancelled {
        counts.restarted += 1;
        forever.restart(&id).await.unwrap();
        assert_eq!(handle.messages().await.unwrap(), [], "what was reported as unread does not come again");
        let _ = forever.cancel(&id, "again").await;
    }
    counts.accepted += answers.accepted.len() as u64;
    counts.refused += answers.refused;
    counts.closed += answers.closed;
    for message in answers.accepted {
        match ledger.found(message) {
            Some(fate) => *counts.found.entry(fate).or_default() += 1,
            None if snapshot.contains(&message) => counts.in_snapshot += 1,
            None => counts.vanished.push((format!("{id} ({how}, {ended})"), message)),
        }
    }
    counts
}

async fn run(messages: u64, plants: bool) -> Counts {
    const AT_ONCE: usize = 8;
    let ledger = Ledger::default();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("senders.db");
    let builder = Forever::builder().sqlite(&path).retention(Retention::forever()).resource(ledger.clone());
    let forever = builder.cancel_grace(std::time::Duration::ZERO).fiber::<receives>().open().await.unwrap();
    let planted = plants.then(|| Arc::new(Mutex::new(Database::open(&path))));
    let (mut counts, mut rounds) = (Counts::default(), tokio::task::JoinSet::new());
    for number in 1.. {
        let enough = counts.accepted + counts.refused + counts.closed >= messages || !counts.vanished.is_empty();
        if !enough {
            rounds.spawn(round(forever.clone(), ledger.clone(), number, planted.clone()));
        }
        if enough || rounds.len() == AT_ONCE {
            let Some(ended) = rounds.join_next().await else { break };
            counts.add(ended.unwrap());
        }
    }
    forever.close().await.unwrap();
    counts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_message_is_received_handed_over_unread_or_refused() {
    let messages = std::env::var("FOREVER_SENDERS").ok().and_then(|messages| messages.parse().ok()).unwrap_or(4_000);
    let counts = run(messages, false).await;
    let Counts { accepted, refused, closed, found, in_snapshot, restarted, vanished } = &counts;
    println!(
        "{}: {accepted} accepted: {found:?}, {in_snapshot} in the snapshot of a cancelled fiber; refused: {refused} by an end, \
         {closed} by a close; {restarted} resumed or restarted",
        if database::is_in_postgres() { "Postgres" } else { "SQLite" }
    );
    assert_eq!(*vanished, []);
    assert_eq!(*accepted, found.values().sum::<u64>() + in_snapshot);
    assert!(*refused > 0 && *closed > 0 && found.len() == 3, "every fate was met");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_vanishes_with_its_fiber_is_found_missing() {
    let counts = run(4_000, true).await;
    assert!(!counts.vanished.is_empty(), "the deleted messages are missing");
}
