//! Ends a program at every write that it makes, and closes it there and before every poll of its
//! code. It compares the result with an uninterrupted run.
mod db_state;
mod process;
mod report;
mod steps;
mod stored;
#[cfg(feature = "postgres")]
mod stored_postgres;
mod torn_write;
mod world;

use std::fmt;
use std::fmt::Debug;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::time::Duration;

pub(super) use db_state::DbState;
use process::{Death, Script};
pub(super) use process::{Run, text_of};
pub(super) use report::differences;
use report::{Around, Report};
pub(super) use steps::Steps;
pub use world::World;

use super::dice::Dice;
use super::fuse::{At, Nth};
use crate::api::builder::Builder;
use crate::api::forever::Forever;

/// Default maximum time of a process.
const PATIENCE: Duration = Duration::from_secs(20);

/// Maximum number of deaths in a random run.
const DEATHS: u64 = 4;

/// Number of attempts to shorten a failed random run.
const SHRINKS: u32 = 60;
/// Number of attempts to reproduce a failure with one death less.
const TRIES: usize = 4;

/// Ends and closes a program at each of its writes, and compares it with an uninterrupted run.
///
/// `setup` returns the builder of a process, and is called at the beginning of each. `call` is the
/// program: it starts fibers under keys or ids, as a client does that retries after a crash, and
/// waits for them. It returns the value to compare.
///
/// First the program runs twice without interruption, and its writes are counted. Then, for each
/// write, it runs again in a fresh [world](World) until the moment before or after that write.
/// There its process dies; the database is opened again, `call` is called again, and it runs to its
/// end. Other runs do not die: their runtime is [closed](Forever::close) at the write, as in a deploy,
/// or before one of the polls of the code of fibers. The comparison covers
///
/// - the result of `call`;
/// - every [effect](World::effect), which must occur as often as in the uninterrupted run, and
///   every [attempt](World::attempt), at least as often;
/// - the database: each fiber by its function, arguments, key and parents, with its end; effects
///   and operations of the ledger with their outcomes; messages that were not received; schedules;
/// - how often the body of each step began: again only if the death or close left it unfinished;
/// - the events ([`Forever::events`]) against the database after the death: no event reports
///   anything that a death could still undo.
///
/// In memory ([`in_memory`](Builder::in_memory)) each death takes a millisecond or two. With a file
/// of the world ([`World::database`]) each process starts from what SQLite recovers after a crash.
///
/// ```
/// # use forever_runtime as forever;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use forever::Forever;
/// use forever::testing::crash_everywhere;
///
/// let survived = crash_everywhere(
///     |_world| Forever::builder().in_memory(),
///     async |forever: Forever| {
///         let order = forever.spawn_closure("order", |_| async { Ok::<_, forever::Error>(42) }).key("A-1");
///         order.await.ok()
///     },
/// )
/// .await;
/// // A closure is not resumed, so this program does not survive, as a `#[fiber]` would.
/// assert!(survived.unwrap_err().to_string().contains("the outcome is not the same"));
/// # }
/// ```
///
/// # Errors
/// [`CrashFailure`] when a run differs from the uninterrupted one, with a report; when two
/// uninterrupted runs differ; and when the uninterrupted run does not reach its end.
pub fn crash_everywhere<'a, S, C, R>(setup: S, call: C) -> CrashEverywhere<'a, S, C>
where
    S: Fn(&World) -> Builder + 'a,
    C: AsyncFn(Forever) -> R + 'a,
    R: Debug + PartialEq,
{
    CrashEverywhere { setup, call, random: None, most: usize::MAX, patience: PATIENCE, same_way: true, borrows: PhantomData }
}

/// A test by [`crash_everywhere`], run by `.await`.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::Forever;
/// use forever::testing::crash_everywhere;
///
/// # struct Counter;
/// # impl forever::agent::Agent for Counter {
/// #     const CLASS: &'static str = "counter";
/// #     type State = u64;
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let survived = crash_everywhere(
///     |_world| Forever::builder().in_memory().agent(|_| Counter),
///     async |forever: Forever| forever.agent::<Counter>("visits").set_state(&1).await.is_ok(),
/// )
/// .crash_randomly(7, 5)
/// .await
/// .unwrap();
/// assert!(survived.outcome && survived.deaths > 0);
/// # }
/// ```
#[must_use = "nothing crashes until this is awaited"]
pub struct CrashEverywhere<'a, S, C> {
    setup: S,
    call: C,
    random: Option<(u64, u32)>,
    /// Most runs of each kind.
    most: usize,
    patience: Duration,
    same_way: bool,
    /// Lifetime of the borrows of both closures.
    borrows: PhantomData<&'a ()>,
}

