//! Fibers with which the process has died so often that one of them may be why: they are entered one at a time.
use std::sync::Arc;
use std::time::Duration;

use forever_runtime::Forever;
use forever_runtime::fiber::FiberState;
use forever_runtime::testing::VirtualClock;
use forever_testkit::waiting::settled;
use tokio::sync::Semaphore;

use crate::fibers::{Three, three};
use crate::support::{Place, Plan, Probe};

/// How long a suspect that makes no checkpoint keeps the others waiting.
const SUSPECT_TIME: Duration = Duration::from_secs(1);

/// Three suspects, the first of them in its second step, and the others behind it.
struct Suspects {
    probe: Probe,
    clock: VirtualClock,
    forever: Forever,
    /// Lets the first one make a checkpoint.
    gate: Arc<Semaphore>,
    _place: Place,
}

impl Suspects {
    async fn open() -> Self {
        let (place, probe) = (Place::new(), Probe::default());
        let forever = place.open(&probe).await;
        for label in ["a", "b", "c", "healthy"] {
            probe.hold(&format!("{label}.two"));
            forever.spawn(three(label)).id(label).await.unwrap();
            probe.reached(&format!("{label}.two")).await;
        }
        drop(forever);
        let deaths = "UPDATE snapshots SET deaths = 3 WHERE fiber IN (SELECT seq FROM fibers WHERE id <> 'healthy')";
        assert_eq!(place.sql().execute(deaths, ()).unwrap(), 3);
        probe.clear();
        let gate = probe.hold("a.two");
        for step in ["a.three", "b.two", "c.two"] {
            probe.hold(step);
        }
        let clock = VirtualClock::new();
        let forever = place.builder(&probe).clock(clock.clone()).open().await.unwrap();
        probe.reached("a.two").await;
        // It is the youngest: when it has been claimed, all claims that the others may ask for have been asked for.
        forever.fiber::<Three>("healthy").wait().await.unwrap();
        Suspects { probe, clock, forever, gate, _place: place }
    }

    /// Whether a fiber is claimed: other fibers that begin and end meanwhile are stored behind all claims that were asked for, and let those
    /// ask that may.
    async fn is_claimed(&self, id: &str) -> bool {
        for n in 0..10 {
            self.forever.run(three(&format!("other {n}"))).await.unwrap();
            if self.state(id).await == FiberState::Running {
                return true;
            }
        }
        false
    }

    async fn state(&self, id: &str) -> FiberState {
        self.forever.fiber::<Three>(id).status().await.unwrap().state
    }
}

#[tokio::test(start_paused = true)]
async fn suspect_is_entered_when_the_one_before_it_has_made_a_checkpoint() {
    let world = Suspects::open().await;
    for waits in ["b", "c"] {
        assert_eq!(world.state(waits).await, FiberState::Interrupted, "{waits} is not claimed before its turn");
    }
    world.gate.add_permits(1);
    world.probe.reached("a.three").await;
    assert!(world.is_claimed("b").await);
    assert_eq!(world.state("a").await, FiberState::Running);
    assert_eq!(world.state("c").await, FiberState::Interrupted);
}

#[tokio::test(start_paused = true)]
async fn suspect_without_a_checkpoint_keeps_the_next_one_waiting_for_a_while_at_most() {
    let world = Suspects::open().await;
    assert_eq!(world.state("b").await, FiberState::Interrupted);
    while world.clock.next_sleeper() != Some(SUSPECT_TIME) {
        settled().await;
    }
    world.clock.advance(SUSPECT_TIME);
    world.probe.reached("b.two").await;
    assert_eq!(world.probe.times("a.three"), 0);
}

/// A process dies in the first step of each of these, whatever else runs.
#[tokio::test(start_paused = true)]
async fn fibers_that_kill_their_process_do_not_hold_healthy_ones_back() {
    const HEALTHY: u64 = 12;
    for seed in 0..12_u64 {
        let killers = 1 + seed % 3;
        let labels: Vec<String> = (0..HEALTHY + killers).map(|n| format!("{n}")).collect();
        // Their places among the others, by turns at the beginning, in the middle and at the end.
        let is_killer = |n: u64| (0..killers).any(|killer| (seed / 3 * 5 + killer * (1 + seed % 4)) % (HEALTHY + killers) == n);
        let healthy: Vec<&String> = labels.iter().zip(0..).filter(|(_, n)| !is_killer(*n)).map(|(label, _)| label).collect();
        let (place, probe) = (Place::new(), Probe::default());
        let forever = place.open(&probe).await;
        for label in &labels {
            probe.hold(&format!("{label}.one"));
            forever.spawn(three(label)).id(label).await.unwrap();
            probe.reached(&format!("{label}.one")).await;
        }
        drop(forever);
        probe.clear();
        for label in labels.iter().filter(|label| !healthy.contains(label)) {
            probe.plan(&format!("{label}.one"), Plan::Die);
        }
        let not_done = "SELECT count(*) FROM fibers WHERE state <> 'completed'";
        let mut starts = 0;
        while place.number(not_done) > i64::try_from(killers).unwrap() {
            starts += 1;
            // Up to three deaths any of them may be to blame. Then each killer dies alone, at most once, before the others have made progress,
            // and once more before they have ended.
            assert!(starts <= 4 + 2 * killers, "{starts} starts beside {killers} killers, seed {seed}");
            probe.revive();
            let forever = place.builder(&probe).clock(VirtualClock::new()).open().await.unwrap();
            probe.died().await;
            drop(forever);
        }
    }
}

/// Between the look at its row and its claim a fiber may be changed by a command: then it is not this activation that may run it.
#[tokio::test(start_paused = true)]
async fn activation_whose_fiber_has_ended_before_its_claim_runs_nothing() {
    let world = Suspects::open().await;
    world.forever.cancel("b", "enough").await.unwrap();
    world.probe.hold("b.two").add_permits(1);
    world.gate.add_permits(1);
    // Its turn comes after the one that was cancelled.
    world.probe.reached("a.three").await;
    assert!(world.is_claimed("c").await);
    assert_eq!(world.probe.times("b.two"), 0);
    assert_eq!(world.state("b").await, FiberState::Cancelled);
}
