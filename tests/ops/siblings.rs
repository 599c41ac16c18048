//! Branches of one `steps!`, and joined operations by hand, when the runtime closes or the fiber is cancelled: one that is cut off takes no
//! other one along.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use forever::agent::{Agent, AgentHandle, RecoveredFiber, RecoveryAction};
use forever::fiber::{Fiber, FiberState};
use forever::ops::Op;
use forever::prelude::*;
use forever::testing::VirtualClock;
use forever::{BoxError, Builder};
use forever_testkit::waiting::{eventually, settled, soon};
use tokio::sync::{Notify, Semaphore};

use crate::support::{sorted, words};

/// Charges, each of which lasts until the gate is open.
#[derive(Clone)]
struct Bank(Arc<State>);

struct State {
    gate: Semaphore,
    begun: AtomicU32,
    done: AtomicU32,
    /// Branches that are between two attempts, or have seen the close.
    resting: AtomicU32,
    works: AtomicBool,
    closes: Notify,
}

impl Bank {
    fn new() -> Self {
        let (begun, done, resting, works, closes) = Default::default();
        Bank(Arc::new(State { gate: Semaphore::new(0), begun, done, resting, works, closes }))
    }

    async fn charge(&self) -> u64 {
        self.0.begun.fetch_add(1, Relaxed);
        self.0.gate.acquire().await.unwrap().forget();
        self.0.done.fetch_add(1, Relaxed);
        1
    }

    /// Whether it has charged, told once the gate is open.
    async fn find(&self) -> anyhow::Result<Option<u64>> {
        self.charge().await;
        Ok(Some(1))
    }

    async fn ask(&self) -> anyhow::Result<u64> {
        if self.0.works.load(Relaxed) {
            return Ok(1);
        }
        self.0.resting.fetch_add(1, Relaxed);
        tokio::task::yield_now().await;
        anyhow::bail!("not yet")
    }

    /// Hands over what it has when the process ends.
    async fn listen(&self, op: &Op) -> anyhow::Result<u64> {
        if !self.0.works.load(Relaxed) {
            self.0.resting.fetch_add(1, Relaxed);
            op.closing().await;
            return Err(op.interrupted().into());
        }
        Ok(1)
    }

    /// Ends when the runtime closes, of which it knows nothing.
    async fn note(&self) -> u64 {
        self.0.resting.fetch_add(1, Relaxed);
        self.0.closes.notified().await;
        1
    }

    async fn undo(&self, op: &Op) -> anyhow::Result<u64> {
        self.0.begun.fetch_add(1, Relaxed);
        op.cancelled().await;
        self.0.gate.acquire().await?.forget();
        self.0.done.fetch_add(1, Relaxed);
        Ok(1)
    }
}

fn soon_again() -> Retry<anyhow::Error> {
    Retry::times(1000).backoff(Backoff::fixed(Duration::from_secs(1)))
}

fn hourly() -> Retry<anyhow::Error> {
    Retry::times(1000).backoff(Backoff::fixed(Duration::from_secs(3600)))
}

#[fiber]
async fn retries(bank: Res<Bank>) -> anyhow::Result<u64> {
    let (asked, charged) = steps!(step!("ask", retry = soon_again(), bank.ask().await?), step!("charge", effect, bank.charge().await));
    Ok(asked + charged)
}

#[fiber]
async fn retries_hourly(bank: Res<Bank>) -> anyhow::Result<u64> {
    let (asked, charged) = steps!(step!("ask", retry = hourly(), bank.ask().await?), step!("charge", effect, bank.charge().await));
    Ok(asked + charged)
}

#[fiber]
async fn retries_an_effect(bank: Res<Bank>) -> anyhow::Result<u64> {
    let (asked, charged) =
        steps!(step!("ask", effect, retry = soon_again(), bank.ask().await?), step!("charge", effect, bank.charge().await));
    Ok(asked + charged)
}

#[fiber]
async fn retries_beside_a_step(bank: Res<Bank>) -> anyhow::Result<u64> {
    let (asked, charged) = steps!(step!("ask", retry = soon_again(), bank.ask().await?), step!("charge", bank.charge().await));
    Ok(asked + charged)
}

#[fiber]
async fn retries_for_each(bank: Res<Bank>) -> anyhow::Result<u64> {
    let all = steps!(for n in 0..2u64, effect, retry = soon_again(), if n == 0 { bank.ask().await? } else { bank.charge().await });
    Ok(all.iter().sum())
}

#[fiber]
async fn listens(bank: Res<Bank>) -> anyhow::Result<u64> {
    let (heard, charged) = steps!(step!("listen", |op| bank.listen(&op).await?), step!("charge", effect, bank.charge().await));
    Ok(heard + charged)
}

