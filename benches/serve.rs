//! Benchmark of served chats: many WebSocket clients of many agents that answer at the pace of a
//! model.
//!
//! ```text
//! cargo bench -p benches --bench serve                # under a minute
//! cargo bench -p benches --bench serve -- --quick     # some seconds, rough
//! cargo bench -p benches --bench serve -- --agents 200 --clients 5 --each-second 50 --seconds 20
//! ```
//!
//! Measures the latency from the writer of a chunk to each client, and the memory and processor
//! time of the server. The floor in the same run is a server that sends the same frames at the same
//! pace and does nothing else. Server and clients are two processes on the same machine, over
//! loopback. Prints one `key=value` a line; docs/guide/src/internals/performance.md has figures.
//! Then twenty agents answer beside sixty clients of another one that never read its 3.5 MB, and
//! without them. A run fails when a chunk is lost, duplicated, out of order, or differs from what
//! was written.
#![forbid(unsafe_code)]

#[path = "support/clients.rs"]
mod clients;
#[expect(dead_code, reason = "other benchmarks measure more")]
#[path = "support/numbers.rs"]
mod numbers;
#[path = "support/served.rs"]
mod served;
#[path = "support/syncs.rs"]
mod syncs;
#[path = "support/usage.rs"]
mod usage;

use std::path::{Path, PathBuf};

use anyhow::Context;

use clients::{Shown, Unread};
use numbers::{float, median, percentiles, print_load};
use served::{Child, Kind, Pace};
use syncs::SyncCounter;

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1));
    if let Some(work) = value(served::WORK) {
        return served::run(&serde_json::from_str(work)?);
    }
    let number = |name: &str, otherwise: u64| {
        value(name).map_or(Ok(otherwise), |text| text.parse().with_context(|| format!("{name} is a number, not `{text}`")))
    };
    // `cargo test --benches` runs this without `--bench`, to see that it works.
    let quick = args.iter().any(|arg| arg == "--quick") || !args.iter().any(|arg| arg == "--bench");
    let agents = number("--agents", if quick { 20 } else { 200 })?;
    let clients = number("--clients", 5)?;
    let pace = Pace { each_second: number("--each-second", 50)?, seconds: number("--seconds", if quick { 2 } else { 20 })? };
    let dir = tempfile::Builder::new().prefix("serve-").tempdir_in(PathBuf::from(env!("CARGO_TARGET_TMPDIR")))?;
    let syncs = SyncCounter::build(dir.path());
    print_load("before");
    println!("agents={agents}\nclients_of_each={clients}\nconnections={}", agents * clients);
    println!("chunks_per_second_of_each={}\nseconds={}", pace.each_second, pace.seconds);
    println!("offered_frames_per_second={}", agents * clients * pace.each_second);
    let mut of_each = Vec::new();
    for (name, kind) in [("floor", Kind::Floor), ("power", Kind::Power), ("process", Kind::Process)] {
        let folder = dir.path().join(name);
        std::fs::create_dir(&folder)?;
        let mut server = Child::start(kind, agents, pace, &folder, &syncs)?;
        let shown = clients::run(&mut server, agents, clients, pace, None)?;
        of_each.push(print(name, &shown, &server.end()?));
    }
    for (name, at) in [("power", 1), ("process", 2)] {
        println!("{name}_cpu_to_floor={:.2}", of_each[at] / of_each[0]);
    }
    unread(dir.path(), &syncs, number("--unread", 60)?, if quick { 1 } else { 5 })?;
    print_load("after");
    Ok(())
}

/// What clients that never read a long conversation cost the answers of other agents, in turns
/// without and with them.
fn unread(dir: &Path, syncs: &SyncCounter, clients: u64, rounds: usize) -> anyhow::Result<()> {
    let (agents, pace, bytes) = (20, Pace { each_second: 50, seconds: 4 }, 3_500_000);
    println!("unread_clients={clients}\nunread_bytes={bytes}");
    let runs = [("without", 0), ("with", clients)];
    let mut all = runs.map(|_| (Vec::new(), Vec::new(), 0.0_f64));
    for round in 0..rounds {
        for ((name, clients), (seconds, taken_us, peak_mib)) in runs.iter().zip(&mut all) {
            let folder = dir.join(format!("unread_{name}_{round}"));
            std::fs::create_dir(&folder)?;
            let mut server = Child::start(Kind::Power, agents, pace, &folder, syncs)?;
            let shown = clients::run(&mut server, agents, 1, pace, Some(Unread { clients: *clients, bytes }))?;
            seconds.push(shown.seconds);
            taken_us.extend(shown.taken_us);
            *peak_mib = peak_mib.max(server.end()?.peak_mib);
        }
    }
    let answers = all.map(|(seconds, taken_us, peak_mib)| (median(seconds), percentiles(taken_us), peak_mib));
    for ((name, _), (seconds, [p50, p99, max], peak_mib)) in runs.iter().zip(answers) {
        println!("unread_{name}_answer_seconds={seconds:.3}\nunread_{name}_memory_peak_mib={peak_mib:.0}");
        println!("unread_{name}_latency_p50_us={p50:.0}\nunread_{name}_latency_p99_us={p99:.0}\nunread_{name}_latency_max_us={max:.0}");
    }
    println!("unread_answer_ratio={:.3}", answers[1].0 / answers[0].0);
    Ok(())
}

/// Prints a run, and returns the processor seconds that the server used.
fn print(name: &str, shown: &Shown, taken: &served::Taken) -> f64 {
    println!("{name}_frames={}\n{name}_lost={}\n{name}_doubled_or_reordered={}", shown.frames, shown.lost, shown.out_of_place);
    println!("{name}_frames_per_second={:.0}", float(shown.frames) / shown.seconds);
    let [p50, p99, max] = percentiles(shown.taken_us.clone());
    println!("{name}_latency_p50_us={p50:.0}\n{name}_latency_p99_us={p99:.0}\n{name}_latency_max_us={max:.0}");
    println!("{name}_server_cpu_seconds={:.2}", taken.cpu_seconds);
    println!("{name}_memory_idle_mib={:.1}\n{name}_memory_peak_mib={:.1}", taken.idle_mib, taken.peak_mib);
    if let Some(syncs) = taken.syncs {
        println!("{name}_fsyncs={syncs}");
    }
    taken.cpu_seconds
}
