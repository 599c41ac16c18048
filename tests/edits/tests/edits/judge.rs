//! The comparison of how fibers end with what the interpreter says.
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use forever::layout::Verdict;
use forever::testing::VirtualClock;
use forever_testkit::prng::Prng;

use crate::deploy::{End, Version, snapshot};
use crate::known::{moved, must_resume};
use crate::model::edit::Edit;
use crate::model::program::{Function, Kind, Program};
use crate::oracle::run;
use crate::state::{Outcome, State, Stop};
use crate::{model, versions};

#[derive(Default)]
struct Counts {
    runs: usize,
    resumed: usize,
    parked: usize,
    must: usize,
    must_park: usize,
    /// Runs in which a step has moved across the place of the fiber.
    moved: usize,
    downgrades: usize,
    there_and_back: usize,
    disagreements: usize,
    failures: usize,
}

/// A program and its code.
#[derive(Clone, Copy)]
struct Side<'a> {
    program: &'a Program,
    code: &'a Version,
}

/// A fiber that was left somewhere.
struct Left<'a> {
    by: Side<'a>,
    path: PathBuf,
    state: State,
    clock: VirtualClock,
}

struct Judge {
    counts: Counts,
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
            runtime.block_on(judge.edit(&format!("case {number} {:?}", case.edits[edit].0), old, sides[edit], &sides));
            counts.add(&judge.counts);
        }
        counts
    };
    let mut counts = Counts::default();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(judge)).collect();
        for thread in threads {
            counts.add(&thread.join().unwrap());
        }
    });
    let Counts { runs, resumed, parked, must, must_park, moved, downgrades, there_and_back, disagreements, failures } = counts;
    println!(
        "seed={} edits={} runs={runs} resumed={resumed} parked={parked} must_resume={must} must_park={must_park} moved={moved} downgrades={downgrades} \
         there_and_back={there_and_back} disagreements={disagreements} failures={failures}",
        versions::SEED,
        versions::EDITS
    );
    assert_eq!((failures, disagreements), (0, 0), "see above");
    if only.is_none() && versions::EDITS >= Edit::ALL.len() {
        let edits: BTreeSet<_> = cases.iter().flat_map(|case| &case.edits).flat_map(|(done, _)| done).collect();
        let kinds: BTreeSet<_> =
            cases.iter().flat_map(|case| case.program.functions().flat_map(Function::nodes)).map(|node| node.kind.text()).collect();
        assert!(Edit::ALL.iter().all(|edit| edits.contains(edit)), "{edits:?}");
        assert!(Kind::ALL.iter().all(|kind| kinds.contains(kind)), "{kinds:?}");
    }
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        let Counts { runs, resumed, parked, must, must_park, moved, downgrades, there_and_back, disagreements, failures } = other;
        self.runs += runs;
        self.resumed += resumed;
        self.parked += parked;
        self.must += must;
        self.must_park += must_park;
        self.moved += moved;
        self.downgrades += downgrades;
        self.there_and_back += there_and_back;
        self.disagreements += disagreements;
        self.failures += failures;
    }
}

impl Judge {
    fn new(case: usize, edit: usize) -> Self {
        Judge {
            counts: Counts::default(),
            folder: tempfile::tempdir().unwrap(),
            stops: number("FOREVER_EDITS_STOPS").unwrap_or(12),
            printed: 0,
            prng: Prng::of_case(versions::SEED, (1 << 32) + case as u64, edit as u64),
        }
    }

