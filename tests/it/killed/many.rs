//! Many fibers at once, and one that kills its process.
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

use forever::fiber::{FiberFilter, FiberState};
use forever::prelude::*;
use forever_testkit::prng::Prng;

use super::process::{Desk, Place, Role, Worker};

const FIBERS: u32 = 200;
const STEPS: u32 = 6;

#[fiber]
pub(super) async fn sums(desk: Res<Desk>, number: u32) -> anyhow::Result<u64> {
    let mut sum = u64::from(number);
    for n in 1..=STEPS {
        sum = 31 * sum + step!(desk.work(&format!("{number} {n}"), u64::from(n)).await?);
    }
    Ok(sum)
}

fn sum(number: u32) -> u64 {
    (1..=STEPS).fold(u64::from(number), |sum, n| 31 * sum + u64::from(n))
}

/// A worker: starts all that are not there, and waits for all.
pub(super) async fn many(with: Role) {
    let forever = with.builder.open().await.unwrap();
    let mut handles = Vec::new();
    for number in 0..FIBERS {
        handles.push(forever.spawn(sums(number)).key(number.to_string()).await.unwrap());
        with.desk.write(&format!("accepted {number}"));
    }
    for handle in handles {
        handle.wait().await.unwrap();
    }
    forever.close().await.unwrap();
}

/// A line of the journal that is a step: its fiber and its number.
fn step_of(line: &str) -> Option<(String, u32)> {
    let (fiber, step) = line.split_once(' ')?;
    (fiber != "accepted").then(|| (fiber.to_owned(), step.parse().unwrap()))
}

#[tokio::test]
async fn two_hundred_fibers_killed_five_times_repeat_no_finished_step_and_none_is_lost() {
    let (place, mut prng) = (Place::new(), Prng::of_purpose(1, "many"));
    let mut finished = BTreeMap::new();
    let mut seen = 0;
    for kill in 0..=5_usize {
        if kill == 5 {
            assert!(Worker::last("many", &place).end().success());
        } else {
            let mut worker = Worker::start("many", &place);
            // The first one while they are started.
            let lines = 90 + 230 * kill + prng.below(60_usize);
            worker.until(&place, |journal| journal.len() >= lines, Duration::from_micros(prng.below(5000_u64)));
            worker.kill();
        }
        let journal = place.journal();
        for (fiber, step) in journal[seen..].iter().filter_map(|line| step_of(line)) {
            let stored = finished.get(&fiber).copied().unwrap_or(0);
            assert!(step > stored, "step {step} of {fiber} ran again after checkpoint {stored}");
        }
        seen = journal.len();
        let query = format!("SELECT key, coalesce(s.number, {STEPS}) FROM fibers f LEFT JOIN snapshots s ON s.fiber = f.seq");
        finished = place.stored().rows(&query).into_iter().collect();
        for accepted in journal.iter().filter_map(|line| line.strip_prefix("accepted ")) {
            assert!(finished.contains_key(accepted), "fiber {accepted} was accepted, and is lost");
        }
    }
    let forever = place.open().await;
    for number in 0..FIBERS {
        assert_eq!(forever.fiber_by_key::<sums>(&number.to_string()).await.unwrap().wait().await.unwrap(), sum(number));
    }
    let done = forever.fibers().filter(FiberFilter::new().state(FiberState::Completed)).limit(1000).await.unwrap();
    assert_eq!(done.fibers.len(), FIBERS as usize);
}

#[fiber(max_recoveries = 3)]
pub(super) async fn killer(desk: Res<Desk>) -> anyhow::Result<()> {
    step!("first", desk.work("killer begins", ()).await?);
    step!("last", {
        desk.write("killer kills");
        Command::new("kill").args(["-KILL", &std::process::id().to_string()]).status()?;
        std::future::pending::<()>().await;
    });
    Ok(())
}

/// A worker: its process dies of one of its fibers, until that one is given up.
pub(super) async fn among_others(with: Role) {
    let forever = with.builder.open().await.unwrap();
    let mut others = Vec::new();
    for number in 0..20 {
        others.push(forever.spawn(sums(number)).key(number.to_string()).await.unwrap());
    }
    let killer = forever.spawn(killer()).key("killer").await.unwrap();
    assert!(killer.wait().await.unwrap_err().is_failed());
    for other in others {
        other.wait().await.unwrap();
    }
    forever.close().await.unwrap();
}

#[tokio::test]
async fn a_fiber_that_kills_its_process_each_time_is_failed_after_its_recoveries_and_the_others_finish() {
    let place = Place::new();
    let ends: Vec<_> = (0..5).map(|_| Worker::last("among others", &place).end()).collect();
    assert!(ends[..4].iter().all(|end| end.signal() == Some(9)), "{ends:?}");
    assert!(ends[4].success(), "{ends:?}");
    let journal = place.journal();
    assert_eq!(journal.iter().filter(|line| *line == "killer begins").count(), 1);
    assert_eq!(journal.iter().filter(|line| *line == "killer kills").count(), 4, "entered once, recovered three times");
    let forever = place.open().await;
    let error = forever.fiber_by_key::<killer>("killer").await.unwrap().wait().await.unwrap_err();
    assert!(error.reason().starts_with("the process died 4 times"), "{error}");
    for number in 0..20 {
        assert_eq!(forever.fiber_by_key::<sums>(&number.to_string()).await.unwrap().wait().await.unwrap(), sum(number));
    }
}
