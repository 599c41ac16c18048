//! Lines: what the compiler and the machine say about a place in a fiber is the line where a person wrote it.
//!
//! Each place has a text of its own, and the test looks for that text in the line of this file that was named.
use std::cell::RefCell;
use std::panic::Location;
use std::sync::{Arc, Mutex, Once};

use forever::prelude::*;
use forever::testing::{From, Outcome, Played, Stage};

/// The lines that were noted, each with the text of its place.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<(String, u32)>>>);

impl Notes {
    /// Notes what `line!()` says.
    fn line(&self, place: &str, line: u32) {
        self.0.lock().unwrap().push((place.to_owned(), line));
    }

    /// Notes what the caller's location is.
    #[track_caller]
    fn here(&self, place: &str) {
        self.line(place, Location::caller().line());
    }

    /// Notes the lines of this file that a backtrace names, from inside out, without this function's own.
    #[inline(never)]
    fn trace(&self, place: &str) {
        let trace = std::backtrace::Backtrace::force_capture().to_string();
        let lines = trace.lines().filter_map(|text| text.trim().split_once("spans.rs:")?.1.split(':').next()?.parse().ok());
        match lines.into_iter().nth(1) {
            Some(line) => self.line(place, line),
            None => panic!("no line of this file in {trace}"),
        }
    }

    fn taken(&self) -> Vec<(String, u32)> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

fn source_line(line: u32) -> &'static str {
    include_str!("spans.rs").lines().nth(line as usize - 1).unwrap_or("")
}

/// The places that were noted, each on the line that has its text.
#[track_caller]
fn places(notes: &Notes) -> Vec<String> {
    let taken = notes.taken();
    for (place, line) in &taken {
        assert!(source_line(*line).contains(&format!("\"{place}\"")), "`{place}` is not on line {line}: {}", source_line(*line));
    }
    taken.into_iter().map(|(place, _)| place).collect()
}

async fn play<F: forever::Fiber>(notes: &Notes, from: From<F>, kill_after: Option<usize>) -> Played<F::Output> {
    Stage::new().resource(notes.clone()).play(from, kill_after).await
}

async fn done(n: u32) -> anyhow::Result<u32> {
    tokio::task::yield_now().await;
    Ok(n)
}

#[fiber]
async fn noted(notes: Res<Notes>, rounds: u32) -> anyhow::Result<u32> {
    notes.line("before the first step", line!());
    let mut total = step!("first", {
        notes.line("in the first step", line!());
        notes.trace("traced in the first step");
        done(rounds).await?
    });
    notes.here("after the first step");
    for round in 0..rounds {
        notes.trace("traced in the loop");
        if round == 1 {
            notes.line("in the arm", line!());
            total += step!("in the loop", retry = forever::Retry::times(2), {
                notes.here("in the step with a retry");
                done(round).await?
            });
            notes.here("after the step in the loop");
        }
    }
    match &total {
        0 => notes.here("never"),
        n => {
            notes.here("in the match");
            step!("in the match", { notes.line("in a step on one line", line!()); done(*n).await? });
            notes.trace("traced behind the last step");
        }
    }
    notes.line("at the end", line!());
    Ok(total)
}

#[tokio::test]
async fn lines_and_backtraces_are_the_users_in_one_go_and_after_each_resume() {
    let notes = Notes::default();
    let whole = play(&notes, From::Start(noted(2)), None).await;
    assert_eq!(whole.outcome, Outcome::Completed(3));
    let all = places(&notes);
    let want = [
        "before the first step",
        "in the first step",
        "traced in the first step",
        "after the first step",
        "traced in the loop",
        "traced in the loop",
        "in the arm",
        "in the step with a retry",
        "after the step in the loop",
        "in the match",
        "in a step on one line",
        "traced behind the last step",
        "at the end",
    ];
    assert_eq!(all, want);
    for (snapshot, done) in whole.snapshots.into_iter().zip([3, 8, 11]) {
        let resumed = play::<noted>(&notes, From::Snapshot(snapshot.clone()), None).await;
        assert_eq!(resumed.outcome, Outcome::Completed(3), "{snapshot}");
        assert_eq!(places(&notes), want[done..], "{snapshot}");
    }
}

/// Panics at the place that is asked for.
fn maybe_panic(at: &str, place: &str) -> bool {
    at == place
}

#[fiber]
async fn panics(at: String) -> anyhow::Result<u32> {
    if maybe_panic(&at, "start") {
        panic!("before the step");
    }
    let mut total = step!("first", {
        assert!(at != "step", "in the body of the step");
        done(1).await?
    });
    if maybe_panic(&at, "after") {
        None::<u32>.expect("behind the step");
    }
    while total < 3 {
        let list: Vec<u32> = Vec::new();
        if maybe_panic(&at, "index") {
            total = list[0]; // "index out of bounds: the len is 0 but the index is 0"
        }
        total += step!("again", done(1).await?);
        if maybe_panic(&at, "loop") && total == 3 {
            unreachable!("in the last round");
        }
    }
    if let Some(text) = at.strip_prefix("number ") {
        let number: u32 = text.parse().unwrap(); // "called `Result::unwrap()` on an `Err` value: ParseIntError { kind: InvalidDigit }"
        step!("number", done(number).await?);
    }
    Ok(total)
}

thread_local! {
    /// The line of this thread's last panic.
    static PANICKED: RefCell<Option<(String, u32)>> = const { RefCell::new(None) };
}

/// Notes where panics of this file are, and leaves the others to the hook before.
fn note_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| match info.location() {
            Some(location) if location.file().ends_with("spans.rs") && std::thread::current().name().is_some_and(|n| n.contains("panic")) => {
                PANICKED.set(Some((location.file().to_owned(), location.line())));
            }
            _ => before(info),
        }));
    });
}

#[tokio::test]
async fn a_panic_is_on_the_line_that_panics_also_after_a_resume() {
    note_panics();
    let notes = Notes::default();
    for (at, text, resumes_after) in [
        ("start", "before the step", 0),
        ("step", "in the body of the step", 0),
        ("after", "behind the step", 1),
        ("index", "index out of bounds: the len is 0 but the index is 0", 1),
        ("loop", "in the last round", 3),
        ("number x", "called `Result::unwrap()` on an `Err` value: ParseIntError { kind: InvalidDigit }", 3),
    ] {
        let whole = play(&notes, From::Start(panics(at.to_owned())), None).await;
        let (_, line) = PANICKED.take().unwrap_or_else(|| panic!("`{at}` does not panic: {:?}", whole.outcome));
        assert!(source_line(line).contains(text), "`{at}`: line {line} is {}", source_line(line));
        assert!(matches!(&whole.outcome, Outcome::Failed(why) if why.contains(text)), "`{at}`: {:?}", whole.outcome);
        assert_eq!(whole.snapshots.len(), resumes_after, "`{at}`");
        for snapshot in whole.snapshots {
            let resumed = play::<panics>(&notes, From::Snapshot(snapshot.clone()), None).await;
            let (_, again) = PANICKED.take().unwrap_or_else(|| panic!("`{at}` does not panic after {snapshot}: {:?}", resumed.outcome));
            assert_eq!(again, line, "`{at}` after {snapshot}");
        }
    }
}
