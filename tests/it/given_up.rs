//! Calls that are given up: each public call is polled k times and dropped, for every k up to the one that completes it, and then everything still
//! comes to its end by itself.
//!
//! What a call has begun to do is seen by making it again, whole: the second one may find that the first was carried out. If that had left a
//! fiber ready with nobody to run it, the second would change nothing, and the fiber would never end.
use std::future::{IntoFuture, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use forever::fiber::{FiberFilter, FiberHandle, FiberState, Resolution};
use forever::ops::OpResolution;
use forever::prelude::*;
use forever::{Error, ErrorKind, Retention};
use forever_testkit::database::Database;
use forever_testkit::waiting::{DEADLINE, eventually, soon};

use crate::support::stands;

/// Polls a call up to `polls` times, each time when it was woken, and drops it; `Some` if it completed before.
pub(crate) async fn polled<T>(call: impl IntoFuture<Output = T>, polls: u64) -> Option<T> {
    let mut call = Box::pin(call.into_future());
    let mut left = polls;
    poll_fn(move |cx: &mut Context<'_>| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match Pin::new(&mut call).poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            // Dropped right behind its last poll.
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// What a command may say of which the first half was carried out.
fn done_or_too_late(done: Result<(), Error>) {
    if let Err(error) = done {
        assert_eq!(error.kind(), ErrorKind::InvalidState, "{error}");
    }
}

/// Whether fibers fail, and whether their effects answer.
#[derive(Clone, Default)]
struct Weather(Arc<Mutex<bool>>, Arc<AtomicU64>);

impl Weather {
    fn turn(&self, bad: bool) {
        *self.0.lock().unwrap() = bad;
    }

    fn is_bad(&self) -> bool {
        *self.0.lock().unwrap()
    }
}

#[fiber]
async fn sails(weather: Res<Weather>, port: String) -> anyhow::Result<String> {
    let crew: u64 = step!("crew", weather.1.fetch_add(1, Ordering::Relaxed));
    if step!("look", weather.is_bad()) {
        anyhow::bail!("a storm, crew {crew}");
    }
    Ok(port)
}

#[fiber]
async fn listens() -> anyhow::Result<u32> {
    Ok(recv!("word"))
}

#[fiber]
async fn sleeps() -> anyhow::Result<u32> {
    sleep!(Duration::from_secs(100_000));
    Ok(1)
}

#[fiber]
async fn has_a_child() -> anyhow::Result<u32> {
    let child: FiberHandle<u32> = spawn!(listens());
    Ok(wait!(child)?)
}

#[fiber]
async fn pays(weather: Res<Weather>) -> anyhow::Result<u64> {
    let receipt = step!("pay", effect, |op| {
        let _ = op.id();
        if weather.is_bad() {
            Err(op.unknown(anyhow::anyhow!("no answer")))?;
        }
        7_u64
    });
    Ok(receipt)
}

async fn open(weather: &Weather) -> Forever {
    Forever::builder()
        .in_memory()
        .retention(Retention::forever())
        .resource(weather.clone())
        .fiber::<sails>()
        .fiber::<listens>()
        .fiber::<sleeps>()
        .fiber::<has_a_child>()
        .fiber::<pays>()
        .open()
        .await
        .unwrap()
}

/// Gives a call up after 1, 2, 3.. polls, until it completes; `made` makes what it is about, and `after` looks at what came of it.
macro_rules! at_every_poll {
    ($what:literal, |$k:ident| $made:expr, |$there:ident| $call:expr, |$done:ident| $after:expr) => {{
        let mut completed = false;
        for $k in 1_u64.. {
            assert!($k < 1000, "{} never completes", $what);
            let $there = $made;
            let $done = polled($call, $k).await;
            completed = $done.is_some();
            $after;
            if completed {
                break;
            }
        }
        assert!(completed);
    }};
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spawn_that_is_given_up_has_happened_or_not() {
    let forever = open(&Weather::default()).await;
    at_every_poll!("spawn", |k| format!("s{k}"), |id| forever.spawn(sails("Rhodes".into())).id(&id), |done| {
        drop(done);
        let again = forever.spawn(sails("Rhodes".into())).id(&id).await.unwrap();
        assert_eq!(soon("a spawned fiber", again.wait()).await.unwrap(), "Rhodes");
    });
    at_every_poll!(
        "spawn_closure",
        |k| format!("c{k}"),
        |id| forever.spawn_closure("closure", |_| async { Ok::<_, Error>(7) }).id(&id).start(),
        |done| {
            drop(done);
            let again = forever.spawn_closure("closure", |_| async { Ok::<_, Error>(7) }).id(&id).start().await.unwrap();
            assert_eq!(soon("a closure", again.wait()).await.unwrap(), 7);
        }
    );
    at_every_poll!("run", |k| k, |_k| forever.run(sails("Kos".into())), |done| drop(done));
    let all = async || forever.fibers().limit(1000).await.unwrap().fibers;
    eventually("those that were run", async || all().await.iter().all(|fiber| fiber.state == FiberState::Completed)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_given_up_wakes_its_fiber_or_was_not_sent() {
    let forever = open(&Weather::default()).await;
    let waiting = async |id: String| {
        let handle = forever.spawn(listens()).id(id).await.unwrap();
        stands(&handle, FiberState::Waiting).await;
        handle
    };
    at_every_poll!(
        "send",
        |k| waiting(format!("s{k}")).await,
        |handle| forever.send(handle.id(), "word", &5).message_id("first"),
        |done| {
            drop(done);
            // With the same id: if the first was stored, this changes nothing.
            let first = match handle.send("word", &6).message_id("first").await {
                Ok(()) => 6,
                Err(error) => {
                    assert!(error.is_conflict(), "{error}");
                    5
                }
            };
            assert_eq!(soon("a fiber that was sent to", handle.wait()).await.unwrap(), first);
        }
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resume_and_restart_that_are_given_up_start_the_fiber_or_leave_it() {
    let weather = Weather::default();
    let forever = open(&weather).await;
    let failed = async |id: String| {
        weather.turn(true);
        let handle = forever.spawn(sails("Crete".into())).id(id).await.unwrap();
        assert!(soon("a voyage", handle.wait()).await.unwrap_err().is_failed());
        weather.turn(false);
        handle
    };
    // What it has seen of the weather is in its snapshot, so a resumed one fails again.
    at_every_poll!("resume", |k| failed(format!("m{k}")).await, |handle| forever.resume(handle.id()), |done| {
        drop(done);
        done_or_too_late(forever.resume(handle.id()).await);
        stands(&handle, FiberState::Failed).await;
    });
    at_every_poll!("restart", |k| failed(format!("t{k}")).await, |handle| forever.restart(handle.id()), |done| {
        drop(done);
        done_or_too_late(forever.restart(handle.id()).await);
        stands(&handle, FiberState::Completed).await;
    });
    at_every_poll!("restart by its handle", |k| failed(format!("r{k}")).await, |handle| handle.restart(), |done| {
        drop(done);
        done_or_too_late(handle.restart().await);
        stands(&handle, FiberState::Completed).await;
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_that_is_given_up_ends_the_fiber_and_what_waits_for_it() {
    let forever = open(&Weather::default()).await;
    let sleeping = async |id: String| {
        let handle = forever.spawn(sleeps()).id(id).await.unwrap();
        stands(&handle, FiberState::Waiting).await;
        handle
    };
    at_every_poll!("cancel by id", |k| sleeping(format!("i{k}")).await, |handle| forever.cancel(handle.id(), "enough"), |done| {
        drop(done);
        done_or_too_late(forever.cancel(handle.id(), "enough").await);
        assert!(soon("a cancelled fiber", handle.wait()).await.unwrap_err().is_cancelled());
    });
    // A parent that waits for its child wakes when only the child is cancelled.
    let parent = async |id: String| {
        let parent = forever.spawn(has_a_child()).id(id).await.unwrap();
        stands(&parent, FiberState::Waiting).await;
        let children = forever.fibers().name("listens").limit(1000).await.unwrap().fibers;
        let child = children.into_iter().find(|fiber| fiber.parent.as_deref() == Some(parent.id())).unwrap();
        let child: FiberHandle<u32> = forever.find_fiber(&child.id).await.unwrap();
        (parent, child)
    };
    at_every_poll!("cancel of a child", |k| parent(format!("p{k}")).await, |family| family.1.cancel("enough"), |done| {
        drop(done);
        done_or_too_late(family.1.cancel("enough").await);
        assert!(soon("the parent of a cancelled fiber", family.0.wait()).await.unwrap_err().is_failed());
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resolutions_that_are_given_up_let_the_fiber_go_on() {
    let weather = Weather::default();
    let forever = open(&weather).await;
    let parked = async |id: String| {
        weather.turn(true);
        let handle = forever.spawn(pays()).id(id).await.unwrap();
        assert!(soon("a payment", handle.wait()).await.unwrap_err().is_parked());
        weather.turn(false);
        let op = forever.ops(handle.id()).await.unwrap().remove(0).id;
        (handle, op)
    };
    let completed = || OpResolution::completed(&9_u64).unwrap();
    at_every_poll!("resolve_op", |k| parked(format!("o{k}")).await, |there| forever.resolve_op(&there.1, completed()), |done| {
        drop(done);
        done_or_too_late(forever.resolve_op(&there.1, completed()).await);
        assert_eq!(soon("a resolved operation's fiber", there.0.wait()).await.unwrap(), 9);
    });
    at_every_poll!(
        "resolve",
        |k| parked(format!("r{k}")).await,
        |there| forever.resolve(there.0.id(), Resolution::completed(&8_u64).unwrap()),
        |done| {
            drop(done);
            done_or_too_late(forever.resolve(there.0.id(), Resolution::completed(&8_u64).unwrap()).await);
            assert_eq!(soon("a resolved fiber", there.0.wait()).await.unwrap(), 8);
        }
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_only_look_or_delete_can_be_given_up() {
    let forever = open(&Weather::default()).await;
    let handle = forever.spawn(sails("Samos".into())).id("one").key("key").await.unwrap();
    at_every_poll!("wait", |k| k, |_k| handle.wait(), |done| drop(done));
    at_every_poll!("status", |k| k, |_k| handle.status(), |done| drop(done));
    at_every_poll!("find", |k| k, |_k| forever.find_fiber::<String>("one"), |done| drop(done));
    at_every_poll!("by_key", |k| k, |_k| forever.fiber_by_key::<sails>("key"), |done| drop(done));
    at_every_poll!("fibers", |k| k, |_k| forever.fibers(), |done| drop(done));
    at_every_poll!("ops", |k| k, |_k| forever.ops("one"), |done| drop(done));
    at_every_poll!("transaction", |k| k, |_k| forever.transaction(|_| Ok::<_, Error>(1)), |done| drop(done));
    at_every_poll!("delete", |k| k, |_k| forever.delete(FiberFilter::new().name("listens")), |done| drop(done));
    assert_eq!(soon("a fiber", handle.wait()).await.unwrap(), "Samos");
    at_every_poll!("close", |k| k, |_k| forever.close(), |done| drop(done));
    assert!(forever.find_fiber::<String>("one").await.unwrap_err().is_closed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_that_is_given_up_leaves_the_database_to_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("given_up.db");
    let weather = Weather::default();
    let builder = || Forever::builder().sqlite(&path).resource(weather.clone()).fiber::<listens>().fiber::<sails>();
    let forever = builder().open().await.unwrap();
    forever.spawn(listens()).id("waits").await.unwrap();
    drop(forever);
    at_every_poll!("open", |k| k, |_k| builder().wait_for_lock(DEADLINE).open(), |done| {
        // The threads of the one that was given up let go of the file in their own time.
        let forever = match done {
            Some(opened) => opened.unwrap(),
            None => soon("the next open", builder().wait_for_lock(DEADLINE).open()).await.unwrap(),
        };
        assert!(!forever.fiber::<listens>("waits").status().await.unwrap().state.is_final());
        drop(forever);
    });
    let forever = builder().wait_for_lock(DEADLINE).open().await.unwrap();
    forever.send("waits", "word", &3).await.unwrap();
    assert_eq!(soon("a fiber of many opens", forever.fiber::<listens>("waits").wait()).await.unwrap(), 3);
}

/// A row that became ready without a word to anybody, as another worker or a person with an SQLite tool makes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sweep_finds_what_is_ready_and_was_not_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sweep.db");
    let weather = Weather::default();
    weather.turn(true);
    let forever = Forever::builder().sqlite(&path).resource(weather.clone()).fiber::<sails>().open().await.unwrap();
    let handle = forever.spawn(sails("Paros".into())).id("one").await.unwrap();
    assert!(soon("a voyage", handle.wait()).await.unwrap_err().is_failed());
    weather.turn(false);
    let database = Database::open(&path);
    database.run("UPDATE snapshots SET data = NULL, at = NULL, number = number + 1");
    database.run("UPDATE fibers SET state = 'pending', finished_ms = NULL, reason = NULL");
    stands(&handle, FiberState::Completed).await;
    assert_eq!(weather.1.load(Ordering::Relaxed), 2, "its first step ran once in each life");
}
