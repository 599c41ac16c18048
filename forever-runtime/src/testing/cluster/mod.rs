//! Runs a program on several workers over a modelled store, with faults drawn from a seed.
mod audit;
mod between_workers;
mod clock;
mod database;
mod faults;
mod lease;
mod operations;
mod run;
mod simulation;
mod store;
#[cfg(test)]
mod tests;

use std::fmt::{self, Debug, Write};
use std::time::Duration;

pub use audit::Interleavings;
use faults::Fault;
use run::{Ran, Script};
#[doc(hidden)]
pub use simulation::Defect;
use simulation::Plan;

use super::crash::{World, differences};
use crate::api::builder::Builder;
use crate::api::forever::Forever;

/// Default lease.
const LEASE: Duration = Duration::from_secs(10);

/// Default maximum of simulated time of the uninterrupted run.
const PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// How much longer than twice that run another one may take by default.
const LONGER: Duration = Duration::from_secs(60 * 60);

/// Most lines of a trace that a report shows.
const LINES: usize = 400;

/// Runs a program on several workers, with faults drawn from a seed, and compares it with an
/// uninterrupted run.
///
/// Every worker is a runtime of its own. All of them share one modelled store with leases, claims,
/// epochs and takeover, as on Postgres, and run in one thread in simulated time: an hour of three
/// idle workers takes about a second. By the seed, workers
///
/// - *crash*: everything of the worker is dropped, also in the middle of a write, and another
///   worker starts later;
/// - *restart*: the worker is closed, and another one starts; also one after the other, in
///   [`deploys`](Cluster::deploys);
/// - *pause*, for shorter or longer than their lease, as a process that gets `SIGSTOP`: no task of
///   the runtime is polled and no lease is renewed. Then it goes on, with claims that may be stale;
/// - are *cut off* from the store: calls fail, or their answers are lost;
/// - lose one answer ([`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown)).
///
/// Every call of the store takes a drawn time as well. A run with the same seed is the same run,
/// with the same trace.
///
/// [`run`](Cluster::run) checks that
///
/// - every fiber that was accepted ends, and the program gives the result of the uninterrupted run;
/// - every [effect](World::effect) occurs as often as there, every [attempt](World::attempt) at
///   least as often, and the database is the same at the end, as
///   [`crash_everywhere`](super::crash_everywhere) compares it;
/// - no body begins in a worker whose claim was taken over, also where it was paused, and no
///   finished step begins again. As after a crash, the body of a plain step may run twice, and an
///   effect has its [`OnUnknown`](crate::ops::OnUnknown);
/// - no worker runs a fiber from what it has loaded before another one stored more of it;
/// - no claim is given while another is in force, no write is accepted under a claim that is not,
///   and no acknowledged checkpoint is lost.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::Forever;
/// use forever::testing::cluster;
///
/// let survived = cluster(1, 3).seeds(5).run(
///     |_world| Forever::builder(),
///     async |forever: Forever| forever.workers().await.is_ok(),
/// );
/// assert!(survived.unwrap().outcome);
/// ```
///
/// # What is not modelled
///
/// Time passes only while all tasks wait. Tasks that the program starts itself run on while their
/// worker is paused, until they call the library. Random choices of the program, such as those of
/// `tokio::select!` without `biased`, and waits for real threads and sockets make a run another one
/// each time.
#[must_use = "nothing runs until `run` is called"]
pub fn cluster(seed: u64, workers: usize) -> Cluster {
    Cluster {
        seed,
        workers: workers.max(1),
        clients: 1,
        seeds: 1,
        lease: LEASE,
        patience: None,
        same_way: true,
        has_faults: true,
        deploys: 0,
        idle: 0,
        skew: Duration::ZERO,
        defect: None,
    }
}

/// Test by [`cluster`].
///
/// ```
/// # use forever_runtime as forever;
/// use forever::Forever;
/// use forever::testing::cluster;
/// use std::time::Duration;
///
/// # struct Counter;
/// # impl forever::agent::Agent for Counter {
/// #     const CLASS: &'static str = "counter";
/// #     type State = u64;
/// # }
/// let test = cluster(7, 2).seeds(2).lease(Duration::from_secs(5));
/// test.run(
///     |_world| Forever::builder().agent(|_| Counter),
///     async |forever: Forever| forever.agent::<Counter>("visits").set_state(&1).await.is_ok(),
/// )
/// .unwrap();
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing runs until `run` is called"]
pub struct Cluster {
    seed: u64,
    workers: usize,
    clients: usize,
    seeds: u32,
    lease: Duration,
    patience: Option<Duration>,
    same_way: bool,
    has_faults: bool,
    deploys: u32,
    idle: usize,
    skew: Duration,
    defect: Option<Defect>,
}

impl Cluster {
    /// Sets how many seeds are run, counted up from the first. Defaults to 1.
    pub fn seeds(mut self, seeds: u32) -> Self {
        self.seeds = seeds;
        self
    }

