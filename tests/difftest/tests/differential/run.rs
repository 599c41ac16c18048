//! Runs the cases and compares.
use std::collections::BTreeSet;
use std::fmt::{Debug, Write};
use std::future::{Future, poll_fn};
use std::pin::pin;

#[cfg(not(difftest_plain))]
use forever::fiber::Fiber;
#[cfg(not(difftest_plain))]
use forever::testing::{Kill, Outcome, Stage, StageRun, StartFrom};
use forever_difftest::Io;

#[cfg(not(difftest_plain))]
use super::cases::CHOSEN;
use super::cases::{CASES, CONSTRUCTS, WHOLE};

/// A construct that fewer cases contain has gone from the generator.
const CASES_PER_CONSTRUCT: usize = 5;
/// Each case runs in so many outside worlds, so that more of its paths are taken.
const WORLDS: u64 = 6;
/// A body that is polled more often than this does not end.
const POLLS: usize = 100_000;

/// One generated body in its two renderings.
pub(crate) struct Case {
    pub(crate) number: u64,
    /// The fiber's text.
    pub(crate) source: &'static str,
    /// Indices of [`CONSTRUCTS`].
    pub(crate) constructs: &'static [usize],
    /// How many calls of `Io` the text contains.
    pub(crate) calls: u32,
    pub(crate) plain: fn(&Io) -> Result<String, String>,
    #[cfg(not(difftest_plain))]
    pub(crate) fiber: fn(&Stage, Begin, Kill) -> StageRun<String>,
}

/// Where a process begins.
#[cfg(not(difftest_plain))]
pub(crate) enum Begin {
    Start,
    Restart,
    Snapshot(String),
}

/// Why a fiber is parked whose effect was killed between its body and its checkpoint, if nothing else is said.
#[cfg(not(difftest_plain))]
const IN_DOUBT: &str = "may have executed";

/// Runs a plain function; the value as text.
pub(crate) fn run_plain<T: Debug>(plain: impl Future<Output = Result<T, String>>) -> Result<String, String> {
    block_on(plain).map(|value| format!("{value:?}"))
}

/// Plays a fiber; the value as text.
#[cfg(not(difftest_plain))]
pub(crate) fn run<F: Fiber>(stage: &Stage, begin: Begin, kill: Kill, start: fn() -> F) -> StageRun<String>
where
    F::Output: Debug,
{
    let from = match begin {
        Begin::Start => StartFrom::Start(start()),
        Begin::Restart => StartFrom::Restart(start()),
        Begin::Snapshot(text) => StartFrom::Snapshot(text),
    };
    let StageRun { snapshots, outcome } = block_on(stage.run_until(from, kill));
    let outcome = match outcome {
        Outcome::Completed(value) => Outcome::Completed(format!("{value:?}")),
        Outcome::Failed(why) => Outcome::Failed(why),
        Outcome::Parked(why) => Outcome::Parked(why),
        Outcome::Killed => Outcome::Killed,
        Outcome::Waiting => Outcome::Waiting,
    };
    StageRun { snapshots, outcome }
}

thread_local! {
    /// Waits take no time.
    static RUNTIME: tokio::runtime::Runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime of one thread");
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut polls = 0;
    let counted = poll_fn(|context| {
        polls += 1;
        assert!(polls < POLLS, "not ready after {POLLS} polls");
        future.as_mut().poll(context)
    });
    RUNTIME.with(|runtime| runtime.block_on(counted))
}

/// What a case came to.
#[derive(Default)]
struct Tally {
    checkpoints: usize,
    /// Attempts before which it left memory.
    pauses: usize,
    /// Runs killed before a checkpoint that went on, and those that parked because an effect was in doubt.
    repeated: usize,
    in_doubt: usize,
    /// Calls in the text, calls of these that were made in some world, and how many finished in all worlds.
    calls: u32,
    called: usize,
    finished: usize,
    /// Runs that ended in `Err`.
    failed: usize,
}

/// Runs a case in every way; `Err` is a report.
fn check(case: &Case, tally: &mut Tally) -> Result<(), String> {
    let mut called = BTreeSet::new();
    for world in 0..WORLDS {
        let seed = case.number * WORLDS + world;
        let io = Io::new(seed);
        io.enter();
        let expected = (case.plain)(&io);
        called.append(&mut io.called());
        tally.finished += io.log().iter().filter(|line| line.starts_with("finished")).count();
        tally.failed += usize::from(expected.is_err());
        #[cfg(not(difftest_plain))]
        {
            Differential { case, world: seed, expected, log: io.log() }.check(tally)?;
        }
    }
    tally.calls += case.calls;
    // The calls of the children are numbered from 9001.
    tally.called += called.range(..9000).count();
    Ok(())
}

/// A case and what its plain rendering did.
#[cfg(not(difftest_plain))]
struct Differential<'a> {
    case: &'a Case,
    world: u64,
    expected: Result<String, String>,
    log: Vec<String>,
}