impl<S, C> CrashEverywhere<'_, S, C> {
    /// Adds `n` runs with up to four deaths or closes each, at moments drawn from `seed`.
    ///
    /// The program may also die while it opens and recovers from the last death. With a file, the
    /// unacknowledged commit is torn in some runs: its end is cut off or overwritten.
    ///
    /// A failing run is reported with as few deaths as possible.
    pub fn crash_randomly(mut self, seed: u64, n: u32) -> Self {
        self.random = Some((seed, n));
        self
    }

    /// Limits deaths, closes and random runs to `n` each. Defaults to every write and poll.
    ///
    /// The remaining deaths and closes are spread evenly over the program. For a program whose runs
    /// take long.
    pub fn at_most(mut self, n: usize) -> Self {
        self.most = n;
        self
    }

    /// Does not compare the database at the end, and how often steps began.
    ///
    /// For a program that may take another path when it is interrupted, as with
    /// [`OnUnknown::Fail`](crate::ops::OnUnknown::Fail).
    pub fn may_go_other_ways(mut self) -> Self {
        self.same_way = false;
        self
    }

    /// Sets how long a process may take before it counts as hanging. Defaults to 20 s.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }
}

impl<S, C> Debug for CrashEverywhere<'_, S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CrashEverywhere").field("random", &self.random).field("patience", &self.patience).finish_non_exhaustive()
    }
}

impl<'a, S, C, R> IntoFuture for CrashEverywhere<'a, S, C>
where
    S: Fn(&World) -> Builder + 'a,
    C: AsyncFn(Forever) -> R + 'a,
    R: Debug + PartialEq + 'a,
{
    type Output = Result<Survived<R>, CrashFailure>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { everywhere(&self).await })
    }
}

/// Result of a test that the program survived.
///
/// See [`CrashEverywhere`] for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Survived<R> {
    /// Result of the call, the same however often it is interrupted.
    pub outcome: R,
    /// Number of writes of an uninterrupted run.
    pub writes: u64,
    /// Number of runs besides the uninterrupted ones.
    pub runs: u64,
    /// Number of deaths in them.
    pub deaths: u64,
    /// Number of closes in them.
    pub closes: u64,
}

/// Failure of a program in the test; `Display` and `Debug` are the report.
///
/// See [`crash_everywhere`] for an example.
pub struct CrashFailure(String);

impl fmt::Display for CrashFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Debug for CrashFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl std::error::Error for CrashFailure {}

