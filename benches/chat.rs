//! Benchmark of chat chunks: throughput, and latency from the writer of a chunk to its follower.
//!
//! ```text
//! cargo bench -p benches --bench chat                # one or two minutes
//! cargo bench -p benches --bench chat -- --quick     # some seconds, rough
//! cargo bench -p benches --bench chat -- --only latency
//! ```
//!
//! The parts are `throughput` and `latency`. Throughput, chunks stored and delivered in a second,
//! is compared with the floor of the same disk in the same run. Prints one `key=value` a line, as
//! `checkpoint` does; docs/guide/src/internals/performance.md has figures. A run fails when a
//! chunk is lost, duplicated, out of order, or stored otherwise than it was delivered.
#![forbid(unsafe_code)]

#[expect(dead_code, reason = "other benchmarks measure more")]
#[path = "support/child.rs"]
mod child;
#[path = "support/numbers.rs"]
mod numbers;
#[expect(dead_code, reason = "other benchmarks kill their children")]
#[path = "support/report.rs"]
mod report;
#[path = "support/running.rs"]
mod running;
#[path = "support/scale.rs"]
mod scale;
#[path = "support/state.rs"]
mod state;
#[path = "support/syncs.rs"]
mod syncs;
#[path = "support/turns.rs"]
mod turns;
#[path = "support/usage.rs"]
mod usage;

use child::Work;
use numbers::{float, median, print_load};
use report::{Args, Children, Sum, known, print_us};
use turns::{Streamed, Turns};
use usage::Spent;

fn main() -> anyhow::Result<()> {
    let Some(args) = Args::read()? else { return Ok(()) };
    let dir = args.folder("chat-")?;
    let bench = Bench { quick: args.quick, children: Children::new(dir.path()) };
    print_load("before");
    println!("chunk_bytes={}", turns::chunk(0, 0, 0).to_text().len());
    if args.wants("throughput") {
        bench.throughput(if args.quick { 1 } else { 3 })?;
    }
    if args.wants("latency") {
        bench.latency(if args.quick { 1 } else { 8 })?;
    }
    print_load("after");
    Ok(())
}

/// Chunks that a turn of the part `latency` writes in a second.
const EACH_SECOND: u32 = 50;

struct Bench<'a> {
    quick: bool,
    children: Children<'a>,
}

impl Bench<'_> {
    /// 1, 100 and 1 000 turns that write as fast as they can. The floor runs right after each
    /// round, with as many commits.
    fn throughput(&self, rounds: usize) -> anyhow::Result<()> {
        println!("rounds={rounds}");
        for (name, power) in [("power", true), ("process", false)] {
            for (turns, chunks) in [(1, 100_000), (100, 2_000), (1_000, 200)] {
                let (name, chunks) = (format!("{name}_{turns}"), if self.quick { chunks / 10 } else { chunks });
                let (mut runs, mut floors) = (Vec::new(), Vec::new());
                for _ in 0..rounds {
                    let run = self.stream(turns, chunks, None, power)?;
                    floors.push(self.floor(turns * chunks, run.commits, power)?);
                    runs.push(run);
                }
                let floor = Sum::of(&floors, turns * chunks);
                print_chunks(&format!("{name}_floor"), &floor);
                let run = print_runs(&name, &runs, turns * chunks);
                println!("{name}_to_floor={:.3}", run.each_second / floor.each_second);
            }
        }
        Ok(())
    }

    /// 1, 100 and 1 000 turns that write at the pace of a model.
    fn latency(&self, seconds: u32) -> anyhow::Result<()> {
        println!("paced_chunks_per_second_of_each={EACH_SECOND}\npaced_seconds={seconds}");
        let chunks = u64::from(EACH_SECOND * seconds);
        for (name, power) in [("power", true), ("process", false)] {
            for turns in [1, 100, 1_000] {
                let name = format!("{name}_{turns}_paced");
                let run = self.stream(turns, chunks, Some(EACH_SECOND), power)?;
                let floor = self.floor(turns * chunks, run.commits, power)?;
                println!("{name}_offered_chunks_per_second={}", turns * u64::from(EACH_SECOND));
                let run = print_runs(&name, &[run], turns * chunks);
                print_us(&format!("{name}_floor_commit"), floor.latency_us);
                print_us(&format!("{name}_latency"), run.latency_us);
            }
        }
        Ok(())
    }

    fn stream(&self, turns: u64, chunks: u64, each_second: Option<u32>, power: bool) -> anyhow::Result<Streamed> {
        self.children.measure(Work::Turns(Turns::Stream { turns, chunks, each_second, power }))
    }

    fn floor(&self, chunks: u64, commits: u64, power: bool) -> anyhow::Result<Spent> {
        self.children.measure(Work::Turns(Turns::Floor { chunks, commits, power }))
    }
}

fn print_runs(name: &str, runs: &[Streamed], chunks: u64) -> Sum {
    let stored: Vec<Spent> = runs.iter().map(|run| run.stored.clone()).collect();
    let sum = Sum::of(&stored, chunks);
    let each = |figure: fn(&Streamed) -> f64| median(runs.iter().map(|run| float(chunks) / figure(run)).collect());
    print_chunks(name, &sum);
    println!("{name}_chunks_delivered_per_second={:.0}", each(|run| run.delivered_seconds));
    println!("{name}_chunks_per_commit={:.1}", each(|run| float(run.commits)));
    sum
}

fn print_chunks(name: &str, sum: &Sum) {
    println!("{name}_chunks_stored_per_second={:.0}", sum.each_second);
    println!("{name}_fsyncs_per_1000_chunks={}", known(sum.syncs.map(|syncs| syncs * 1e3), 2));
    println!("{name}_bytes_written_per_chunk={}", known(sum.written, 0));
    println!("{name}_bytes_to_disk_per_chunk={}", known(sum.stored, 0));
}
