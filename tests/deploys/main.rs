//! Rolling deploys in [`forever::testing::cluster`]: workers close while others run, busy ones take
//! long between two calls of the store, some are idle, and clocks are wrong.
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use forever::Builder;
use forever::fiber::FiberErrorKind;
use forever::ops::{Op, OpResolution, OpState};
use forever::prelude::*;
use forever::testing::{Cluster, Defect, Interleavings, World, cluster};
use forever_testkit::sizes;

/// Jobs of a run.
const JOBS: u64 = 5;

/// Rounds of a job.
const ROUNDS: u64 = 6;

const SHORT: Duration = Duration::from_millis(40);

/// A step that takes its time, stores how far it has come, and is handed over as its runtime closes.
async fn count(world: &World, op: &Op) -> anyhow::Result<u64> {
    let mut done: u64 = op.stashed()?.unwrap_or_default();
    while done < 12 {
        tokio::time::sleep(SHORT).await;
        done += 1;
        world.attempt(format!("part {done}"));
        op.stash(&done).await?;
        if op.is_closing() {
            return Err(op.interrupted().into());
        }
    }
    Ok(done)
}

/// Takes a time that `n` decides.
async fn slow(world: &World, what: &str, n: u64) -> u64 {
    tokio::time::sleep(SHORT * u32::try_from(n % 4).unwrap()).await;
    world.attempt(format!("{what} {n}"));
    n
}

/// A bank, which carries out whatever it is asked, also a second time.
#[derive(Clone, Debug, Default)]
struct Bank(Arc<Mutex<BTreeMap<String, u64>>>);

impl Bank {
    async fn charge(&self, world: &World, op: &Op, n: u64) -> u64 {
        world.effect(format!("charge {n}"));
        self.0.lock().unwrap().insert(op.id().to_owned(), n);
        tokio::time::sleep(SHORT / 2).await;
        n
    }

    fn find(&self, id: &str) -> Option<u64> {
        self.0.lock().unwrap().get(id).copied()
    }
}

/// Advances a step or two, waits, and is woken at once.
#[fiber]
async fn job(world: Res<World>, bank: Res<Bank>, number: u64) -> anyhow::Result<u64> {
    let mut sum = 0;
    for round in 0..ROUNDS {
        let n = number * 10 + round;
        sum += step!("first", slow(&world, "first", n).await);
        sleep!(SHORT / 4);
        match round % 3 {
            0 => sum += step!("charge", effect, |op| bank.charge(&world, op, n).await),
            1 => {
                let (left, right) = steps!(slow(&world, "left", n).await, step!("right", effect, |op| bank.charge(&world, op, n).await));
                sum += left + right;
            }
            _ => sum += step!("count", |op| count(&world, op).await?),
        }
        let more: u64 = recv!("more");
        sum += more;
    }
    Ok(sum)
}

thread_local! {
    /// The bank of this run, which is in this thread alone.
    static BANK: RefCell<Bank> = RefCell::default();
}

fn shop(world: &World) -> Builder {
    let bank = world.shared::<Bank>();
    BANK.set(bank.clone());
    Forever::builder().resource(world.clone()).resource(bank).fiber::<job>()
}

/// The result of a job. An effect whose worker was closed before it could store the result is in
/// doubt: a person asks the bank.
async fn result(forever: &Forever, id: &str) -> u64 {
    loop {
        match forever.fiber::<job>(id).wait().await {
            Ok(sum) => return sum,
            Err(error) if error.kind() == FiberErrorKind::Parked => {}
            Err(error) => panic!("{error}"),
        }
        for op in forever.ops(id).await.unwrap().into_iter().filter(|op| op.state == OpState::Started) {
            let how = BANK.with_borrow(|bank| bank.find(&op.id));
            let how = how.map_or(OpResolution::NotExecuted, |n| OpResolution::completed(&n).unwrap());
            // Another worker may run the fiber by now.
            let _ = forever.resolve_op(&op.id, how).await;
        }
    }
}

/// Starts the jobs, and sends each what it waits for as soon as it can.
async fn deploy(forever: Forever) -> Vec<u64> {
    for number in 0..JOBS {
        forever.spawn(job(number)).id(format!("job {number}")).await.unwrap();
    }
    for round in 0..ROUNDS {
        for number in 0..JOBS {
            let id = format!("job {number}");
            // One that has ended needs none.
            let sent = forever.send(&id, "more", &round).message_id(format!("more {round}")).await;
            if let Err(error) = sent {
                assert!(error.is_invalid_state(), "{error}");
            }
        }
        tokio::time::sleep(SHORT * 2).await;
    }
    let mut sums = Vec::new();
    for number in 0..JOBS {
        sums.push(result(&forever, &format!("job {number}")).await);
    }
    sums
}

/// Ten deploys of four workers, of which one is idle.
fn series(seed: u64) -> Cluster {
    cluster(seed, 4).idle(1).deploys(10)
}

/// Seeds of a run of the night. The gate's are too few for the rarest interleaving.
const SEEDS: u32 = 100;

#[track_caller]
fn are_met(met: Interleavings) {
    println!("{met:?}");
    assert!(met.overtaken > 0 && met.claims_refused > 0, "{met:?}");
    assert!(met.advanced_and_woken > 0, "{met:?}");
    assert!(met.stored_and_released > 0 || sizes::crashes(SEEDS) < SEEDS, "{met:?}");
}

/// Calls of the program panic when a fault hinders them, and are repeated. That is not shown.
fn hide_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let in_call = panic.location().is_some_and(|at| at.file().ends_with("deploys/main.rs"));
            let text = panic.payload().downcast_ref::<String>().map_or("", String::as_str);
            if !in_call || text.contains(": seed ") || !text.contains("`Result::unwrap()`") {
                before(panic);
            }
        }));
    });
}

#[test]
fn nothing_finished_is_carried_out_again_in_clean_rolling_deploys() {
    hide_panics();
    are_met(series(1).seeds(sizes::crashes(SEEDS)).without_faults().run(shop, deploy).unwrap().met);
}

#[test]
fn nothing_finished_is_carried_out_again_in_deploys_with_deaths_pauses_and_wrong_clocks() {
    hide_panics();
    let met = series(1).seeds(sizes::crashes(SEEDS)).skew(Duration::from_secs(600)).run(shop, deploy).unwrap().met;
    are_met(met);
    assert!(met.went_on > 0, "{met:?}");
}

#[test]
fn fiber_that_is_loaded_before_it_is_claimed_is_found_to_run_from_an_old_state() {
    hide_panics();
    let ran = series(1).seeds(200).without_faults().defect(Defect::LoadBeforeClaim).run(shop, deploy);
    let report = ran.unwrap_err().to_string();
    assert!(report.contains("and runs it from what it loaded"), "{report}");
}

#[test]
fn worker_that_goes_on_after_a_takeover_is_found_to_begin_bodies_without_its_lease() {
    hide_panics();
    let report = series(1).seeds(200).defect(Defect::NoLease).run(shop, deploy).unwrap_err().to_string();
    assert!(report.contains("without a claim that is in force"), "{report}");
}