    async fn edit(&mut self, what: &str, old: Side<'_>, new: Side<'_>, all: &[Side<'_>]) {
        for (from, to, back) in [(old, new, false), (new, old, true)] {
            let what = format!("{what}{}", if back { " undone" } else { "" });
            let resumes_all = to.code.can_resume(from.code);
            let Outcome { stops, .. } = run(from.program, &State::default());
            for (number, stop) in self.some(stops).into_iter().enumerate() {
                let what = format!("{what} at {:?}", stop.how);
                let Some(left) = self.leave(&what, from, None, &stop).await else { continue };
                self.counts.downgrades += usize::from(back);
                self.judge(&what, &left, to, Some(resumes_all)).await;
                if number % 3 == 0 {
                    // Often back to where it came from, else on to a third version.
                    let next = if self.prng.chance(50) { from } else { self.prng.one_of(all) };
                    self.there_and_back(&what, left, to, next).await;
                }
            }
        }
    }

    /// Lets the other code run a while, and the first one go on.
    async fn there_and_back(&mut self, what: &str, left: Left<'_>, there: Side<'_>, back: Side<'_>) {
        let Outcome { end, stops } = run(there.program, &left.state);
        if end.is_err() || stops.is_empty() || !must_resume(left.by.program, there.program, &left.state) {
            return;
        }
        let stop = self.prng.one_of(&stops);
        let what = format!("{what}, and then at {:?}", stop.how);
        let Some(left) = self.leave(&what, there, Some(&left), &stop).await else { return };
        self.counts.there_and_back += 1;
        self.judge(&what, &left, back, None).await;
    }

    fn some(&mut self, mut stops: Vec<Stop>) -> Vec<Stop> {
        while stops.len() > self.stops {
            stops.remove(self.prng.below(stops.len()));
        }
        stops
    }

    async fn leave<'a>(&mut self, what: &str, by: Side<'a>, from: Option<&Left<'_>>, stop: &Stop) -> Option<Left<'a>> {
        self.counts.runs += 1;
        let path = self.folder.path().join(format!("{}.db", self.counts.runs));
        let clock = from.map_or_else(VirtualClock::new, |left| left.clock.clone());
        match by.code.bring(from.map(|left| &*left.path), stop, &path, &clock).await {
            Ok(()) => Some(Left { by, path, state: stop.state.clone(), clock }),
            Err(why) => {
                self.fail(what, &why, from);
                None
            }
        }
    }

    async fn judge(&mut self, what: &str, left: &Left<'_>, to: Side<'_>, resumes_all: Option<bool>) {
        let (old, new) = (left.by.program, to.program);
        let (end, log, verdict) = self.finish(left, to, "new").await;
        let expected = run(new, &left.state).end;
        let must = expected.is_ok() && must_resume(old, new, &left.state);
        self.counts.must += usize::from(must);
        self.counts.must_park += usize::from(expected.is_err());
        match (&end, &expected) {
            (End::Completed(_), _) => self.counts.resumed += 1,
            (End::Parked(_), _) => self.counts.parked += 1,
            _ => {}
        }
        let moved = moved(old, new, &left.state);
        self.counts.moved += usize::from(moved.is_some());
        let wrong = match (&end, &expected) {
            (End::Completed(_), _) if moved.is_some() => Some(format!("{log:?}, but {moved:?} has moved across its place")),
            (End::Completed(result), Ok((right, calls))) if result == right && log == *calls => None,
            (End::Completed(result), Ok((right, calls))) => Some(format!("{result} after {log:?} in place of {right} after {calls:?}")),
            (End::Completed(result), Err(why)) => Some(format!("{result} after {log:?}, but {why}")),
            (End::Parked(reason), _)
                if reason.is_empty()
                    || ["__", "Items<", "Rest<", "alloc::", "forever_runtime::"].iter().any(|part| reason.contains(part)) =>
            {
                Some(format!("the reason is {reason:?}"))
            }
            (End::Parked(reason), Ok(expected)) if must => Some(format!("it is parked ({reason}) in place of {expected:?}")),
            (End::Parked(reason), _)
                if log.iter().any(|line| !line.starts_with('n') && !line.starts_with("end") && !is_found_of_a_branch(line)) =>
            {
                Some(format!("it is parked ({reason}) after {log:?}"))
            }
            (End::Parked(_), _) => None,
            (End::Failed(_) | End::Waits, _) => Some(format!("{end:?} after {log:?} in place of {expected:?}")),
        };
        if let Some(wrong) = wrong {
            self.fail(what, &wrong, Some(left));
        }
        if let End::Parked(reason) = &end {
            let of_layout = reason.contains("cannot resume: ");
            if of_layout && resumes_all == Some(true) {
                self.disagree(what, &format!("can_resume says Ok, and it parks: {reason}"), left);
            }
            if of_layout && verdict == Verdict::Resumes {
                self.disagree(what, &format!("check says that it resumes, and it parks: {reason}"), left);
            }
            self.again(what, left, &log).await;
        } else if let Verdict::Parks { reason } = &verdict {
            self.disagree(what, &format!("check says that it parks, and {end:?}: {reason}"), left);
        }
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
            (End::Parked(_), Err(_)) => true,
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

    /// The first code that looks at the file works on a copy, the second on what that one has left.
    async fn finish(&mut self, left: &Left<'_>, by: Side<'_>, which: &str) -> (End, Vec<String>, Verdict) {
        self.counts.runs += 1;
        let path = left.path.with_extension("copy");
        if which == "new" {
            remove(&path);
            std::fs::copy(&left.path, &path).unwrap();
        }
        let topics: BTreeSet<String> = [left.by.program, by.program].into_iter().flat_map(topics).collect();
        by.code.finish(&path, &topics.into_iter().collect::<Vec<_>>(), &left.clock).await
    }

    fn disagree(&mut self, what: &str, why: &str, left: &Left<'_>) {
        self.counts.disagreements += 1;
        self.print("DISAGREEMENT", what, why, Some(left));
    }

    fn fail(&mut self, what: &str, why: &str, left: Option<&Left<'_>>) {
        self.counts.failures += 1;
        self.print("FAILURE", what, why, left);
    }

    fn print(&mut self, kind: &str, what: &str, why: &str, left: Option<&Left<'_>>) {
        self.printed += 1;
        if self.printed <= 60 || std::env::var_os("FOREVER_EDITS_ONLY").is_some() {
            println!("{kind} {what}: {why}\n    stored: {}", left.map_or_else(String::new, |left| snapshot(&left.path)));
        }
    }
}

/// Of several effects in doubt side by side each is asked for by itself, also where another parks the fiber.
fn is_found_of_a_branch(line: &str) -> bool {
    line.starts_with("?~")
}

fn topics(program: &Program) -> Vec<String> {
    let topic = |kind: &Kind| if let Kind::Recv { topic, .. } = kind { Some(topic.clone()) } else { None };
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
