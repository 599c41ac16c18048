//! The comparison of how fibers end with what the interpreter says.
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use forever::layout::Verdict;
use forever::testing::VirtualClock;
use forever_testkit::database;
use forever_testkit::prng::Prng;

use crate::counts::{Counts, about, has_remedy, listed};
use crate::deploy::{End, Version, snapshot};
use crate::known::{moved, moved_between, must_resume};
use crate::model::edit::Edit;
use crate::model::program::{Function, Kind, On, PASSES, Program};
use crate::oracle::{WAITS, run};
use crate::state::{Outcome, State, Stop};
use crate::{model, versions};

/// A program and its code.
#[derive(Clone, Copy)]
pub(crate) struct Side<'a> {
    pub(crate) program: &'a Program,
    pub(crate) code: &'a Version,
}

/// A fiber that was left somewhere.
pub(crate) struct Left<'a> {
    pub(crate) by: Side<'a>,
    pub(crate) path: PathBuf,
    pub(crate) state: State,
    pub(crate) clock: VirtualClock,
}

/// What the code before said of all that it may have left.
#[derive(Clone, Copy)]
struct Said {
    can_resume: bool,
    /// Whether every run goes to the end of its chain.
    of_fields: bool,
}

pub(crate) struct Judge {
    pub(crate) counts: Counts,
    /// The databases.
    pub(crate) paths: BTreeSet<PathBuf>,
    folder: tempfile::TempDir,
    stops: usize,
    printed: usize,
    prng: Prng,
}

fn number(name: &str) -> Option<usize> {
    std::env::var(name).ok().filter(|text| !text.is_empty()).map(|text| text.parse().expect("it is a number"))
}

/// Threads that judge: a fiber mostly waits.
const THREADS: usize = 4;

#[test]
fn fibers_go_on_under_edited_code_as_their_state_says_or_are_parked() {
    let cases = model::cases(versions::SEED, versions::EDITS);
    let only = number("FOREVER_EDITS_ONLY");
    let judged: Vec<(usize, usize)> = (0..cases.len())
        .filter(|number| only.is_none_or(|only| only == *number))
        .flat_map(|number| (0..cases[number].edits.len()).map(move |edit| (number, edit)))
        .collect();
    let next = AtomicUsize::new(0);
    let judge = || {
        let all = versions::versions();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut counts = Counts::default();
        while let Some(&(number, edit)) = judged.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (case, code) = (&cases[number], &all[number]);
            let old = Side { program: &case.program, code: &code[0] };
            let sides: Vec<_> = case.edits.iter().zip(&code[1..]).map(|((_, program), code)| Side { program, code }).chain([old]).collect();
            let mut judge = Judge::new(number, edit);
            let done = &case.edits[edit].0;
            let of_fields = done.iter().any(|edit| edit.is_of_fields());
            runtime.block_on(judge.edit(&format!("case {number} {done:?}"), old, sides[edit], &sides, of_fields));
            counts.add_all(&judge.counts);
        }
        counts
    };
    let mut counts = Counts::default();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(judge)).collect();
        for thread in threads {
            counts.add_all(&thread.join().unwrap());
        }
    });
    let where_to = if database::is_in_postgres() { "Postgres" } else { "SQLite" };
    println!("seed={} edits={} on {where_to}:{counts}", versions::SEED, versions::EDITS);
    let mut by_edit: BTreeMap<String, usize> = BTreeMap::new();
    for edit in cases.iter().flat_map(|case| &case.edits).flat_map(|(done, _)| done) {
        *by_edit.entry(format!("{edit:?}")).or_default() += 1;
    }
    let mut by_kind: BTreeMap<&str, usize> = BTreeMap::new();
    for node in cases.iter().flat_map(|case| case.program.functions().flat_map(Function::nodes)) {
        *by_kind.entry(node.kind.text()).or_default() += 1;
    }
    println!("edits: {}\nnodes: {}", listed(&by_edit), listed(&by_kind));
    let faults = ["failures", "disagreements", "without_remedy"].map(|what| counts.of(what));
    assert_eq!(faults, [0; 3], "failures, disagreements, reasons without a remedy: see above");
    if only.is_none() && versions::EDITS >= Edit::ALL.len() {
        assert!(Edit::ALL.iter().all(|edit| by_edit.contains_key(&format!("{edit:?}"))), "{by_edit:?}");
        assert!(Kind::ALL.iter().all(|kind| by_kind.contains_key(kind)), "{by_kind:?}");
    }
}

