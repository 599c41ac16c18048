//! A short run of the example `cluster`: workers that are killed and paused, and a server that
//! crashes. `FOREVER_CLUSTER_DEATHS` makes it longer.
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// The last line of a run, as what it says.
fn last_line(text: &str) -> BTreeMap<&str, &str> {
    text.lines().last().unwrap_or_default().split(' ').filter_map(|word| word.split_once('=')).collect()
}

#[test]
fn workers_that_die_and_pause_repeat_nothing_lose_nothing_and_double_nothing() {
    let deaths = std::env::var("FOREVER_CLUSTER_DEATHS").unwrap_or_else(|_| "40".to_owned());
    let this = std::env::current_exe().unwrap();
    let target = this.parent().and_then(Path::parent).expect("tests are built in `deps`, beside `examples`");
    let path = target.join("examples").join("cluster");
    assert!(path.exists(), "{} is not there: `cargo test` builds it, and so does `cargo build --examples`", path.display());
    let mut run = Command::new(path);
    run.args(["--deaths", &deaths, "--workers", "3", "--crashes", "--seed", "1"]).stdin(Stdio::null());
    // It has a limit of its own for what is left when nothing is killed any more.
    let output = run.output().unwrap();
    let [text, errors] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    if errors.contains("no Postgres is installed") {
        assert!(std::env::var_os("FOREVER_REQUIRE_POSTGRES").is_none(), "{errors}");
        eprintln!("the chaos over several workers was left out: {errors}");
        return;
    }
    assert!(output.status.success(), "{text}{errors}");
    let last = last_line(&text);
    assert_eq!(["repeated_finished_steps", "lost_fibers", "duplicate_effects"].map(|name| last[name]), ["0"; 3], "{text}");
    assert_eq!(last["audit"], "ok", "{text}");
    assert!(last["deaths"].parse::<u32>().unwrap() >= deaths.parse().unwrap(), "{text}");
    assert!(last["fibers"].parse::<u32>().unwrap() >= 20, "{text}");
}
