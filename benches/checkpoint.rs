//! Benchmark of checkpoints: the cost of a step, and the time to resume after a SIGKILL.
//!
//! ```text
//! cargo bench -p benches --bench checkpoint              # a minute or two
//! cargo bench -p benches --bench checkpoint -- --quick   # some seconds, rough
//! cargo bench -p benches --bench checkpoint -- --only steps
//! ```
//!
//! The cost is compared with the floor of the same disk in the same run. Prints one `key=value` a
//! line; the figures are medians of `rounds`. It reports figures and judges none.
//! docs/guide/src/internals/performance.md has figures. The databases are in cargo's target
//! folder, so that disk is measured; `--dir PATH` names another. Every state that is written
//! differs from the one before, because SQLite neither writes nor syncs a page that stays the same.
#![forbid(unsafe_code)]

#[path = "support/child.rs"]
mod child;
#[path = "support/numbers.rs"]
mod numbers;
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
use numbers::{median, print_load};
use report::{Args, Children, Sum};

fn main() -> anyhow::Result<()> {
    let Some(args) = Args::read()? else { return Ok(()) };
    let quick = args.quick;
    let dir = args.folder("checkpoint-")?;
    let bench = Bench { rounds: if quick { 1 } else { 5 }, children: Children::new(dir.path()) };
    print_load("before");
    if args.wants("steps") {
        bench.steps(if quick { 2_000 } else { 10_000 })?;
    }
    if args.wants("fibers") {
        bench.fibers(if quick { 100 } else { 1_000 }, if quick { 20 } else { 100 })?;
    }
    if args.wants("resume") {
        bench.resume(if quick { 3 } else { 11 }, quick)?;
    }
    print_load("after");
    Ok(())
}

struct Bench<'a> {
    rounds: usize,
    children: Children<'a>,
}

impl Bench<'_> {
    /// One fiber, at both durabilities; each round runs right after its floor.
    fn steps(&self, steps: u64) -> anyhow::Result<()> {
        let bytes = child::snapshot_bytes();
        println!("rounds={}\nsteps={steps}\nsnapshot_bytes={bytes}", self.rounds);
        for (name, power) in [("power", true), ("process", false)] {
            let (mut floors, mut fibers) = (Vec::new(), Vec::new());
            for _ in 0..self.rounds {
                floors.push(self.children.measure(Work::Floor { commits: steps, bytes, power })?);
                fibers.push(self.children.measure(Work::Fibers { fibers: 1, steps, power, timed: false })?);
            }
            let (floor, fiber) = (Sum::of(&floors, steps), Sum::of(&fibers, steps));
            floor.print(&format!("{name}_floor"), "commit");
            fiber.print(&format!("{name}_fiber"), "step");
            println!("{name}_fiber_to_floor={:.2}", fiber.each_second / floor.each_second);
        }
        Ok(())
    }

    /// Many concurrent fibers, which share syncs.
    fn fibers(&self, fibers: u64, steps: u64) -> anyhow::Result<()> {
        println!("fibers={fibers}\nsteps_of_each={steps}");
        for (name, power) in [("power", true), ("process", false)] {
            let work = Work::Fibers { fibers, steps, power, timed: false };
            let spent = (0..self.rounds.div_ceil(2)).map(|_| self.children.measure(work)).collect::<Result<Vec<_>, _>>()?;
            Sum::of(&spent, fibers * steps).print(&format!("{name}_fibers"), "step");
        }
        Ok(())
    }

    /// Time from the start of a process to the body of its first new step, after a SIGKILL in a
    /// step.
    fn resume(&self, rounds: usize, quick: bool) -> anyhow::Result<()> {
        let first = |work, dir| Ok::<_, anyhow::Error>(self.children.killed_at(work, dir, ["step"])?[0]);
        let starts = (0..rounds).map(|_| first(Work::Start, self.children.dir)).collect::<Result<Vec<_>, _>>()?;
        println!("process_start_ms={:.1}", median(starts));
        for steps in [10, 1_000, if quick { 10_000 } else { 100_000 }] {
            let dir = tempfile::tempdir_in(self.children.dir)?;
            let killed = |work| Ok::<_, anyhow::Error>(self.children.killed_at(work, dir.path(), ["step", "stopped"])?[0]);
            // These steps are not measured, and are faster at this durability.
            killed(Work::Endless { steps, power: false })?;
            let times = (0..rounds).map(|_| killed(Work::Endless { steps: 1, power: true })).collect::<Result<Vec<_>, _>>()?;
            println!("resume_after_{steps}_steps_ms={:.1}", median(times));
        }
        Ok(())
    }
}