impl Judge {
    fn new(case: usize, edit: usize) -> Self {
        Judge {
            counts: Counts::default(),
            paths: BTreeSet::new(),
            folder: tempfile::tempdir().unwrap(),
            stops: number("FOREVER_EDITS_STOPS").unwrap_or(12),
            printed: 0,
            prng: Prng::of_case(versions::SEED, (1 << 32) + case as u64, edit as u64),
        }
    }

    async fn edit<'a>(&mut self, what: &str, old: Side<'a>, new: Side<'a>, all: &[Side<'a>], of_fields: bool) {
        for (from, to, back) in [(old, new, false), (new, old, true)] {
            let what = format!("{what}{}", if back { " undone" } else { "" });
            let said = Said { can_resume: to.code.can_resume(from.code), of_fields };
            let is_safe = to.code.is_safe_after(from.code);
            if is_safe != said.can_resume {
                self.disagree(&what, &format!("`layout::check!` says safe: {is_safe}, `can_resume` {}", said.can_resume), None);
            }
            let Outcome { stops, .. } = run(from.program, &State::default());
            for (number, stop) in self.some(stops).into_iter().enumerate() {
                let what = format!("{what} at {:?}", stop.how);
                let Some(left) = self.leave(&what, from, None, &stop).await else { continue };
                self.counts.add_if("downgrades", back);
                self.judge(&what, &left, to, Some(said)).await;
                if database::is_in_postgres() {
                    self.fleet(&what, &left, to).await;
                }
                if number % 3 == 0 || said.of_fields {
                    self.chain(&what, left, [from, to], all).await;
                }
            }
        }
        if database::is_in_postgres() {
            for path in &self.paths {
                database::remove(path).await;
            }
        }
    }

    /// Lets the other code run a while, and the first one again, and so on. What comes last is often back where it came from, else a third
    /// version.
    async fn chain<'a>(&mut self, what: &str, mut left: Left<'a>, [from, to]: [Side<'a>; 2], all: &[Side<'a>]) {
        let mut what = what.to_owned();
        for leg in 0..=self.prng.below(3) {
            let [there, back] = if leg % 2 == 0 { [to, from] } else { [from, to] };
            let Outcome { end, stops } = run(there.program, &left.state);
            if end.is_err() || stops.is_empty() || !must_resume(left.by.program, there.program, &left.state) {
                return;
            }
            let later: Vec<Stop> = stops.iter().filter(|stop| stop.log.len() > 1).cloned().collect();
            let stop = self.prng.one_of(if later.is_empty() { &stops } else { &later });
            what = format!("{what}, and then at {:?}", stop.how);
            let Some(next) = self.leave(&what, there, Some(&left), &stop).await else { return };
            left = next;
            self.counts.add("there_and_back");
            self.counts.add_if("there_and_back_twice", leg > 0);
            let next = if self.prng.chance(50) { back } else { self.prng.one_of(all) };
            self.judge(&what, &left, next, None).await;
        }
    }

    fn some(&mut self, mut stops: Vec<Stop>) -> Vec<Stop> {
        while stops.len() > self.stops {
            stops.remove(self.prng.below(stops.len()));
        }
        stops
    }

    async fn leave<'a>(&mut self, what: &str, by: Side<'a>, from: Option<&Left<'_>>, stop: &Stop) -> Option<Left<'a>> {
        self.counts.add("runs");
        let path = self.folder.path().join(format!("{}.db", self.counts.of("runs")));
        let clock = from.map_or_else(VirtualClock::new, |left| left.clock.clone());
        match by.code.bring(from.map(|left| &*left.path), stop, &path, &clock).await {
            Ok(()) => {
                self.paths.insert(path.clone());
                Some(Left { by, path, state: stop.state.clone(), clock })
            }
            Err(why) => {
                self.fail(what, &why, from);
                None
            }
        }
    }

    async fn judge(&mut self, what: &str, left: &Left<'_>, to: Side<'_>, said: Option<Said>) {
        let (old, new) = (left.by.program, to.program);
        let (end, log, verdict) = self.finish(left, to, "new").await;
        let expected = Expected::of(old, new, &left.state);
        self.counts.add_if("must_resume", expected.must);
        self.counts.add_if("must_park", expected.end.is_err());
        self.counts.add_if("moved", expected.moved);
        self.counts.add_if("moved_between", expected.moved_between);
        self.counts.add_if("resumed", matches!(end, End::Completed(_)));
        self.counts.add_if("parked", matches!(end, End::Parked(_)));
        if let Some(wrong) = expected.wrong(&end, &log) {
            self.fail(what, &wrong, Some(left));
        }
        let End::Parked(reason) = &end else {
            if let Verdict::Parks { reason } = &verdict {
                self.disagree(what, &format!("check says that it parks, and {end:?}: {reason}"), Some(left));
            }
            return;
        };
        *self.counts.parked.entry(about(reason)).or_default() += 1;
        if said.is_some_and(|said| said.can_resume) {
            *self.counts.not_in_layouts.entry(about(reason)).or_default() += 1;
            if about(reason) == "layout" {
                self.disagree(what, &format!("can_resume says Ok, and it parks: {reason}"), Some(left));
            }
        }
        if verdict == Verdict::Resumes {
            self.disagree(what, &format!("check says that it resumes, and it parks: {reason}"), Some(left));
        }
        if !has_remedy(reason) {
            self.counts.add("without_remedy");
            self.print("NO REMEDY", what, reason, Some(left));
        }
        self.again(what, left, &log).await;
    }

    /// What was parked goes on under the code that left it. What was found of one effect in doubt before another parked the fiber is not asked for
    /// again.
    async fn again(&mut self, what: &str, left: &Left<'_>, parked: &[String]) {
        let (end, log, _) = self.finish(left, left.by, "old").await;
        let expected = run(left.by.program, &left.state).end;
        let right = match (&end, &expected) {
            (End::Completed(result), Ok((right, calls))) => {
                let is_known = |line: &String| is_found_of_a_branch(line) && parked.contains(line);
                result == right && log.iter().eq(calls.iter().filter(|line| !is_known(line)))
            }
            (End::Parked(_), Err(_)) | (End::Waits, Err(WAITS)) => true,
            _ => false,
        };
        if !right {
            self.fail(
                &format!("{what}, parked, again under its own code"),
                &format!("{end:?} after {log:?} in place of {expected:?}"),
                Some(left),
            );
        }
    }

    /// The first code that looks at the database works on a copy, the second on what that one has left.
    async fn finish(&mut self, left: &Left<'_>, by: Side<'_>, which: &str) -> (End, Vec<String>, Verdict) {
        self.counts.add("runs");
        let path = left.path.with_extension("copy");
        if which == "new" {
            self.copy(left, &path).await;
        }
        by.code.finish(&path, &topics_of([left.by.program, by.program]), &left.clock).await
    }

    /// Copies what was left, in the place of another copy.
    pub(crate) async fn copy(&mut self, left: &Left<'_>, to: &Path) {
        if !database::is_in_postgres() {
            remove(to);
        }
        self.paths.insert(to.to_owned());
        database::copy(&left.path, to).await;
    }

    fn disagree(&mut self, what: &str, why: &str, left: Option<&Left<'_>>) {
        self.counts.add("disagreements");
        self.print("DISAGREEMENT", what, why, left);
    }

    pub(crate) fn fail(&mut self, what: &str, why: &str, left: Option<&Left<'_>>) {
        self.counts.add("failures");
        self.print("FAILURE", what, why, left);
    }

    fn print(&mut self, kind: &str, what: &str, why: &str, left: Option<&Left<'_>>) {
        self.printed += 1;
        if self.printed <= 60 || std::env::var_os("FOREVER_EDITS_ONLY").is_some() {
            println!("{kind} {what}: {why}\n    stored: {}", left.map_or_else(String::new, |left| snapshot(&left.path)));
        }
    }
}

