//! Append-only lists: an item is written once, wherever the list goes.
use forever::fiber::Log;
use forever::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::support::{Place, World, same};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Message {
    role: String,
    text: String,
}

fn message(n: usize) -> Message {
    Message { role: "user".into(), text: format!("message {n}") }
}

#[fiber]
async fn chat(world: Res<World>, turns: usize) -> anyhow::Result<Log<Message>> {
    let mut transcript = Log::new();
    while transcript.len() < turns {
        let next = step!("turn", world.step(message(transcript.len())).await?);
        transcript.push(next);
    }
    step!("end", world.did(format!("{} messages", transcript.len())).await?);
    Ok(transcript)
}

#[tokio::test]
async fn a_log_survives_a_kill_at_every_checkpoint() {
    let seen = same(|| chat(6)).await;
    assert_eq!(seen.value, (0..6).map(message).collect());
    assert_eq!(seen.documents[2]["locals"]["transcript"], json!([message(0), message(1)]));
}

#[tokio::test]
async fn a_checkpoint_writes_the_new_items_of_a_log_only() {
    let (place, world) = (Place::new(), World::new(5));
    let forever = place.open::<chat>(&world).await;
    forever.spawn(chat(10)).await.unwrap();
    world.held().await;
    assert_eq!(place.text("SELECT data ->> '$.locals.transcript' FROM snapshots"), r#"{"$log":0,"len":4}"#);
    assert_eq!(place.items(), 4);
    // An item that is not written again stays as somebody has changed it.
    place.change("UPDATE stream_chunks SET data = '{\"role\":\"user\",\"text\":\"kept\"}' WHERE first = 1");
    world.open(1);
    world.held().await;
    assert_eq!(place.items(), 5);
    drop(forever);
    world.died();
    let _forever = place.open::<chat>(&world).await;
    world.open(2);
    world.held().await;
    let changed = Message { role: "user".into(), text: "kept".into() };
    assert_eq!(
        place.document()["locals"]["transcript"],
        json!([message(0), changed, message(2), message(3), message(4), message(5), message(6)])
    );
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Agent {
    name: String,
    transcript: Log<Message>,
    notes: Vec<Log<u32>>,
    last: Option<Log<String>>,
}

/// Logs in the fields of a struct, in a list and in an option, next to another log.
#[fiber]
async fn nested(world: Res<World>, rounds: usize) -> anyhow::Result<(Agent, Log<f64>)> {
    let mut agent = Agent { name: "a".into(), ..Agent::default() };
    let mut other = Log::new();
    for n in 0..rounds {
        agent.transcript.push(message(n));
        if n % 2 == 0 {
            agent.notes.push(Log::new());
        }
        for log in &mut agent.notes {
            log.extend([0, 1]);
        }
        let text = step!(world.step("x".repeat(n)).await?);
        agent.last.get_or_insert_default().push(text);
        other.push(f64::NAN.max(0.5));
    }
    Ok((agent, other))
}

#[tokio::test]
async fn logs_may_stand_anywhere_in_a_local() {
    let seen = same(|| nested(5)).await;
    assert_eq!(seen.value.0.notes.iter().map(|log| log.len()).collect::<Vec<_>>(), [10, 6, 2]);
    assert_eq!(seen.documents[3]["locals"]["agent"]["transcript"].as_array().unwrap().len(), 4);

    let (place, world) = (Place::new(), World::new(5));
    let forever = place.open::<nested>(&world).await;
    forever.spawn(nested(6)).await.unwrap();
    world.held().await;
    // Five messages; notes of 10, 6 and 2; four texts; four floats.
    assert_eq!(place.items(), 5 + 18 + 4 + 4);
}

/// A clone, and the original, both go on.
#[fiber]
async fn cloned(world: Res<World>) -> anyhow::Result<(Vec<u32>, Vec<u32>)> {
    let mut a: Log<u32> = Log::from(vec![1, 2]);
    step!("one", world.step(()).await?);
    let mut b = a.clone();
    a.push(3);
    b.push(4);
    step!("two", world.step(()).await?);
    a.push(5);
    std::mem::swap(&mut a, &mut b);
    step!("three", world.step(()).await?);
    b.push(6);
    step!("four", world.step(()).await?);
    Ok((a.into_vec(), b.into()))
}

#[tokio::test]
async fn a_clone_is_a_log_of_its_own() {
    let seen = same(cloned).await;
    assert_eq!(seen.value, (vec![1, 2, 4], vec![1, 2, 3, 5, 6]));
}

/// A log goes into a call by value and comes back with more.
#[fiber]
async fn lends(world: Res<World>) -> anyhow::Result<Log<String>> {
    let mut log: Log<String> = (0..3).map(|n| format!("before {n}")).collect();
    step!("before", world.step(()).await?);
    for n in 0..2 {
        log = call!(borrows(log, n))?;
        log.push(format!("after {n}"));
    }
    step!("after", world.step(()).await?);
    Ok(log)
}

#[fiber]
async fn borrows(world: Res<World>, log: Log<String>, n: u32) -> anyhow::Result<Log<String>> {
    let mut log = log;
    step!("in", world.step(()).await?);
    log.push(format!("in {n}"));
    step!("out", world.step(()).await?);
    Ok(log)
}

#[tokio::test]
async fn a_log_moves_through_a_call_without_being_written_again() {
    let seen = same(lends).await;
    assert_eq!(seen.value[3..], ["in 0", "after 0", "in 1", "after 1"]);

    let (place, world) = (Place::new(), World::new(1));
    let forever = place.open::<lends>(&world).await;
    forever.spawn(lends()).await.unwrap();
    world.held().await;
    for _ in 0..4 {
        assert_eq!(place.texts("SELECT name FROM streams"), ["log/0"], "it is one log all the way");
        world.open(1);
        world.held().await;
    }
}

/// The outer frame's items are not stored when the callee makes its first checkpoint.
#[fiber]
async fn pending(world: Res<World>) -> anyhow::Result<usize> {
    let mut log = Log::new();
    step!("first", world.step(()).await?);
    log.extend(["not", "yet"].map(String::from));
    let inner = call!(chat(2))?;
    log.push("done".to_owned());
    step!("last", world.step(()).await?);
    Ok(log.len() + inner.len())
}

#[tokio::test]
async fn items_that_wait_for_a_calls_checkpoint_are_stored_with_it() {
    let seen = same(pending).await;
    assert_eq!(seen.value, 5);
    assert_eq!(seen.documents[1]["locals"]["log"], json!(["not", "yet"]));
}

/// A fiber that lives long and makes a new log in every round.
#[fiber]
async fn forgets(world: Res<World>, rounds: usize) -> anyhow::Result<usize> {
    let mut sum = 0;
    for n in 0..rounds {
        let mut log = Log::new();
        for item in 0..10 {
            log.push(item + n);
        }
        step!("round", world.step(()).await?);
        sum += log.iter().sum::<usize>();
    }
    Ok(sum)
}

#[tokio::test]
async fn a_log_that_is_dropped_leaves_no_rows() {
    let (place, world) = (Place::new(), World::new(50));
    let forever = place.open::<forgets>(&world).await;
    forever.spawn(forgets(1000)).await.unwrap();
    world.held().await;
    assert_eq!(place.items(), 10);
    // Not even those that an earlier process has left.
    drop(forever);
    world.died();
    let _forever = place.open::<forgets>(&world).await;
    world.open(1);
    world.held().await;
    assert_eq!(place.items(), 10);
    same(|| forgets(5)).await;
}

/// What is an argument, a result or a stash is whole.
#[fiber]
async fn given(world: Res<World>, mut log: Log<u8>) -> anyhow::Result<Log<u8>> {
    let stashed = step!("stash", |op| {
        op.stash(&log).await?;
        world.step(op.stashed::<Log<u8>>()?.unwrap_or_default()).await?
    });
    log.extend(stashed.iter());
    step!("next", world.step(()).await?);
    Ok(log)
}

#[tokio::test]
async fn a_log_is_a_sequence_outside_of_a_snapshot() {
    let seen = same(|| given(Log::from(vec![1, 2]))).await;
    assert_eq!(seen.value, Log::from(vec![1, 2, 1, 2]));
    let (place, world) = (Place::new(), World::new(2));
    let forever = place.open::<given>(&world).await;
    forever.run(given(Log::from(vec![7]))).await.unwrap();
    assert_eq!(place.text("SELECT args || ' ' || result FROM fibers"), r#"{"log":[7]} [7,7]"#);
    assert_eq!(serde_json::to_string(&Log::from(vec![1, 2])).unwrap(), "[1,2]");
    assert_eq!(serde_json::from_str::<Log<u8>>("[1,2]").unwrap(), Log::from(vec![1, 2]));
}

/// Behind serde's buffers a log is written whole, and read back all the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Either {
    Text(String),
    Many { many: Log<i64>, nested: Log<Log<i64>> },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Flat {
    name: String,
    #[serde(flatten)]
    rest: Agent2,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind")]
enum Tagged {
    Told { log: Log<String> },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Agent2 {
    log: Log<Option<()>>,
}

#[fiber]
async fn buffered(world: Res<World>) -> anyhow::Result<(Either, Flat, Tagged)> {
    let mut either = Either::Many { many: Log::new(), nested: Log::new() };
    let mut flat = Flat { name: "f".into(), rest: Agent2 { log: Log::new() } };
    let mut tagged = Tagged::Told { log: Log::new() };
    for n in 0..4 {
        if let Either::Many { many, nested } = &mut either {
            many.push(n);
            nested.push(Log::from(vec![n]));
        }
        flat.rest.log.push((n % 2 == 0).then_some(()));
        let Tagged::Told { log } = &mut tagged;
        log.push(n.to_string());
        step!(world.step(()).await?);
    }
    Ok((either, flat, tagged))
}

#[tokio::test]
async fn a_log_may_stand_where_serde_buffers() {
    let seen = same(buffered).await;
    assert_eq!(seen.value.1.rest.log[..2], [Some(()), None]);
    assert_eq!(seen.documents[1]["locals"]["either"], json!({"many": [0, 1], "nested": [[0], [1]]}));
}

mod was_vec {
    use super::*;
    #[fiber(name = "grown")]
    pub(super) async fn old(world: Res<World>) -> anyhow::Result<Vec<u32>> {
        let mut list = vec![1, 2];
        step!("one", world.step(()).await?);
        list.push(3);
        step!("two", world.step(()).await?);
        Ok(list)
    }
    #[fiber(name = "grown")]
    pub(super) async fn new(world: Res<World>) -> anyhow::Result<Log<u32>> {
        let mut list = Log::from(vec![1, 2]);
        step!("one", world.step(()).await?);
        list.push(3);
        step!("two", world.step(()).await?);
        Ok(list)
    }
}

#[tokio::test]
async fn a_vec_may_become_a_log_and_a_log_a_vec() {
    let (place, world) = (Place::new(), World::new(1));
    let forever = place.open::<was_vec::old>(&world).await;
    forever.spawn(was_vec::old()).id("f").await.unwrap();
    world.held().await;
    drop(forever);
    world.died();
    world.open(1);
    let forever = place.open::<was_vec::new>(&world).await;
    assert_eq!(forever.fiber::<was_vec::new>("f").wait().await.unwrap()[..], [1, 2, 3]);
    drop(forever);

    let (place, world) = (Place::new(), World::new(1));
    let forever = place.open::<was_vec::new>(&world).await;
    forever.spawn(was_vec::new()).id("f").await.unwrap();
    world.held().await;
    assert_eq!(place.items(), 2);
    drop(forever);
    world.died();
    world.open(1);
    let forever = place.open::<was_vec::old>(&world).await;
    assert_eq!(forever.fiber::<was_vec::old>("f").wait().await.unwrap(), [1, 2, 3]);
}

mod moved {
    use super::*;
    use forever::fiber::Snapshot;

    #[fiber(name = "moved")]
    pub(super) async fn old(world: Res<World>, text: String) -> anyhow::Result<usize> {
        let mut list = Log::from(vec![1, 2]);
        step!("one", world.step(()).await?);
        list.push(text.len());
        step!("end", world.step(()).await?);
        Ok(list.len() + text.len())
    }

    #[fiber(name = "moved", version = 1, migrate = rename)]
    pub(super) async fn new(world: Res<World>) -> anyhow::Result<(Log<usize>, Log<usize>)> {
        let mut first = Log::new();
        let mut second: Log<usize> = Log::new();
        step!("one", world.step(()).await?);
        first.push(3);
        second.push(4);
        step!("two", world.step(()).await?);
        Ok((first, second))
    }

    /// The one log becomes two, and the text goes.
    fn rename(mut old: Snapshot) -> anyhow::Result<Snapshot> {
        let text = old.locals.remove("text").map(|text| text.to_string()).unwrap_or_default();
        anyhow::ensure!(text.len() == 1002, "{text}");
        let list = old.locals.remove("list").map(|list| list.to_string()).unwrap_or_default();
        anyhow::ensure!(list == "[1,2]", "{list}");
        for name in ["first", "second"] {
            old.locals.insert(name.to_owned(), serde_json::value::RawValue::from_string(list.clone())?);
        }
        Ok(old)
    }
}

#[tokio::test]
async fn a_migration_is_given_every_local_whole() {
    let (place, world) = (Place::new(), World::new(1));
    let forever = place.open::<moved::old>(&world).await;
    forever.spawn(moved::old("t".repeat(1000))).id("f").await.unwrap();
    world.held().await;
    drop(forever);
    world.died();
    let forever = place.open::<moved::new>(&world).await;
    world.open(1);
    let (first, second) = forever.fiber::<moved::new>("f").wait().await.unwrap();
    assert_eq!((first.into_vec(), second.into_vec()), (vec![1, 2, 3], vec![1, 2, 4]));
}