#[fiber]
async fn listens_and_catches(bank: Res<Bank>) -> anyhow::Result<u64> {
    let (heard, charged) = steps!(step!("listen", catch, |op| bank.listen(&op).await?), step!("charge", effect, bank.charge().await));
    Ok(heard.unwrap_or(9) + charged)
}

/// Ends while the other one goes on.
#[fiber]
async fn ends_first(bank: Res<Bank>) -> anyhow::Result<u64> {
    let (noted, charged) = steps!(step!("note", bank.note().await), step!("charge", effect, bank.charge().await));
    Ok(noted + charged)
}

#[fiber]
async fn ends_first_of_each(bank: Res<Bank>) -> anyhow::Result<u64> {
    let all = steps!(for n in 0..2u64, effect, if n == 0 { bank.note().await } else { bank.charge().await });
    Ok(all.iter().sum())
}

/// The second one would begin in the place of the first.
#[fiber]
async fn has_room_for_one(bank: Res<Bank>) -> anyhow::Result<u64> {
    let all = steps!(for n in 0..2u64, limit = 1, effect, if n == 0 { bank.charge().await } else { bank.ask().await? });
    Ok(all.iter().sum())
}

async fn close_lets_the_charge_end<F: Fiber<Output = u64>>(call: F, resting: u32) {
    let folder = tempfile::tempdir().unwrap();
    // Its deadline never comes.
    let (bank, clock) = (Bank::new(), VirtualClock::new());
    let open = || {
        let builder = Forever::builder().sqlite(folder.path().join("fibers.db")).clock(clock.clone());
        builder.resource(bank.clone()).fiber::<F>().open()
    };
    let (name, state) = (F::MACHINE.name, &bank.0);
    let forever = open().await.unwrap();
    forever.spawn(call).id("f").await.unwrap();
    eventually(name, async || state.begun.load(Relaxed) == 1 && state.resting.load(Relaxed) == resting).await;
    settled().await;
    let closing = tokio::spawn({
        let forever = forever.clone();
        async move { forever.close().await }
    });
    forever.closing().await;
    state.closes.notify_waiters();
    settled().await;
    // A pause between two attempts is over.
    clock.advance(Duration::from_secs(1));
    settled().await;
    assert!(!closing.is_finished(), "{name}: the charge is under way");
    state.gate.add_permits(1);
    soon(name, closing).await.unwrap().unwrap();
    assert_eq!((state.begun.load(Relaxed), state.done.load(Relaxed)), (1, 1), "{name}");
    assert_eq!(state.resting.load(Relaxed), resting, "{name}: no attempt and no branch has begun since");
    drop(forever);

    state.works.store(true, Relaxed);
    let forever = open().await.unwrap();
    let handle = forever.fiber::<F>("f");
    clock.advance(Duration::from_secs(3600));
    assert_eq!(soon(name, handle.wait()).await.unwrap(), 2, "{name}");
    assert_eq!((state.begun.load(Relaxed), handle.status().await.unwrap().deaths), (1, 0), "{name}: it is not charged again");
    forever.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn close_lets_a_charge_end_whose_sibling_is_cut_off() {
    close_lets_the_charge_end(retries(), 1).await;
    close_lets_the_charge_end(retries_hourly(), 1).await;
    close_lets_the_charge_end(retries_an_effect(), 1).await;
    close_lets_the_charge_end(retries_beside_a_step(), 1).await;
    close_lets_the_charge_end(retries_for_each(), 1).await;
    close_lets_the_charge_end(listens(), 1).await;
    close_lets_the_charge_end(listens_and_catches(), 1).await;
    close_lets_the_charge_end(ends_first(), 1).await;
    close_lets_the_charge_end(ends_first_of_each(), 1).await;
    close_lets_the_charge_end(has_room_for_one(), 0).await;
}

#[fiber]
async fn checks(bank: Res<Bank>) -> anyhow::Result<u64> {
    let (charged, noted) = steps!(
        step!("charge", effect, on_unknown = OnUnknown::check(async |_| bank.find().await), bank.charge().await),
        step!("note", bank.note().await)
    );
    Ok(charged + noted)
}

#[tokio::test(start_paused = true)]
async fn no_branch_begins_at_a_close_that_waits_for_a_check_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let bank = Bank::new();
    let builder = || Forever::builder().sqlite(folder.path().join("fibers.db")).resource(bank.clone()).fiber::<checks>();
    let state = &bank.0;
    let forever = builder().open().await.unwrap();
    forever.spawn(checks()).id("f").await.unwrap();
    eventually("both", async || state.begun.load(Relaxed) == 1 && state.resting.load(Relaxed) == 1).await;
    drop(forever);

    let forever = builder().open().await.unwrap();
    eventually("the check", async || state.begun.load(Relaxed) == 2).await;
    let closing = tokio::spawn({
        let forever = forever.clone();
        async move { forever.close().await }
    });
    forever.closing().await;
    settled().await;
    state.gate.add_permits(1);
    soon("the close", closing).await.unwrap().unwrap();
    assert_eq!((state.begun.load(Relaxed), state.resting.load(Relaxed)), (2, 1), "nothing has begun since");
    drop(forever);

    let forever = builder().open().await.unwrap();
    eventually("the other branch", async || state.resting.load(Relaxed) == 2).await;
    state.closes.notify_waiters();
    assert_eq!(soon("the end", forever.fiber::<checks>("f").wait()).await.unwrap(), 2);
    assert_eq!((state.begun.load(Relaxed), state.done.load(Relaxed)), (2, 1), "it is neither charged nor asked for again");
    forever.close().await.unwrap();
}