async fn everywhere<S, C, R>(test: &CrashEverywhere<'_, S, C>) -> Result<Survived<R>, CrashFailure>
where
    S: Fn(&World) -> Builder,
    C: AsyncFn(Forever) -> R,
    R: Debug + PartialEq,
{
    let script = Script { setup: &test.setup, call: &test.call, patience: test.patience, same_way: test.same_way };
    let whole = script.run(&[]).await;
    if let Err(why) = &whole.outcome {
        return Err(CrashFailure(format!("it does not come to its end even if nothing interrupts it: {why}\n{}", whole.end)));
    }
    let again = script.run(&[]).await;
    let differ = differences(&whole, &again, test.same_way);
    if !differ.is_empty() {
        let head = "two runs that nothing interrupts are not the same, so none can be compared with them\n";
        return Err(CrashFailure(format!("{head}{}", Report { run: &again, differences: differ, around: None })));
    }
    let writes = whole.processes.iter().map(|process| process.writes.len() as u64).sum();
    let polls: u64 = whole.processes.iter().map(|process| process.polls).sum();
    let most = most_runs(test.most);
    let (mut runs, mut deaths, mut closes) = (0, 0, 0);
    let mut count = |run: &Run<R>| {
        let (killed, clean) = run.ends();
        (runs, deaths, closes) = (runs + 1, deaths + killed, closes + clean);
    };
    let killed = (1..=writes).map(Nth::write).flat_map(|write| [At::Before(write), At::After(write)]).collect();
    let clean = (1..=writes).map(Nth::write).map(At::Write).chain((1..=polls).map(At::Poll)).collect();
    for all in <[Vec<At>; 2]>::from((killed, clean)) {
        for at in all.iter().copied().step_by(all.len().div_ceil(most.max(1)).max(1)) {
            let run = script.run(&[Death::at(at)]).await;
            check(&script, &whole, &run).await?;
            count(&run);
        }
    }
    if let Some((seed, n)) = test.random {
        let n = n.min(u32::try_from(most).unwrap_or(u32::MAX));
        for plan in plans(seed, n, writes, polls) {
            let run = script.run(&plan).await;
            if differences(&whole, &run, test.same_way).is_empty() {
                count(&run);
            } else {
                let shortest = shrink(&script, &whole, run).await;
                check(&script, &whole, &shortest).await?;
            }
        }
    }
    let outcome = whole.outcome.map_err(CrashFailure)?;
    Ok(Survived { outcome, writes, runs, deaths, closes })
}

/// Most runs of each kind. A variable limits them further: over a server each takes a hundred times
/// as long as in memory.
fn most_runs(most: usize) -> usize {
    std::env::var("FOREVER_TEST_DEATHS").ok().and_then(|limit| limit.parse().ok()).map_or(most, |limit: usize| limit.min(most))
}

/// Compares a run with the uninterrupted one; the error has the report.
async fn check<S, C, R>(script: &Script<'_, S, C>, whole: &Run<R>, run: &Run<R>) -> Result<(), CrashFailure>
where
    S: Fn(&World) -> Builder,
    C: AsyncFn(Forever) -> R,
    R: Debug + PartialEq,
{
    let differences = differences(whole, run, script.same_way);
    if differences.is_empty() {
        return Ok(());
    }
    let around = around(script, run).await;
    Err(CrashFailure(format!("it does not come through\n{}", Report { run, differences, around })))
}

/// The database around the last death of a run: repeats the same processes, ended on either side
/// of the write.
async fn around<S, C, R>(script: &Script<'_, S, C>, run: &Run<R>) -> Option<Around>
where
    S: Fn(&World) -> Builder,
    C: AsyncFn(Forever) -> R,
{
    let deaths: Vec<_> = run.processes.iter().filter_map(|process| process.death).collect();
    let (last, before) = deaths.split_last()?;
    let (At::Before(write) | At::After(write) | At::Write(write)) = last.at else { return None };
    let mut sides = Vec::new();
    for at in [At::Before(write), At::After(write)] {
        let plan: Vec<_> = before.iter().copied().chain([Death::at(at)]).collect();
        let again = script.run(&plan).await;
        sides.push(again.processes.into_iter().nth(before.len())?);
    }
    let after = sides.pop()?;
    let what = after.writes.last().copied().unwrap_or("none").to_owned();
    Some(Around { what, before: sides.pop()?.left, after: after.left })
}

/// The deaths of random runs.
fn plans(seed: u64, n: u32, writes: u64, polls: u64) -> impl Iterator<Item = Vec<Death>> {
    let mut dice = Dice::new(seed);
    (0..n).map(move |_| {
        let deaths = 1 + dice.below(DEATHS);
        let death = |_| {
            let write = Nth::write(1 + dice.below(writes.max(1)));
            let at = match dice.below(6) {
                0 | 1 => At::Before(write),
                2 | 3 => At::After(write),
                4 => At::Write(write),
                _ => At::Poll(1 + dice.below(polls.max(1))),
            };
            // Before a write, every commit was acknowledged.
            let torn = (matches!(at, At::After(_)) && dice.below(2) == 1).then(|| dice.below(u64::MAX));
            Death { at, torn }
        };
        (0..deaths).map(death).collect()
    })
}

/// The same failure with fewer and earlier deaths, as far as one is found. Writes are called by
/// their names: tasks that write side by side take turns in another order in each run.
async fn shrink<S, C, R>(script: &Script<'_, S, C>, whole: &Run<R>, mut run: Run<R>) -> Run<R>
where
    S: Fn(&World) -> Builder,
    C: AsyncFn(Forever) -> R,
    R: Debug + PartialEq,
{
    let mut left = SHRINKS;
    let mut plan: Vec<_> = run.processes.iter().filter_map(|process| process.named).collect();
    loop {
        // First with fewer: the moment of a death is not exact to the instruction, so a failure may
        // need several tries to show again.
        let mut simpler = Vec::new();
        for n in 0..plan.len() {
            let mut fewer = plan.clone();
            fewer.remove(n);
            simpler.extend(std::iter::repeat_n(fewer, TRIES));
        }
        for n in 0..plan.len() {
            let this = plan[n];
            for death in [this.numbered(|at| (at / 2).max(1)), this.numbered(|at| (at - 1).max(1)), Death { torn: None, ..this }] {
                if death != this {
                    let mut earlier = plan.clone();
                    earlier[n] = death;
                    simpler.push(earlier);
                }
            }
        }
        let mut found = false;
        for plan_again in simpler {
            if left == 0 {
                return run;
            }
            left -= 1;
            let again = script.run(&plan_again).await;
            if !differences(whole, &again, script.same_way).is_empty() {
                (run, plan, found) = (again, plan_again, true);
                break;
            }
        }
        if !found {
            return run;
        }
    }
}