/// What has to come of a fiber.
pub(crate) struct Expected {
    pub(crate) end: Result<(i64, Vec<String>), &'static str>,
    /// Whether it must not be parked.
    pub(crate) must: bool,
    /// Whether a step has moved across its place.
    pub(crate) moved: bool,
    /// Whether a step has moved across its place into a function that is called, or out of one.
    pub(crate) moved_between: bool,
}

impl Expected {
    pub(crate) fn of(old: &Program, new: &Program, state: &State) -> Self {
        let end = run(new, state).end;
        let must = end.is_ok() && must_resume(old, new, state);
        let (moved, moved_between) = (moved(old, new, state).is_some(), moved_between(old, new, state).is_some());
        Expected { end, must, moved, moved_between }
    }

    /// What is wrong with an end, and the calls that were answered until then.
    pub(crate) fn wrong(&self, end: &End, log: &[String]) -> Option<String> {
        let internal = ["__", "Items<", "Rest<", "alloc::", "forever_runtime::"];
        match (end, &self.end) {
            (End::Completed(_), _) if self.moved => Some(format!("{log:?}, but a step has moved across its place")),
            (End::Completed(result), Ok((right, calls))) if result == right && log == *calls => None,
            (End::Completed(result), Ok((right, calls))) => Some(format!("{result} after {log:?} in place of {right} after {calls:?}")),
            (End::Completed(result), Err(why)) => Some(format!("{result} after {log:?}, but {why}")),
            (End::Parked(reason), _) if reason.is_empty() || internal.iter().any(|part| reason.contains(part)) => {
                Some(format!("the reason is {reason:?}"))
            }
            (End::Parked(reason), Ok(expected)) if self.must => Some(format!("it is parked ({reason}) in place of {expected:?}")),
            (End::Parked(reason), _)
                if log.iter().any(|line| !line.starts_with('n') && !line.starts_with("end") && !is_found_of_a_branch(line)) =>
            {
                Some(format!("it is parked ({reason}) after {log:?}"))
            }
            (End::Parked(_), _) | (End::Waits, Err(WAITS)) => None,
            (End::Failed(_) | End::Waits, expected) => Some(format!("{end:?} after {log:?} in place of {expected:?}")),
        }
    }
}

/// The topics of which a message comes.
pub(crate) fn topics_of(programs: [&Program; 2]) -> Vec<String> {
    let all: BTreeSet<String> = programs.into_iter().flat_map(topics).collect();
    all.into_iter().collect()
}

/// Of several effects in doubt side by side each is asked for by itself, also where another parks the fiber.
fn is_found_of_a_branch(line: &str) -> bool {
    line.starts_with("?~")
}

fn topics(program: &Program) -> Vec<String> {
    let topic = |kind: &Kind| match kind {
        Kind::Recv { topic, hours, .. } if *hours != PASSES => Some(topic.clone()),
        Kind::Select { arms, wins, .. } => arms.iter().find(|arm| arm.id == *wins).and_then(|arm| match &arm.on {
            On::Topic(topic) => Some(topic.clone()),
            On::Hours(_) => None,
        }),
        _ => None,
    };
    program.functions().flat_map(Function::nodes).filter_map(|node| topic(&node.kind)).collect()
}

/// A database with what SQLite has put beside it.
fn remove(path: &Path) {
    for beside in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(beside);
        _ = std::fs::remove_file(name);
    }
}