#[fiber]
async fn undoes(bank: Res<Bank>) -> anyhow::Result<u64> {
    let (asked, undone) = steps!(step!("ask", retry = soon_again(), bank.ask().await?), step!("work", |op| bank.undo(&op).await?));
    Ok(asked + undone)
}

#[fiber]
async fn undoes_an_effect(bank: Res<Bank>) -> anyhow::Result<u64> {
    let (asked, undone) = steps!(step!("ask", retry = hourly(), bank.ask().await?), step!("work", effect, |op| bank.undo(&op).await?));
    Ok(asked + undone)
}

async fn cancel_lets_it_be_undone<F: Fiber<Output = u64>>(call: F) {
    let (bank, name) = (Bank::new(), F::MACHINE.name);
    // Its grace never ends.
    let clock = VirtualClock::new();
    let builder = Forever::builder().in_memory().clock(clock.clone());
    let forever = builder.resource(bank.clone()).fiber::<F>().open().await.unwrap();
    let handle = forever.spawn(call).id("f").await.unwrap();
    let state = &bank.0;
    eventually(name, async || state.begun.load(Relaxed) == 1 && state.resting.load(Relaxed) == 1).await;
    settled().await;
    forever.cancel("f", "it is late").await.unwrap();
    settled().await;
    clock.advance(Duration::from_secs(1));
    settled().await;
    state.gate.add_permits(1);
    assert!(soon(name, handle.wait()).await.unwrap_err().is_cancelled(), "{name}");
    assert_eq!(state.done.load(Relaxed), 1, "{name}");
    forever.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn cancel_lets_a_branch_undo_what_it_has_done_whose_sibling_is_cut_off() {
    cancel_lets_it_be_undone(undoes()).await;
    cancel_lets_it_be_undone(undoes_an_effect()).await;
}

/// How an operation by hand ends that is joined with a charge.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Cut {
    Error,
    Unknown,
    /// It begins when the runtime closes.
    Late,
    /// It is in the body of another one, which waits for it.
    Inner,
}

const CUTS: [Cut; 4] = [Cut::Error, Cut::Unknown, Cut::Late, Cut::Inner];

impl Bank {
    /// The body of the operation that is cut off.
    async fn breaks_off(&self, cut: Cut, op: Op) -> anyhow::Result<u64> {
        if self.0.works.load(Relaxed) {
            return Ok(1);
        }
        self.0.resting.fetch_add(1, Relaxed);
        self.0.closes.notified().await;
        let error = anyhow::anyhow!("the pool is closed");
        Err(if cut == Cut::Unknown { op.unknown(error) } else { error })
    }
}

/// Two joined operations, of which a close cuts off the first.
macro_rules! joined {
    ($by:expr, $bank:expr, $cut:expr) => {{
        let (by, bank, cut) = ($by, $bank, $cut);
        let first = async {
            match cut {
                Cut::Error | Cut::Unknown => by.op("first", 1, async |op| bank.breaks_off(cut, op).await).await,
                Cut::Late => {
                    // A hook that is asked again does not wait.
                    if !bank.0.works.load(Relaxed) {
                        bank.note().await;
                    }
                    by.op("first", 1, async |_| bank.ask().await).await
                }
                Cut::Inner => by.op("outer", 1, async |_| by.op("first", 1, async |op| bank.breaks_off(cut, op).await).await).await,
            }
        };
        tokio::try_join!(first, by.op("charge", 1, async |_| anyhow::Ok(bank.charge().await)))
    }};
}

/// Closes while both operations are under way, and opens the gate then.
async fn close_within_joined(forever: Forever, bank: &Bank, cut: Cut) {
    let state = &bank.0;
    eventually("both operations", async || state.begun.load(Relaxed) == 1 && state.resting.load(Relaxed) == 1).await;
    settled().await;
    let closing = tokio::spawn(forever.close().into_future());
    forever.closing().await;
    state.closes.notify_waiters();
    settled().await;
    assert!(!closing.is_finished(), "{cut:?}: the charge is under way");
    state.gate.add_permits(1);
    soon("the close", closing).await.unwrap().unwrap();
    assert_eq!((state.begun.load(Relaxed), state.done.load(Relaxed)), (1, 1), "{cut:?}");
}

