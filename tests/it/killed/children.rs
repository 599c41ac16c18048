//! Parents and children whose process is killed around the making of children, and right after a cancel.
use std::collections::BTreeSet;
use std::time::Duration;

use forever::fiber::FiberState;
use forever::prelude::*;
use forever_testkit::prng::Prng;
use forever_testkit::process::say;
use forever_testkit::waiting::eventually;

use super::process::{Desk, Place, Role, Worker};

const CHILDREN: u32 = 40;

/// Makes children, one after the other, with a moment in between.
#[fiber(max_recoveries = 1000)]
pub(super) async fn maker(desk: Res<Desk>) -> anyhow::Result<Vec<u32>> {
    let mut handles = Vec::new();
    for number in 0..CHILDREN {
        desk.pause().await;
        handles.push(spawn!(made(number)));
    }
    let mut numbers = Vec::new();
    for came in wait_all!(&handles) {
        numbers.push(came?);
    }
    Ok(numbers)
}

#[fiber(max_recoveries = 1000)]
pub(super) async fn made(desk: Res<Desk>, number: u32) -> anyhow::Result<u32> {
    Ok(step!("work", desk.work(&format!("made {number}"), number).await?))
}

/// A worker: runs a parent.
pub(super) async fn make(with: Role) {
    let forever = with.builder.open().await.unwrap();
    forever.spawn(maker()).key("maker").await.unwrap().wait().await.unwrap();
    forever.close().await.unwrap();
}

#[tokio::test]
async fn a_child_is_made_exactly_once_however_often_its_parent_is_killed_around_its_spawn() {
    let (place, mut prng) = (Place::new(), Prng::of_purpose(1, "children"));
    let born = |journal: &[String]| journal.iter().filter(|line| line.starts_with("made ")).collect::<BTreeSet<_>>().len();
    for kill in 1..=30 {
        let mut worker = Worker::start("make", &place);
        let longer = Duration::from_micros(prng.below(6000_u64));
        worker.until(&place, |journal| born(journal) >= kill, longer);
        worker.kill();
        let rows = place.stored().rows("SELECT args, count(*) FROM fibers WHERE name = 'made' GROUP BY args");
        assert!(rows.iter().all(|(_, times)| *times == 1), "kill {kill}: {rows:?}");
    }
    assert!(Worker::last("make", &place).end().success());
    let forever = place.open().await;
    assert_eq!(forever.fiber_by_key::<maker>("maker").await.unwrap().wait().await.unwrap(), (0..CHILDREN).collect::<Vec<_>>());
    assert_eq!(forever.fibers().name("made").limit(1000).await.unwrap().fibers.len(), CHILDREN as usize);
}

/// The top of a family: all its children wait in different ways.
#[fiber]
pub(super) async fn top() -> anyhow::Result<()> {
    let mut handles = Vec::new();
    for way in ["message", "time", "child", "step"].map(str::to_owned) {
        handles.push(spawn!(below(way)));
    }
    wait_all!(handles);
    Ok(())
}

#[fiber]
pub(super) async fn below(desk: Res<Desk>, way: String) -> anyhow::Result<()> {
    match way.as_str() {
        "message" => recv!("word"),
        "time" => sleep!(Duration::from_secs(3600)),
        "child" => {
            let handle = spawn!(below("message".to_owned()));
            wait!(handle)?;
        }
        _ => step!("hold", {
            desk.write("held");
            std::future::pending::<()>().await;
        }),
    }
    desk.write(&format!("{way} went on"));
    Ok(())
}

/// A worker: cancels a family, and says when that is done.
pub(super) async fn cancel(with: Role) {
    let journal = with.journal();
    let forever = with.builder.open().await.unwrap();
    let handle = forever.spawn(top()).id("top").await.unwrap();
    let waiting = async || forever.fibers().state(FiberState::Waiting).await.unwrap().fibers.len();
    eventually("the waits of all", async || waiting().await >= 5 && journal.text().contains("held")).await;
    handle.cancel("enough").await.unwrap();
    say("cancelled");
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_cancel_reaches_all_children_also_when_the_process_is_killed_right_after_it_returned() {
    for _ in 0..4 {
        let place = Place::new();
        let mut worker = Worker::start("cancel", &place);
        worker.said("cancelled");
        worker.kill();
        let forever = place.open().await;
        let all = forever.fibers().await.unwrap().fibers;
        assert_eq!(all.len(), 6);
        for fiber in all {
            let error = forever.find_fiber::<()>(&fiber.id).await.unwrap().wait().await.unwrap_err();
            assert_eq!((error.is_cancelled(), error.reason()), (true, "enough"), "{error}");
        }
        assert_eq!(place.journal(), ["held"]);
    }
}