#[cfg(not(difftest_plain))]
impl Differential<'_> {
    fn check(&self, tally: &mut Tally) -> Result<(), String> {
        let (io, stage) = self.stage();
        let whole = (self.case.fiber)(&stage, Begin::Start, Kill::Never);
        self.compare("not killed", None, &whole.outcome, &io)?;
        // How long the log was when each checkpoint was made.
        let mut done = vec![0];
        for k in 1..=whole.snapshots.len() {
            done.push(self.killed_once(k, &whole.snapshots)?);
        }
        for k in 1..=whole.snapshots.len() {
            let went_on = self.killed_before(k, done[k - 1])?;
            *(if went_on { &mut tally.repeated } else { &mut tally.in_doubt }) += 1;
        }
        self.killed_always(whole.snapshots.len())?;
        tally.pauses += self.paused()?;
        tally.checkpoints += whole.snapshots.len();
        Ok(())
    }

    /// Two processes: the first is killed right before its `k`-th checkpoint, and the world forgets what it did since the one
    /// before. Whether the second went on, and was not parked because an effect is in doubt.
    fn killed_before(&self, k: usize, done: usize) -> Result<bool, String> {
        let (io, stage) = self.stage();
        let manner = format!("killed before checkpoint {k}");
        let first = (self.case.fiber)(&stage, Begin::Start, Kill::Before(k));
        let snapshot = first.snapshots.last();
        if first.outcome != Outcome::Killed || first.snapshots.len() != k - 1 {
            let what = format!("{} checkpoints, then {:?}", first.snapshots.len(), first.outcome);
            return Err(self.report(&manner, snapshot, &what, &io));
        }
        io.rewind(done);
        let begin = snapshot.map_or(Begin::Restart, |snapshot| Begin::Snapshot(snapshot.clone()));
        io.enter();
        let second = (self.case.fiber)(&stage, begin, Kill::Never);
        if matches!(&second.outcome, Outcome::Parked(why) if why.contains(IN_DOUBT)) {
            return Ok(false);
        }
        self.compare(&manner, snapshot, &second.outcome, &io)?;
        Ok(true)
    }

    fn stage(&self) -> (Io, Stage) {
        self.stage_that(Io::dies)
    }

    /// A stage whose processes end so.
    fn stage_that(&self, ends: fn(&Io)) -> (Io, Stage) {
        let io = Io::new(self.world);
        let world = io.clone();
        let stage = Stage::new().resource(io.clone()).fiber::<super::cases::children::total>().on_kill(move || ends(&world));
        io.enter();
        io.letters().iter().for_each(|(topic, number)| stage.send(topic, number));
        (io, stage)
    }

    /// Two processes: the first is killed after its `k`-th checkpoint. How long the log was then.
    fn killed_once(&self, k: usize, whole: &[String]) -> Result<usize, String> {
        let (io, stage) = self.stage();
        let manner = format!("killed after checkpoint {k}");
        let first = (self.case.fiber)(&stage, Begin::Start, Kill::After(k));
        let done = io.log().len();
        let Some(snapshot) = first.snapshots.last() else {
            return Err(self.report(&manner, None, "it made no checkpoint", &io));
        };
        if first.outcome != Outcome::Killed || first.snapshots.len() != k {
            let what = format!("{} checkpoints, then {:?}", first.snapshots.len(), first.outcome);
            return Err(self.report(&manner, Some(snapshot), &what, &io));
        }
        io.enter();
        let second = (self.case.fiber)(&stage, Begin::Snapshot(snapshot.clone()), Kill::Never);
        self.compare(&manner, Some(snapshot), &second.outcome, &io)?;
        // What the second process stores must be what one process would have stored.
        let stored: Vec<&String> = first.snapshots.iter().chain(&second.snapshots).collect();
        let different = (0..whole.len().max(stored.len())).find(|i| whole.get(*i) != stored.get(*i).copied());
        if let Some(i) = different {
            let what = format!("checkpoint {} differs:\nin one process  {:?}\nafter resuming  {:?}", i + 1, whole.get(i), stored.get(i));
            return Err(self.report(&manner, Some(snapshot), &what, &io));
        }
        Ok(done)
    }

    /// Two processes: the first leaves memory before the `k`-th attempt of a step with `retry`, for each `k`. How many there are.
    fn paused(&self) -> Result<usize, String> {
        for k in 1.. {
            let (io, stage) = self.stage_that(Io::leaves_memory);
            let manner = format!("out of memory before attempt {k}");
            let mut first = (self.case.fiber)(&stage, Begin::Start, Kill::AtAttempt(k));
            if first.outcome != Outcome::Waiting {
                self.compare(&manner, None, &first.outcome, &io)?;
                return Ok(k - 1);
            }
            let Some(snapshot) = first.snapshots.pop() else {
                return Err(self.report(&manner, None, "it stored no snapshot", &io));
            };
            io.enter();
            let second = (self.case.fiber)(&stage, Begin::Snapshot(snapshot.clone()), Kill::Never);
            self.compare(&manner, Some(&snapshot), &second.outcome, &io)?;
        }
        unreachable!("its attempts have an end")
    }

    /// As many processes as checkpoints: each is killed after the first that it makes.
    fn killed_always(&self, checkpoints: usize) -> Result<(), String> {
        let (io, stage) = self.stage();
        let mut snapshot: Option<String> = None;
        for process in 1..=checkpoints + 1 {
            let manner = format!("killed after every checkpoint, process {process}");
            let begin = snapshot.clone().map_or(Begin::Start, Begin::Snapshot);
            io.enter();
            let mut played = (self.case.fiber)(&stage, begin, Kill::After(1));
            if played.outcome != Outcome::Killed {
                return self.compare(&manner, snapshot.as_ref(), &played.outcome, &io);
            }
            snapshot = played.snapshots.pop();
        }
        let what = format!("still going after {checkpoints} checkpoints");
        Err(self.report("killed after every checkpoint", snapshot.as_ref(), &what, &io))
    }

    fn compare(&self, manner: &str, snapshot: Option<&String>, outcome: &Outcome<String>, io: &Io) -> Result<(), String> {
        let expected = match &self.expected {
            Ok(value) => Outcome::Completed(value.clone()),
            Err(why) => Outcome::Failed(why.clone()),
        };
        if *outcome != expected {
            return Err(self.report(manner, snapshot, &format!("the result differs: {outcome:?}"), io));
        }
        let log = io.log();
        let mut finished: Vec<&str> = log.iter().filter_map(|line| line.strip_prefix("finished ")?.split(' ').next()).collect();
        finished.sort_unstable();
        if let Some([call, ..]) = finished.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(self.report(manner, snapshot, &format!("call {call} finished twice"), io));
        }
        // A value that went with its process is not dropped in the next one.
        let expected: Vec<String> = self.log.iter().filter(|line| !io.is_lost(line)).cloned().collect();
        if log != expected {
            let at = log.iter().zip(&expected).take_while(|(a, b)| a == b).count();
            return Err(self.report(manner, snapshot, &format!("the logs differ from line {}", at + 1), io));
        }
        Ok(())
    }

    fn report(&self, manner: &str, snapshot: Option<&String>, what: &str, io: &Io) -> String {
        let Case { number, source, .. } = self.case;
        let logs = |log: &[String]| log.join("\n    ");
        format!(
            "case {number} in world {}, {manner}: {what}\n\n{source}\nsnapshot: {}\nplain result: {:?}\nplain log:\n    {}\nfiber log:\n    {}\n\
             again: {CHOSEN} FOREVER_DIFFTEST_ONLY={number} cargo test -p forever-difftest\n",
            self.world,
            snapshot.map_or("none", String::as_str),
            self.expected,
            logs(&self.log),
            logs(&io.log()),
        )
    }
}