/// What the ledger has of the fiber; the operation that was cut off has begun unless it was late.
async fn charged_and_cut_off(forever: &Forever, cut: Cut) {
    let ops = sorted(words(&forever.ops("f").await.unwrap()));
    let expected: &[&str] = match cut {
        Cut::Error => &["charge completed 1", "first not_executed"],
        Cut::Unknown => &["charge completed 1", "first started"],
        Cut::Late => &["charge completed 1"],
        Cut::Inner => &["charge completed 1", "first not_executed", "outer started"],
    };
    assert_eq!(ops, expected, "{cut:?}");
}

#[tokio::test(start_paused = true)]
async fn close_lets_joined_operations_of_a_closure_end() {
    for cut in CUTS {
        let folder = tempfile::tempdir().unwrap();
        let (bank, clock) = (Bank::new(), VirtualClock::new());
        let open = || Forever::builder().sqlite(folder.path().join("fibers.db")).clock(clock.clone()).open();
        let forever = open().await.unwrap();
        let teller = bank.clone();
        let closure = forever.spawn_closure("shop", move |ctx| async move { joined!(&ctx, &teller, cut) });
        closure.id("f").start().await.unwrap();
        close_within_joined(forever, &bank, cut).await;

        let forever = open().await.unwrap();
        charged_and_cut_off(&forever, cut).await;
        forever.close().await.unwrap();
    }
}

#[fiber]
async fn joins(ctx: &FiberContext, bank: Res<Bank>, cut: u8) -> anyhow::Result<(u64, u64)> {
    let both = joined!(ctx, &*bank, CUTS[usize::from(cut)])?;
    Ok(step!("last", both))
}

#[tokio::test(start_paused = true)]
async fn close_lets_joined_operations_between_steps_end() {
    let folder = tempfile::tempdir().unwrap();
    let (bank, clock) = (Bank::new(), VirtualClock::new());
    let open = || {
        let builder = Forever::builder().sqlite(folder.path().join("fibers.db")).clock(clock.clone());
        builder.resource(bank.clone()).fiber::<joins>().open()
    };
    let forever = open().await.unwrap();
    forever.spawn(joins(0)).id("f").await.unwrap();
    close_within_joined(forever, &bank, Cut::Error).await;

    bank.0.works.store(true, Relaxed);
    let forever = open().await.unwrap();
    assert_eq!(soon("the fiber", forever.fiber::<joins>("f").wait()).await.unwrap(), (1, 1));
    assert_eq!(bank.0.begun.load(Relaxed), 1, "it is not charged again");
    forever.close().await.unwrap();
}

/// An agent whose hook finishes a closure with two joined operations.
struct Shop {
    bank: Bank,
    cut: Cut,
}

impl Agent for Shop {
    const CLASS: &'static str = "Shop";
    type State = ();

    async fn on_fiber_recovered(&self, fiber: &RecoveredFiber) -> Result<RecoveryAction, BoxError> {
        let (first, charged) = joined!(fiber, &self.bank, self.cut)?;
        Ok(RecoveryAction::complete(&(first + charged))?)
    }
}

#[tokio::test(start_paused = true)]
async fn close_lets_joined_operations_of_a_recovery_hook_end() {
    for cut in CUTS {
        let folder = tempfile::tempdir().unwrap();
        let (bank, clock) = (Bank::new(), VirtualClock::new());
        let builder = || -> Builder {
            let bank = bank.clone();
            let builder = Forever::builder().sqlite(folder.path().join("fibers.db")).clock(clock.clone());
            builder.agent(move |_: AgentHandle<Shop>| Shop { bank: bank.clone(), cut })
        };
        let forever = builder().open().await.unwrap();
        let closure = forever.spawn_closure("shop", async |_| std::future::pending::<anyhow::Result<u64>>().await);
        closure.id("f").agent("Shop", "corner").start().await.unwrap();
        forever.close().deadline(Duration::ZERO).await.unwrap();
        drop(forever);

        close_within_joined(builder().open().await.unwrap(), &bank, cut).await;
        bank.0.works.store(true, Relaxed);
        let forever = builder().open().await.unwrap();
        let handle = forever.find_fiber::<u64>("f").await.unwrap();
        if cut == Cut::Unknown {
            eventually("the hook", async || handle.status().await.unwrap().state == FiberState::Interrupted).await;
            charged_and_cut_off(&forever, cut).await;
        } else {
            assert_eq!(soon("the hook", handle.wait()).await.unwrap(), 2, "{cut:?}");
        }
        assert_eq!(bank.0.begun.load(Relaxed), 1, "{cut:?}: it is not charged again");
        forever.close().await.unwrap();
    }
}
