//! Fibers that wait for the first of several things, over a whole runtime. The test drives all time.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forever::fiber::FiberState;
use forever::prelude::*;
use forever::testing::VirtualClock;
use forever::{Builder, Retention};
use forever_testkit::database::{self, Database};
use tempfile::TempDir;

use crate::support::Ears;

const HOUR: Duration = Duration::from_secs(60 * 60);

/// Counts the fibers in memory.
#[derive(Clone, Default)]
struct Present(Arc<AtomicUsize>);

struct Presence(Present);

impl Present {
    fn enter(&self) -> Presence {
        self.0.fetch_add(1, Ordering::Relaxed);
        Presence(self.clone())
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A database and a clock that outlive the runtimes over them.
struct Scene {
    folder: TempDir,
    clock: VirtualClock,
    present: Present,
}

impl Scene {
    fn new() -> Self {
        Scene { folder: tempfile::tempdir().unwrap(), clock: VirtualClock::new(), present: Present::default() }
    }

    fn builder(&self) -> Builder {
        Forever::builder()
            .sqlite(self.folder.path().join("fibers.db"))
            .clock(self.clock.clone())
            .retention(Retention::forever())
            .resource(self.present.clone())
            .fiber::<decision>()
            .fiber::<race>()
            .fiber::<child>()
            .fiber::<two_sleeps>()
            .fiber::<office>()
            .fiber::<interview>()
    }

    async fn open(&self) -> Forever {
        self.builder().open().await.unwrap()
    }

    fn count(&self, table: &str) -> i64 {
        Database::open(self.folder.path().join("fibers.db")).number(&format!("SELECT count(*) FROM {table}"))
    }
}

#[fiber]
async fn decision(present: Res<Present>, hours: u32) -> anyhow::Result<String> {
    #[fresh]
    let presence = present.enter();
    let handle = spawn!(child());
    let text = select! {
        yes: bool = recv!("approval") => format!("approved {yes}"),
        (topic, by): (String, String) = recv!(["cancel", "delete"]) => format!("{topic} by {by}"),
        done = wait!(&handle) => format!("child {done:?}"),
        _ = sleep!(HOUR * hours) => "late".to_owned(),
    };
    step!("note", drop(presence));
    Ok(text)
}

#[fiber]
async fn child() -> anyhow::Result<u32> {
    Ok(recv!("word"))
}

async fn child_of(forever: &Forever, parent: &str) -> String {
    let all = forever.fibers().name("child").limit(100).await.unwrap().fibers;
    all.into_iter().find(|fiber| fiber.parent.as_deref() == Some(parent)).expect("it has a child").id
}

#[tokio::test(start_paused = true)]
async fn each_arm_wakes_the_fiber_also_after_a_restart_and_leaves_no_rows() {
    for restart in [false, true] {
        let scene = Scene::new();
        let mut forever = scene.open().await;
        let mut ears = Ears::of(&forever);
        let ids = ["approved", "cancelled", "deleted", "child", "late"];
        for id in ids {
            forever.spawn(decision(10)).id(id).await.unwrap();
            ears.hear(id, "waiting", 1).await;
            ears.hear(&child_of(&forever, id).await, "waiting", 1).await;
        }
        assert_eq!(scene.present.count(), 0, "a fiber that waits is not in memory");
        // In a file, the one topic of a child is in the row of its wait.
        let of_children = |children: i64| if database::is_in_postgres() { children } else { 0 };
        assert_eq!(scene.count("wait_topics"), 15 + of_children(5));
        if restart {
            drop((forever, ears));
            scene.clock.advance(HOUR * 4);
            forever = scene.open().await;
            assert_eq!(forever.fibers().state(FiberState::Waiting).limit(100).await.unwrap().fibers.len(), 10);
        } else {
            scene.clock.advance(HOUR * 4);
        }
        forever.send("approved", "approval", &true).await.unwrap();
        forever.send("cancelled", "cancel", "ada").await.unwrap();
        forever.send("deleted", "delete", "bob").await.unwrap();
        forever.send(&child_of(&forever, "child").await, "word", &7).await.unwrap();
        let ended = async |id: &str| forever.fiber::<decision>(id).wait().await.unwrap();
        assert_eq!(ended("approved").await, "approved true");
        assert_eq!(ended("cancelled").await, "cancel by ada");
        assert_eq!(ended("deleted").await, "delete by bob");
        assert_eq!(ended("child").await, "child Ok(7)");
        assert_eq!(forever.fiber::<decision>("late").status().await.unwrap().state, FiberState::Waiting);
        scene.clock.advance(HOUR * 6);
        assert_eq!(ended("late").await, "late");
        assert_eq!(scene.count("wait_topics"), of_children(4));
        let waiting = forever.fibers().state(FiberState::Waiting).limit(100).await.unwrap().fibers;
        assert!(waiting.iter().all(|fiber| fiber.name == "child") && waiting.len() == 4, "the other children go on: {waiting:?}");
        assert_eq!((scene.count("waits"), scene.count("joins")), (4, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn the_message_of_an_arm_that_was_not_taken_stays_and_topics_are_told_to_senders() {
    let scene = Scene::new();
    let forever = scene.open().await;
    forever.spawn(office(3)).id("o").await.unwrap();
    for (topic, value) in [("low", 1), ("low", 2), ("high", 10), ("low", 3)] {
        forever.send("o", topic, &value).await.unwrap();
    }
    let refused = forever.send("o", "middle", &1).await.unwrap_err().to_string();
    assert_eq!(refused, "failed to send to fiber `o` on topic `middle`: it is a fiber `office`, and it receives on `go`, `high`, `low`");
    forever.send("o", "go", &()).await.unwrap();
    assert_eq!(forever.fiber::<office>("o").wait().await.unwrap(), ["high 10", "low 1", "low 2"]);
}

/// Begins when all is there.
#[fiber]
async fn office(how_many: usize) -> anyhow::Result<Vec<String>> {
    let () = recv!("go");
    let mut done = Vec::new();
    while done.len() < how_many {
        select! {
            number: u32 = recv!("high") => done.push(format!("high {number}")),
            number: u32 = recv!("low") => done.push(format!("low {number}")),
        }
    }
    Ok(done)
}

#[fiber]
async fn race(how_many: u32) -> anyhow::Result<(u32, u32)> {
    let first = spawn!(child());
    let second = spawn!(child());
    let mut results = Vec::new();
    for _ in 0..how_many {
        let value = select! {
            one = wait!(&first)? => one,
            two = wait!(second.clone()) => two? * 100,
        };
        results.push(value);
    }
    Ok((results[0], results.iter().sum()))
}

#[tokio::test(start_paused = true)]
async fn of_several_children_the_first_that_ends_is_taken_and_the_others_go_on() {
    let scene = Scene::new();
    let forever = scene.open().await;
    let mut ears = Ears::of(&forever);
    forever.spawn(race(2)).id("r").await.unwrap();
    ears.hear("r", "waiting", 1).await;
    let children = forever.fibers().name("child").await.unwrap().fibers;
    forever.send(&children[1].id, "word", &3).await.unwrap();
    // The second has ended already when the fiber waits again.
    assert_eq!(forever.fiber::<race>("r").wait().await.unwrap(), (300, 600));
    assert_eq!(forever.fiber::<child>(&children[0].id).status().await.unwrap().state, FiberState::Waiting);

    forever.spawn(race(1)).id("failed").await.unwrap();
    ears.hear("failed", "waiting", 1).await;
    let children = forever.fibers().name("child").await.unwrap().fibers;
    forever.cancel(&children[2].id, "not needed").await.unwrap();
    let error = forever.fiber::<race>("failed").wait().await.unwrap_err().to_string();
    assert!(error.contains("was cancelled: not needed"), "{error}");
}

#[fiber]
async fn two_sleeps() -> anyhow::Result<()> {
    let mut order: Vec<String> = Vec::new();
    for _ in 0..2 {
        select! {
            _ = sleep!(HOUR * 3) => order.push("three".to_owned()),
            _ = sleep!(HOUR) => order.push("one".to_owned()),
            word: Option<String> = recv!(format!("word-{}", order.len()), timeout = HOUR * 2) => order.push(format!("{word:?}")),
        }
    }
    anyhow::bail!("{}", order.join(" "))
}

#[tokio::test(start_paused = true)]
async fn the_earliest_deadline_wakes_the_fiber_and_all_are_fixed_when_the_select_begins() {
    let scene = Scene::new();
    let forever = scene.open().await;
    let mut ears = Ears::of(&forever);
    forever.spawn(two_sleeps()).id("s").await.unwrap();
    ears.hear("s", "waiting", 1).await;
    drop((forever, ears));

    scene.clock.advance(HOUR / 2);
    let forever = scene.open().await;
    let mut ears = Ears::of(&forever);
    scene.clock.advance(HOUR / 2);
    ears.hear("s", "waiting", 1).await;
    assert_eq!(scene.count("waits"), 1);
    drop((forever, ears));

    // All are over by now: the first in source order is taken.
    scene.clock.advance(HOUR * 9);
    let forever = scene.open().await;
    assert!(forever.fiber::<two_sleeps>("s").wait().await.unwrap_err().to_string().ends_with("failed: one three"));
}

#[fiber]
async fn interview(questions: u32) -> anyhow::Result<Vec<String>> {
    let mut answers = Vec::new();
    for number in 0..questions {
        let answer: String = recv!(format!("answer-{number}"));
        answers.push(answer);
    }
    let (which, last): (String, u32) = recv!((0..3).map(|n| format!("last-{n}")).collect::<Vec<_>>());
    answers.push(format!("{which} {last}"));
    Ok(answers)
}

#[tokio::test(start_paused = true)]
async fn messages_on_computed_topics_wake_the_fiber_and_are_not_refused() {
    let scene = Scene::new();
    let forever = scene.open().await;
    let mut ears = Ears::of(&forever);
    forever.spawn(interview(2)).id("i").await.unwrap();
    ears.hear("i", "waiting", 1).await;
    forever.send("i", "answer-1", "second").await.unwrap();
    drop((forever, ears));

    let forever = scene.open().await;
    let mut ears = Ears::of(&forever);
    forever.send("i", "answer-0", "first").await.unwrap();
    ears.hear("i", "waiting", 1).await;
    forever.send("i", "last-2", &5).await.unwrap();
    assert_eq!(forever.fiber::<interview>("i").wait().await.unwrap(), ["first", "second", "last-2 5"]);
}