#[test]
fn a_fiber_killed_at_every_checkpoint_does_what_the_plain_function_does() {
    let mut tally = Tally::default();
    let mut reports = Vec::new();
    for case in CASES {
        if CASES.len() == 1 {
            println!("{}", case.source);
        }
        reports.extend(check(case, &mut tally).err());
    }
    let Tally { checkpoints, pauses, repeated, in_doubt, calls, called, finished, failed } = tally;
    println!(
        "cases={} runs={} killed_at={checkpoints} paused_at={pauses} killed_before={repeated} in_doubt={in_doubt} calls_finished={finished} calls_reached={called}/{calls} ended_in_err={failed} \
         failing_cases={}",
        CASES.len(),
        CASES.len() as u64 * WORLDS,
        reports.len()
    );
    for report in reports.iter().take(3) {
        println!("\n{report}");
    }
    assert!(reports.is_empty(), "{} of {} cases differ; the first ones are above", reports.len(), CASES.len());
    if WHOLE && cfg!(not(difftest_plain)) {
        assert!(checkpoints > 20 * CASES.len(), "only {checkpoints} checkpoints: the bodies have become too small");
        assert!(pauses > CASES.len() / 2, "only {pauses} pauses: the bodies retry too little");
        assert!(repeated > 15 * CASES.len() && in_doubt > CASES.len() / 4, "{repeated} went on, {in_doubt} were in doubt");
    }
}

#[test]
fn every_construct_occurs() {
    let count = |construct: usize| CASES.iter().filter(|case| case.constructs.contains(&construct)).count();
    let mut table = String::new();
    let mut rare = Vec::new();
    for (index, construct) in CONSTRUCTS.iter().enumerate() {
        let cases = count(index);
        writeln!(table, "{cases:5} {construct}").expect("a string takes everything");
        if cases < CASES_PER_CONSTRUCT {
            rare.push(*construct);
        }
    }
    println!("cases that contain each construct:\n{table}");
    if WHOLE {
        assert!(rare.is_empty(), "fewer than {CASES_PER_CONSTRUCT} cases contain {rare:?}");
    }
}
