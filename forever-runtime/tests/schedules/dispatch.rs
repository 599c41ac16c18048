//! From rows that are ready to activations, in every order: claims, notifications, sweeps, timers, take-overs, commands and the close of a runtime.
//!
//! The real code: `fiber/live.rs` (at most one activation, and the hand-over from one that leaves), `fiber/dispatch.rs` (notifications, what is due, the
//! sweep), `fiber/runner.rs` (an activation from its claim to its end), `fiber/fence.rs`, `fiber/timer.rs`, `fiber/detached.rs`, `fiber/core.rs` (tasks, and
//! the end of a runtime), and `sqlite/claims.rs` of `forever-store` on SQLite.
//!
//! A model: the statements of `sqlite/rows.rs` of `forever-store` and the writer's thread, of which there is a lock in its place (`rows.rs` here; the
//! thread itself is in `writer.rs`); the function that runs and its checkpoints (`stubs.rs`); what `recovery.rs` and `spawn.rs` do to begin an activation, without
//! agents (here); tokio's tasks (`tasks.rs`). There are no operations, children or hooks, the store does not fail, and its close is one step.
//!
//! In each order: one fiber's code is in memory once in a process, and only under a claim that this process was given; no claim is given twice, and none
//! beside one that is in force; no write is accepted but under the claim in force, numbered by the test itself; every fiber ends, once, with each
//! message received; a runtime that is closed leaves nothing `running`, runs nothing, and loses nothing.
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::exec::activation::{FiberTask, Turn};
use crate::exec::agent_hooks::NoAgents;
use crate::exec::compatibility::Compatibility;
use crate::exec::dispatch;
use crate::exec::executor::Executor;
use crate::exec::lease::LeaseNumber;
use crate::exec::registry::{Known, MESSAGES, Registry};
use crate::frame::resources::Resources;
use crate::runtime::database::Database as OfRuntime;
use crate::runtime::detached::detached;
use crate::runtime::settings::Settings;
use crate::runtime::state::{Parts, Runtime};
use crate::runtime::timer::run;
use crate::runtime::{events, sync};
use crate::store::Seq;
use crate::store::sqlite::rows::{Database, OpenStore, is_closed};
use crate::support::{caller, in_orders};

/// Each takes some milliseconds.
const ORDERS: usize = 250;

/// Sleeps that nothing in these tests waits for.
const LONG: Duration = Duration::from_secs(60 * 60);
const SHORT: Duration = Duration::from_secs(1);

/// A clock on which as much time passes as somebody has slept.
#[derive(Debug, Default)]
struct Slept(Arc<AtomicI64>);

impl Clock for Slept {
    fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.0.load(Ordering::Relaxed).unsigned_abs())
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let now = Arc::clone(&self.0);
        Box::pin(async move {
            if duration >= LONG {
                std::future::pending::<()>().await;
            }
            sync::sleep(duration).await;
            now.fetch_add(i64::try_from(duration.as_millis()).unwrap(), Ordering::Relaxed);
        })
    }

    fn id(&self) -> String {
        unreachable!("the tests name their fibers")
    }
}

/// One open runtime on a database that others share.
#[derive(Clone)]
struct Worker {
    exec: Arc<Executor>,
    store: Arc<OpenStore>,
}

impl Worker {
    /// Joins and listens; begins nothing that is there.
    fn join(database: &Arc<Database>) -> Self {
        let store = OpenStore::open(database);
        let parts = Parts {
            store: Arc::<OpenStore>::clone(&store),
            database: OfRuntime(Arc::clone(&store)),
            worker: store.worker,
            clock: Arc::new(Slept::default()),
            listeners: events::Listeners,
            settings: Settings::default(),
        };
        let runtime = Arc::new(Runtime::new(parts, sync::Handle));
        let exec = Arc::new(Executor::new(Arc::clone(&runtime), Registry, Resources, Arc::new(NoAgents), Compatibility));
        dispatch::listen(&exec).unwrap();
        runtime.start(run(Arc::clone(&runtime))).unwrap();
        Worker { exec, store }
    }

