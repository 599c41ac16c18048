//! Lines, panic locations and backtraces inside a fiber are the user's, also after a resume.
use std::backtrace::Backtrace;
use std::panic::Location;
use std::sync::Mutex;

use forever::prelude::*;
use forever::testing::{StartFrom, Outcome, Stage};

use super::harness::{Io, everywhere};

#[track_caller]
fn here() -> u32 {
    Location::caller().line()
}

const BASE: u32 = line!();
#[fiber]
async fn lines(io: Res<Io>, n: u32) -> anyhow::Result<Vec<u32>> {
    let mut out = vec![line!() - BASE, here() - BASE]; // 3
    let a = step!(io.did("a", line!() - BASE).await?); // 4
    out.push(a);
    out.push(here() - BASE); // 6
    for i in 0..n {
        out.push(line!() - BASE + i * 0); // 8
        match step!("b", io.did("b", here() - BASE).await?) {
            9 => out.push(here() - BASE), // 10
            other => out.push(other),
        }
        if i == 0 {
            let inside = step!({
                let x = here() - BASE; // 15
                io.did("inside", x).await?
            });
            out.push(inside);
            out.push(line!() - BASE); // 19
        }
    }
    out.push((|| here() - BASE)()); // 22
    Ok(out)
}

#[test]
fn line_and_caller_locations_are_those_of_the_source() {
    let (outcome, ..) = everywhere(|| lines(2));
    assert_eq!(outcome, "Completed([3, 3, 4, 6, 8, 10, 15, 19, 8, 10, 22])");
}

static PANIC: u32 = line!();
#[fiber]
async fn panics(io: Res<Io>, n: u32) -> anyhow::Result<u32> {
    let list = step!(io.did("list", vec![1, 2]).await?);
    let x = if n == 0 {
        list[n as usize + 2] // 5
    } else if n == 1 {
        step!("in", { assert!(list.is_empty(), "not empty"); 1 }) // 7
    } else {
        step!("other", io.did("other", ()).await?);
        None.unwrap() // 10
    };
    Ok(x)
}

/// Where the fiber panics, without a kill and after a resume from each of its snapshots.
fn panic_places(n: u32) -> Vec<(String, u32, u32)> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    thread_local!(static SEEN: std::cell::RefCell<Option<(String, u32, u32)>> = const { std::cell::RefCell::new(None) });
    let before = std::panic::take_hook();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    std::panic::set_hook(Box::new(|info| {
        let at = info.location().unwrap();
        SEEN.set(Some((at.file().to_owned(), at.line(), at.column())));
    }));
    let mut places = Vec::new();
    let mut play = |from| {
        let played = runtime.block_on(Stage::new().resource(Io::default()).run::<panics>(from, None));
        places.push((matches!(played.outcome, Outcome::Failed(_)), SEEN.take()));
        played.snapshots
    };
    let snapshots = play(StartFrom::Start(panics(n)));
    for snapshot in snapshots {
        play(StartFrom::Snapshot(snapshot));
    }
    std::panic::set_hook(before);
    places.into_iter().map(|(failed, place)| { assert!(failed); place.unwrap() }).collect()
}

#[test]
fn a_panic_is_located_in_the_users_line_also_after_a_resume() {
    for (n, line, runs) in [(0, 5, 2), (1, 7, 2), (2, 10, 3)] {
        let places = panic_places(n);
        assert_eq!(places.len(), runs);
        for (file, at, column) in places {
            assert!(file.ends_with("spans.rs"), "{file}");
            assert_eq!(at - PANIC, line);
            assert!(column > 1);
        }
    }
}

static TRACED: u32 = line!();
#[fiber]
async fn traced(io: Res<Io>, n: u32) -> anyhow::Result<Vec<String>> {
    let mut out = Vec::new();
    out.push(frames(&Backtrace::force_capture())); // 4
    for _ in 0..n {
        let text = step!("in", { io.did("in", ()).await?; frames(&Backtrace::force_capture()) }); // 6
        out.push(text);
        step!("next", io.did("next", ()).await?);
        if out.len() > 1 {
            out.push(frames(&Backtrace::force_capture())); // 10
        }
    }
    Ok(out)
}

/// The lines of this file in a backtrace, relative to the fiber above, innermost first.
fn frames(trace: &Backtrace) -> String {
    let text = trace.to_string();
    let lines = text.lines().filter_map(|l| l.trim().strip_prefix("at ").and_then(|l| l.split_once("spans.rs:")));
    let lines = lines.filter_map(|(_, at)| at.split(':').next()?.parse::<u32>().ok());
    lines.filter(|l| *l > TRACED && *l < TRACED + 14).map(|l| (l - TRACED).to_string()).collect::<Vec<_>>().join(" ")
}

#[test]
fn backtraces_show_the_users_lines_also_after_a_resume() {
    let (outcome, ..) = everywhere(|| traced(2));
    assert_eq!(outcome, r#"Completed(["4", "6", "10", "6", "10"])"#);
}
