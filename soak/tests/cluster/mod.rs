//! Short runs of `cluster`: workers that are killed, paused and cut off, and a server
//! that crashes. `FOREVER_CLUSTER_DEATHS` makes them longer, and `FOREVER_CLUSTER_SEED` other ones.
#[allow(dead_code, reason = "the model has more changes and rules than histories show")]
#[path = "../../../crates/forever-postgres/tests/protocol/fence.rs"]
mod fence;
mod history;
#[path = "../../../crates/forever-postgres/tests/protocol/trace.rs"]
mod trace;

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use forever_testkit::sizes;

/// The figures that a run prints, by their names.
fn figures(text: &str) -> BTreeMap<String, String> {
    let words = text.split_whitespace().filter_map(|word| word.split_once('='));
    words.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Runs it until so many workers have died, checks its audit and its history, and returns
/// the figures that it prints. `None` where there is no server to run it with.
fn run(name: &str, at_night: u64, more: &[&str]) -> Option<BTreeMap<String, String>> {
    let deaths = sizes::size("FOREVER_CLUSTER_DEATHS", 10, at_night).to_string();
    let seed = std::env::var("FOREVER_CLUSTER_SEED").unwrap_or_else(|_| "1".to_owned());
    let dir = tempfile::Builder::new().prefix("forever-history-").tempdir().unwrap();
    let history = dir.path().join(name);
    let mut run = Command::new(env!("CARGO_BIN_EXE_cluster"));
    run.args(["--deaths", &deaths, "--workers", "3", "--crashes", "--seed", &seed]).args(more);
    run.arg("--history").arg(&history).stdin(Stdio::null());
    // It has a limit of its own for what is left when nothing is killed any more.
    let output = run.output().unwrap();
    let [text, errors] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    if errors.contains("no Postgres is installed") {
        assert!(std::env::var_os("FOREVER_REQUIRE_POSTGRES").is_none(), "{errors}");
        eprintln!("the chaos over several workers was left out: {errors}");
        return None;
    }
    assert!(output.status.success(), "{text}{errors}");
    let figures = figures(&text);
    let of = |name: &str| figures[name].as_str();
    let never = ["repeated_finished_steps", "lost_fibers", "duplicate_effects", "repeated_calls", "lost_answers"];
    assert_eq!(never.map(of), ["0"; 5], "{text}");
    let least = if sizes::is_night() { [50, 100] } else { [10, 20] };
    assert!(of("answered").parse::<usize>().unwrap() >= least[0], "{text}");
    assert_eq!(of("audit"), "ok", "{text}");
    assert!(of("deaths").parse::<u32>().unwrap() >= deaths.parse().unwrap(), "{text}");

    let checked = history::check(&std::fs::read_to_string(&history).unwrap());
    println!("{name}: {figures:?}");
    println!("{} fibers, {} completions, {} claims by {} workers", checked.fibers, checked.completions, checked.claims, checked.workers);
    if !checked.faults.is_empty() {
        println!("the history is kept in {}", dir.keep().display());
    }
    assert_eq!(checked.faults, [""; 0]);
    assert!(checked.fibers >= least[1] && checked.workers >= 3, "{checked:?}");
    Some(figures)
}

#[test]
fn workers_that_die_and_pause_repeat_nothing_lose_nothing_and_double_nothing() {
    run("kills-and-pauses", 40, &[]);
}

#[test]
fn workers_that_are_cut_off_repeat_nothing_lose_nothing_and_double_nothing() {
    if let Some(figures) = run("partitions", 30, &["--partitions"]) {
        assert!(figures["partitions_beyond_lease"] != "0" || !sizes::is_night(), "{figures:?}");
    }
}