    /// Begins what others have left, as `recovery::recover` does.
    async fn recover(&self) -> Result<()> {
        let mut before = None;
        for fiber in self.store.unfinished().await? {
            let Some(alive) = self.exec.runtime.active.activate(&fiber) else { continue };
            let (through, next) = oneshot::channel();
            let turn = Turn { before: before.replace(next), after: Some(through) };
            self.exec.runtime.start(FiberTask::new(&self.exec, &fiber, alive, turn, None).recover())?;
        }
        dispatch::set_alarm(&self.exec.runtime).await
    }

    /// Stores a fiber that the dispatcher hears of.
    async fn accept(&self, id: &str) -> Seq {
        self.store.accept(id.to_owned(), false).await.unwrap().fiber
    }

    /// Stores a fiber under a claim and runs it, as `spawn` does.
    async fn spawn(&self, id: &str) -> Seq {
        let (tell, told) = oneshot::channel();
        let (exec, store, id) = (Arc::clone(&self.exec), Arc::clone(&self.store), id.to_owned());
        let task = async move {
            let claim = store.accept(id.clone(), true).await.unwrap();
            let known = Arc::new(Known::receives());
            let alive = exec.runtime.active.activate_new(&id, known.machine.name).await;
            let _ = tell.send(claim.fiber);
            let lease = LeaseNumber::of(&exec.runtime);
            FiberTask::begin(exec, known, (claim, lease), None, alive, (Box::new(()), false)).await;
        };
        self.exec.runtime.start(task).unwrap();
        told.await.unwrap()
    }

    /// Tells a fiber to end, as `commands::cancel` does.
    async fn cancel(&self, id: &str, fiber: Seq) -> Result<()> {
        let (runtime, store, id) = (Arc::clone(&self.exec.runtime), Arc::clone(&self.store), id.to_owned());
        let command = async move {
            let runs = store.cancel(fiber).await?;
            if let Some(control) = runtime.active.get(&id).and_then(|entry| entry.control()) {
                control.cancel("enough");
            }
            if !runs {
                runtime.active.tell(&id);
            }
            Ok(())
        };
        detached(&self.exec.runtime, command).await
    }

    /// Sends messages in turn to each of the fibers; gives those to whom one was not stored because the runtime was closed.
    fn sends(&self, to: Vec<Seq>) -> shuttle::thread::JoinHandle<Vec<Seq>> {
        let store = Arc::clone(&self.store);
        caller(async move {
            let mut late = Vec::new();
            for fiber in to {
                let told = store.send(fiber).await;
                assert!(told.is_ok() || is_closed(&told), "{told:?}");
                if told.is_err() {
                    late.push(fiber);
                }
            }
            late
        })
    }
}

fn now<T>(future: impl Future<Output = T>) -> T {
    shuttle::future::block_on(future)
}

fn all_have_ended(database: &Database, fibers: &[Seq]) {
    assert_eq!(database.count("completed"), fibers.len(), "{database:?}");
    for fiber in fibers {
        assert_eq!(database.received(*fiber), MESSAGES, "{database:?}");
    }
}

/// Fibers that wait for messages which two others send, while the first ones are on their way into memory and out of it.
fn messages_beside_activations(sweeps: bool) {
    let database = Database::new();
    let worker = Worker::join(&database);
    if sweeps {
        now(dispatch::begin(&worker.exec, false)).unwrap();
    }
    let fibers = vec![now(worker.accept("a")), now(worker.spawn("b"))];
    let senders = [worker.sends(fibers.clone()), worker.sends(fibers.iter().rev().copied().collect())];
    now(database.until_ended(fibers.len()));
    for sender in senders {
        assert!(sender.join().unwrap().is_empty());
    }
    now(worker.exec.runtime.close(LONG)).unwrap();
    all_have_ended(&database, &fibers);
}

#[test]
fn fiber_that_becomes_ready_while_its_activation_leaves_runs_again() {
    in_orders(ORDERS, || messages_beside_activations(false));
}

#[test]
fn sweep_beside_notifications_begins_no_second_activation() {
    in_orders(ORDERS, || messages_beside_activations(true));
}

#[test]
fn fiber_that_is_due_while_its_activation_leaves_runs_again() {
    in_orders(ORDERS, || {
        let database = Database::new();
        let worker = Worker::join(&database);
        let fibers = vec![now(worker.accept("a due")), now(worker.spawn("b due"))];
        now(database.until_ended(fibers.len()));
        now(worker.exec.runtime.close(LONG)).unwrap();
        all_have_ended(&database, &fibers);
    });
}

