//! A short run of `examples/chaos.rs`, and that its audit finds what is wrong.
use std::collections::BTreeMap;

use crate::examples::run;

/// The last line of a run, as what it says.
fn last_line(text: &str) -> BTreeMap<&str, &str> {
    text.lines().last().unwrap().split(' ').map(|word| word.split_once('=').unwrap()).collect()
}

const NUMBERS: [&str; 6] = ["deaths", "fibers", "finished_steps", "repeated_finished_steps", "lost_fibers", "duplicate_effects"];

fn numbers(text: &str) -> [u32; 6] {
    let last = last_line(text);
    NUMBERS.map(|name| last[name].parse().unwrap())
}

#[test]
fn a_hundred_and_fifty_deaths_repeat_nothing_lose_nothing_and_double_nothing() {
    let (output, text, errors) = run("chaos", &["--deaths", "150", "--seed", "1"]);
    assert!(output.status.success(), "{text}{errors}");
    let [deaths, fibers, steps, repeated, lost, duplicates] = numbers(&text);
    assert!(deaths >= 150, "{text}");
    assert!(fibers >= 100 && steps >= 300, "{text}");
    assert_eq!((repeated, lost, duplicates), (0, 0, 0), "{text}");
    assert_eq!(last_line(&text)["audit"], "ok");
    assert!(!text.contains('\x1b') && !text.contains('\r'), "for a terminal, in a pipe");
}

/// Breaks a promise from outside; gives the text and the three numbers that must be 0.
fn broken(what: &str) -> (String, [u32; 3]) {
    let (output, text, errors) = run("chaos", &["--deaths", "400", "--seed", "1", "--break", what]);
    assert_eq!(output.status.code(), Some(1), "{text}{errors}");
    assert_eq!(last_line(&text)["audit"], "failed");
    let kept = text.lines().find_map(|line| line.strip_prefix("the database and the log are kept in ")).unwrap();
    assert!(std::path::Path::new(kept).join("effects.log").exists() && std::path::Path::new(kept).join("chaos.db").exists());
    std::fs::remove_dir_all(kept).unwrap();
    let [_, _, _, repeated, lost, duplicates] = numbers(&text);
    (text, [repeated, lost, duplicates])
}

#[test]
fn the_audit_finds_a_step_that_is_repeated() {
    let (text, [repeated, lost, duplicates]) = broken("snapshot");
    assert!(repeated > 0 && (lost, duplicates) == (0, 0), "{text}");
    assert!(text.contains(" began again after it had finished\n"), "{text}");
}

#[test]
fn the_audit_finds_a_fiber_that_is_lost() {
    let (text, [repeated, lost, duplicates]) = broken("fiber");
    assert_eq!((repeated, lost, duplicates), (0, 1, 0), "{text}");
    assert!(text.contains(" was accepted, and is not there\n"), "{text}");
}

#[test]
fn the_audit_finds_a_charge_that_was_made_twice() {
    let (text, [repeated, lost, duplicates]) = broken("bank");
    assert!(duplicates > 0 && (repeated, lost) == (0, 0), "{text}");
    assert!(text.contains(" was charged 2 times, under "), "{text}");
}
