//! Short runs of `chaos`, and that its audit finds what is wrong.
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use forever_testkit::process::{Ran, ran};
use forever_testkit::sizes::{is_night, size};

/// How long a run may take before it is called hung; many times what it needs.
const LONGEST: Duration = Duration::from_secs(100);

fn run(arguments: &[&str]) -> Ran {
    run_within(LONGEST, arguments)
}

fn run_within(longest: Duration, arguments: &[&str]) -> Ran {
    ran(Command::new(env!("CARGO_BIN_EXE_chaos")).args(arguments), longest)
}

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
fn deaths_repeat_nothing_lose_nothing_and_double_nothing() {
    let wanted = size("FOREVER_SOAK_DEATHS", 10, 150);
    let Ran { status, text, errors } = run(&["--deaths", &wanted.to_string(), "--seed", "1"]);
    assert!(status.success(), "{text}{errors}");
    let [deaths, fibers, steps, repeated, lost, duplicates] = numbers(&text);
    let wanted = u32::try_from(wanted).unwrap();
    assert!(deaths >= wanted, "{text}");
    assert!(fibers >= wanted * 2 / 3 && steps >= 2 * wanted, "{text}");
    assert_eq!((repeated, lost, duplicates), (0, 0, 0), "{text}");
    assert_eq!(last_line(&text)["audit"], "ok");
    assert!(!text.contains('\x1b') && !text.contains('\r'), "for a terminal, in a pipe");
}

/// The kinds of injected faults, as the last line counts them.
#[cfg(target_os = "linux")]
const FAULTS: [&str; 8] = ["eio_read", "eio_write", "enospc", "short", "torn", "fsync", "open", "lock"];

#[cfg(target_os = "linux")]
fn faults(text: &str) -> [u32; 8] {
    let last = last_line(text);
    FAULTS.map(|name| last[format!("faults_{name}").as_str()].parse().unwrap())
}

/// Two minutes in the night. Where a process dies depends on the machine: what a short run meets by chance, a long one meets.
#[test]
#[cfg(target_os = "linux")]
fn failing_disk_repeats_nothing_loses_nothing_and_doubles_nothing() {
    let (length, least) = if is_night() { (["--minutes", "2"], 100) } else { (["--deaths", "10"], 10) };
    let arguments = [length.as_slice(), &["--seed", "1", "--faults"]].concat();
    let Ran { status, text, errors } = run_within(Duration::from_secs(400), &arguments);
    assert!(status.success(), "{text}{errors}");
    let [deaths, _, steps, repeated, lost, duplicates] = numbers(&text);
    assert!(deaths >= least && steps >= 2 * least, "{text}");
    assert_eq!((repeated, lost, duplicates), (0, 0, 0), "{text}");
    assert_eq!(last_line(&text)["audit"], "ok");
    let met = faults(&text).iter().filter(|count| **count > 0).count();
    assert!(met >= if is_night() { FAULTS.len() } else { 1 }, "{text}");
}

#[test]
#[cfg(target_os = "linux")]
fn faults_of_one_kind_are_of_no_other() {
    for (kind, deaths) in [("eio-read", "20"), ("open", "60")] {
        let Ran { status, text, errors } = run(&["--deaths", deaths, "--seed", "1", "--faults-only", kind]);
        assert!(status.success(), "{text}{errors}");
        let of_it = FAULTS.iter().position(|name| *name == kind.replace('-', "_")).unwrap();
        for (n, count) in faults(&text).into_iter().enumerate() {
            assert_eq!(count > 0, n == of_it, "{text}");
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_run_without_the_faults_that_it_was_to_have_fails() {
    // No worker lives to have one.
    let Ran { status, text, errors } = run(&["--deaths", "0", "--faults-only", "torn"]);
    assert_eq!(status.code(), Some(1), "{text}{errors}");
    assert!(text.contains("no faults were injected"), "{text}");
    assert_eq!(last_line(&text)["audit"], "failed");
}

/// Breaks a promise from outside; gives the text and the three numbers that must be 0.
fn broken(what: &str) -> (String, [u32; 3]) {
    let Ran { status, text, errors } = run(&["--deaths", "400", "--seed", "1", "--break", what]);
    assert_eq!(status.code(), Some(1), "{text}{errors}");
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

#[test]
fn wrong_arguments_are_explained() {
    let cases: [(&[&str], &str); 5] = [
        (&["--minutes", "-1"], "error: `--minutes -1`: expected a number from 0 to 10000"),
        (&["--deaths", "many"], "error: `--deaths many`: expected a number"),
        (&["--break", "everything"], "error: `--break everything`: expected bank, fiber or snapshot"),
        (&["--faults-only", "all"], "error: `--faults-only all`: expected eio-read, eio-write, enospc, short, torn, fsync, open or lock"),
        (&["now"], "error: unknown argument `now`"),
    ];
    for (arguments, message) in cases {
        let Ran { status, text, errors } = run(arguments);
        assert_eq!((status.code(), text.as_str()), (Some(2), ""), "{arguments:?}");
        assert_eq!(errors.lines().next(), Some(message));
        assert!(errors.contains("usage: chaos"), "{errors}");
    }
    let Ran { status, text, .. } = run(&["--help"]);
    assert_eq!(status.code(), Some(0));
    assert!(text.contains("usage: chaos"), "{text}");
}