/// A close while messages arrive, and the runtime after it.
fn closes_beside_notifications(deadline: Duration, sweeps: bool) {
    let database = Database::new();
    let first = Worker::join(&database);
    if sweeps {
        now(dispatch::begin(&first.exec, false)).unwrap();
    }
    let fibers = vec![now(first.accept("a")), now(first.spawn("b")), now(first.accept("c"))];
    let senders = [first.sends(fibers.clone()), first.sends(fibers.iter().rev().copied().collect())];
    now(first.exec.runtime.close(deadline)).unwrap();
    assert_eq!(database.count("running"), 0, "{database:?}");
    let late: Vec<Seq> = senders.into_iter().flat_map(|sender| sender.join().unwrap()).collect();
    now(database.until_gone(first.store.worker));
    assert!(first.exec.runtime.start(async { unreachable!("it is closed") }).is_err());

    let second = Worker::join(&database);
    now(second.recover()).unwrap();
    second.sends(late).join().unwrap();
    now(database.until_ended(fibers.len()));
    now(second.exec.runtime.close(LONG)).unwrap();
    all_have_ended(&database, &fibers);
}

#[test]
fn close_leaves_what_is_ready_to_the_next_runtime() {
    in_orders(ORDERS, || closes_beside_notifications(LONG, false));
}

#[test]
fn close_that_drops_tasks_leaves_what_is_ready_to_the_next_runtime() {
    in_orders(ORDERS, || closes_beside_notifications(SHORT, true));
}

#[test]
fn runtime_that_dies_loses_nothing() {
    in_orders(ORDERS, || {
        let database = Database::new();
        let first = Worker::join(&database);
        let fibers = vec![now(first.accept("a")), now(first.spawn("b"))];
        let senders = [first.sends(fibers.clone()), first.sends(fibers.clone())];
        first.exec.runtime.die();
        let late: Vec<Seq> = senders.into_iter().flat_map(|sender| sender.join().unwrap()).collect();
        now(database.until_gone(first.store.worker));

        let second = Worker::join(&database);
        now(second.recover()).unwrap();
        second.sends(late).join().unwrap();
        now(database.until_ended(fibers.len()));
        now(second.exec.runtime.close(LONG)).unwrap();
        all_have_ended(&database, &fibers);
    });
}

/// Both hear of everything that is ready, and each is taken for dead by the other in the middle.
#[test]
fn two_workers_over_one_store_run_each_fiber_under_one_claim() {
    in_orders(ORDERS, || {
        let database = Database::new();
        let (first, second) = (Worker::join(&database), Worker::join(&database));
        let fibers = vec![now(first.accept("a")), now(second.spawn("b"))];
        let senders = [first.sends(fibers.clone()), second.sends(fibers.clone())];
        let takers = [&second, &first].map(|taker| {
            let taker = taker.clone();
            caller(async move {
                taker.store.take_over().await?;
                taker.recover().await
            })
        });
        now(database.until_ended(fibers.len()));
        for taker in takers {
            taker.join().unwrap().unwrap();
        }
        for sender in senders {
            assert!(sender.join().unwrap().is_empty());
        }
        for worker in [first, second] {
            now(worker.exec.runtime.close(LONG)).unwrap();
        }
        all_have_ended(&database, &fibers);
    });
}

#[test]
fn fiber_that_is_cancelled_ends_once_whatever_it_does() {
    in_orders(ORDERS, || {
        let database = Database::new();
        let worker = Worker::join(&database);
        let fibers = vec![now(worker.accept("a")), now(worker.spawn("b"))];
        let senders = [worker.sends(fibers.clone()), worker.sends(fibers.clone())];
        let of_caller = worker.clone();
        let (a, b) = (fibers[0], fibers[1]);
        let cancels = caller(async move {
            of_caller.cancel("a", a).await?;
            of_caller.cancel("b", b).await
        });
        now(database.until_ended(fibers.len()));
        let told: Result<(), Error> = cancels.join().unwrap();
        told.unwrap();
        for sender in senders {
            sender.join().unwrap();
        }
        now(worker.exec.runtime.close(LONG)).unwrap();
        assert_eq!(database.count("completed") + database.count("cancelled"), fibers.len(), "{database:?}");
    });
}