    /// Sets how many clients call the program at the same time, each on a drawn worker. Defaults
    /// to 1.
    ///
    /// All of them must get the same result, so the program starts everything under keys or ids.
    /// With several clients, agents are called from other workers than those that hold them.
    pub fn clients(mut self, clients: usize) -> Self {
        self.clients = clients.max(1);
        self
    }

    /// Sets the lease of a worker, in simulated time. Defaults to 10 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease.max(Duration::from_millis(100));
        self
    }

    /// Sets how much simulated time a run may take. Defaults to a day for the uninterrupted run,
    /// and to an hour more than twice its time for the others.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Does not compare the database at the end.
    ///
    /// For a program that may take another path when it is interrupted.
    pub fn may_go_other_ways(mut self) -> Self {
        self.same_way = false;
        self
    }

    /// Runs without faults, and explores only the order of calls.
    pub fn without_faults(mut self) -> Self {
        self.has_faults = false;
        self
    }

    /// Rolls out so many deploys: one worker after the other is closed and starts again, while the
    /// others run. Defaults to none.
    ///
    /// The workers are busy: some of their calls of the store take long. Meanwhile other workers
    /// claim a fiber, advance it and let it go. With [`without_faults`](Self::without_faults)
    /// nothing else happens to them.
    pub fn deploys(mut self, deploys: u32) -> Self {
        self.deploys = deploys;
        self
    }

    /// Sets how many of the workers are idle: the program is never called on them. Defaults to
    /// none.
    pub fn idle(mut self, idle: usize) -> Self {
        self.idle = idle;
        self
    }

    /// Sets how far the clocks of the workers differ at most from the store's. Defaults to zero.
    pub fn skew(mut self, skew: Duration) -> Self {
        self.skew = skew;
        self
    }

    /// Builds a defect into the model, to test the kit.
    #[doc(hidden)]
    pub fn defect(mut self, defect: Defect) -> Self {
        self.defect = Some(defect);
        self
    }

    /// Runs the program: once without faults, and once with each seed.
    ///
    /// `setup` returns the builder of a worker, without a database. It is called for each worker.
    /// Its clock and retention are replaced. `call` is the program, on one of the workers: it
    /// starts fibers under keys or ids, as a client does that retries, and waits for them. It is
    /// called again, on any worker, when its worker crashes, and when it panics or gives another
    /// result after a fault.
    ///
    /// # Errors
    /// [`ClusterFailure`] at the first seed whose run differs, with as few faults as possible; when
    /// the uninterrupted run does not reach its end; and inside of a tokio runtime, because each
    /// run has its own.
    pub fn run<S, C, R>(self, setup: S, call: C) -> Result<ClusterSurvived<R>, ClusterFailure>
    where
        S: Fn(&World) -> Builder,
        C: AsyncFn(Forever) -> R,
        R: Debug + PartialEq,
    {
        let script = Script { setup: &setup, call: &call, workers: self.workers, idle: self.idle, clients: self.clients };
        let failed = |report: String| ClusterFailure { seed: self.seed, report, trace: Vec::new() };
        if tokio::runtime::Handle::try_current().is_ok() {
            return Err(failed("it runs in tokio runtimes of its own: call it in a `#[test]`, not a `#[tokio::test]`".to_owned()));
        }
        let patience = self.patience.unwrap_or(PATIENCE);
        let quiet =
            Plan { seed: self.seed, faults: Vec::new(), lease: self.lease, patience, is_busy: false, skew: Duration::ZERO, defect: None };
        let whole = script.run(&quiet, None).map_err(failed)?;
        if whole.run.outcome.is_err() || !whole.violations.is_empty() {
            return Err(self.failure(self.seed, "it does not come to its end even without faults", &whole, &[], &[]));
        }
        let patience = self.patience.unwrap_or(whole.length * 2 + LONGER);
        let mut survived = Totals { faults: 0, simulated: whole.length, met: Interleavings::default(), trace: whole.trace.clone() };
        for seed in (self.seed..).take(self.seeds as usize) {
            let mut faults =
                if self.has_faults { faults::plan(seed, self.workers, whole.writes, whole.length, self.lease) } else { Vec::new() };
            faults.extend(faults::deploys(seed, self.workers, self.deploys, whole.length));
            let is_busy = self.deploys > 0;
            let plan = Plan { seed, faults, lease: self.lease, patience, is_busy, skew: self.skew, defect: self.defect };
            let ran = self.compare(&script, &whole, &plan).map_err(failed)?;
            if !ran.differences.is_empty() {
                let (plan, ran) = self.shrink(&script, &whole, plan, ran);
                return Err(self.failure(seed, "it does not come through", &ran.ran, &plan.faults, &ran.differences));
            }
            survived.faults += plan.faults.len() as u64;
            survived.met.add(ran.ran.met);
            survived.simulated += ran.ran.length;
            survived.trace = ran.ran.trace;
        }
        let outcome = whole.run.outcome.map_err(failed)?;
        let Totals { faults, simulated, met, trace } = survived;
        Ok(ClusterSurvived { outcome, seeds: self.seeds, faults, writes: whole.writes, simulated, met, trace })
    }

    /// Runs a plan, and compares it with the uninterrupted run.
    fn compare<S, C, R>(&self, script: &Script<'_, S, C>, whole: &Ran<R>, plan: &Plan) -> Result<Compared<R>, String>
    where
        S: Fn(&World) -> Builder,
        C: AsyncFn(Forever) -> R,
        R: Debug + PartialEq,
    {
        let ran = script.run(plan, whole.run.outcome.as_ref().ok())?;
        let mut differences = differences(&whole.run, &ran.run, self.same_way);
        differences.extend(ran.violations.iter().cloned());
        Ok(Compared { ran, differences })
    }

    /// The same failure with fewer faults, as far as one is found.
    fn shrink<S, C, R>(&self, script: &Script<'_, S, C>, whole: &Ran<R>, mut plan: Plan, mut ran: Compared<R>) -> (Plan, Compared<R>)
    where
        S: Fn(&World) -> Builder,
        C: AsyncFn(Forever) -> R,
        R: Debug + PartialEq,
    {
        let mut n = 0;
        while n < plan.faults.len() {
            let mut fewer = plan.clone();
            fewer.faults.remove(n);
            match self.compare(script, whole, &fewer) {
                Ok(again) if !again.differences.is_empty() => (plan, ran) = (fewer, again),
                _ => n += 1,
            }
        }
        (plan, ran)
    }

    fn failure<R: Debug>(&self, seed: u64, head: &str, ran: &Ran<R>, faults: &[Fault], differences: &[String]) -> ClusterFailure {
        let mut report = format!("{head}: seed {seed}, {} workers\n", self.workers);
        // Writing to a text does not fail.
        if let Err(why) = &ran.run.outcome {
            let _ = writeln!(report, "  {why}");
        }
        if !faults.is_empty() {
            report.push_str("\nfaults, as few as show it:\n");
        }
        for fault in faults {
            let _ = writeln!(report, "  {fault}");
        }
        if !differences.is_empty() {
            report.push_str("\nother than in a run without faults:\n");
        }
        for difference in differences.iter().chain(ran.violations.iter().filter(|there| !differences.contains(there))) {
            let _ = writeln!(report, "  {difference}");
        }
        report.push_str("\ntrace:\n");
        let left_out = ran.trace.len().saturating_sub(LINES);
        if left_out > 0 {
            let _ = writeln!(report, "  ({left_out} lines before)");
        }
        for line in &ran.trace[left_out..] {
            let _ = writeln!(report, "  {line}");
        }
        let _ = write!(report, "\nat the end:\n{}\nto repeat it: `cluster({seed}, {})`", ran.run.end, self.workers);
        ClusterFailure { seed, report, trace: ran.trace.clone() }
    }
}

/// A run, and what is other than in the uninterrupted one.
struct Compared<R> {
    ran: Ran<R>,
    differences: Vec<String>,
}

struct Totals {
    faults: u64,
    simulated: Duration,
    met: Interleavings,
    trace: Vec<String>,
}

/// Result of a test by [`cluster`] that the program survived.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::testing::ClusterSurvived;
///
/// fn report<R>(survived: &ClusterSurvived<R>) {
///     println!("{} faults in {} seeds", survived.faults, survived.seeds);
///     println!("{} of {} claims were late", survived.met.overtaken, survived.met.claims);
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterSurvived<R> {
    /// Result of the call, the same with every seed.
    pub outcome: R,
    /// Number of seeds.
    pub seeds: u32,
    /// Number of faults that were planned.
    pub faults: u64,
    /// Number of writes of the uninterrupted run.
    pub writes: u64,
    /// Simulated time of all runs.
    pub simulated: Duration,
    /// How often interleavings were met in the runs with a seed.
    pub met: Interleavings,
    /// The events of the last run, one a line.
    pub trace: Vec<String>,
}

/// Failure of a program in [`cluster`]; `Display` and `Debug` are the report.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::testing::ClusterFailure;
///
/// /// The seed repeats the run: `cluster(seed, 3).run(..)`.
/// fn report(failure: &ClusterFailure) {
///     eprintln!("{failure}");
///     eprintln!("seed {}:\n{}", failure.seed(), failure.trace().join("\n"));
/// }
/// ```
pub struct ClusterFailure {
    seed: u64,
    report: String,
    trace: Vec<String>,
}

impl ClusterFailure {
    /// The seed that fails.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The events of the run, one a line.
    pub fn trace(&self) -> &[String] {
        &self.trace
    }
}

impl fmt::Display for ClusterFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.report)
    }
}

impl Debug for ClusterFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl std::error::Error for ClusterFailure {}
