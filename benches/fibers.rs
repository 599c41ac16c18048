//! Benchmark of many fibers: throughput, latency, memory, recovery, bytes written, and effects.
//!
//! ```text
//! cargo bench -p benches --bench fibers              # two or three minutes
//! cargo bench -p benches --bench fibers -- --quick   # some seconds, rough
//! cargo bench -p benches --bench fibers -- --only steps
//! ```
//!
//! Measures steps per second against the floor of the same disk in the same run, the latency of
//! checkpoints under that load, memory, sleeping and finished fibers, recovery of many fibers,
//! bytes written, and effects. The parts are `steps`, `trivial`, `memory`, `sleeping`, `finished`,
//! `recovery`, `bytes`, `effects` and `history`. Prints one `key=value` a line, as `checkpoint` does;
//! docs/guide/src/internals/performance.md has figures.
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
use scale::{Figures, Keep, Scale};

fn main() -> anyhow::Result<()> {
    let Some(args) = Args::read()? else { return Ok(()) };
    let dir = args.folder("fibers-")?;
    let bench = Bench { quick: args.quick, rounds: if args.quick { 1 } else { 3 }, children: Children::new(dir.path()) };
    print_load("before");
    for (name, run) in Bench::parts() {
        if args.wants(name) {
            run(&bench)?;
        }
    }
    print_load("after");
    Ok(())
}

struct Bench<'a> {
    quick: bool,
    rounds: usize,
    children: Children<'a>,
}

type Part<'a> = (&'static str, fn(&Bench<'a>) -> anyhow::Result<()>);

impl<'a> Bench<'a> {
    fn parts() -> [Part<'a>; 9] {
        [
            ("steps", Self::steps),
            ("trivial", Self::trivial),
            ("memory", Self::memory),
            ("sleeping", Self::sleeping),
            ("finished", Self::finished),
            ("recovery", Self::recovery),
            ("bytes", Self::bytes),
            ("effects", Self::effects),
            ("history", Self::history),
        ]
    }

    /// `all`, or a fraction of it with `--quick`.
    fn some(&self, all: u64) -> u64 {
        if self.quick { all / 10 } else { all }
    }

    /// 1, 10, 100 and 1 000 concurrent fibers; each round runs right after its floor.
    fn steps(&self) -> anyhow::Result<()> {
        let (bytes, commits) = (child::snapshot_bytes(), self.some(5_000));
        println!("rounds={}\nsnapshot_bytes={bytes}", self.rounds);
        for (name, power) in [("power", true), ("process", false)] {
            for (fibers, steps) in [(1, 5_000), (10, 2_000), (100, 500), (1_000, 100)] {
                let steps = self.some(steps);
                let (mut floors, mut runs) = (Vec::new(), Vec::new());
                for _ in 0..self.rounds {
                    floors.push(self.children.measure(Work::Floor { commits, bytes, power })?);
                    runs.push(self.children.measure(Work::Fibers { fibers, steps, power, timed: true })?);
                }
                let (floor, run) = (Sum::of(&floors, commits), Sum::of(&runs, fibers * steps));
                println!("{name}_{fibers}_floor_commits_per_second={:.0}", floor.each_second);
                run.print(&format!("{name}_{fibers}"), "step");
                println!("{name}_{fibers}_to_floor={:.2}", run.each_second / floor.each_second);
            }
        }
        Ok(())
    }

    /// Fibers without a step, one after the other and many at once.
    fn trivial(&self) -> anyhow::Result<()> {
        for (name, power) in [("power", true), ("process", false)] {
            for (at_once, fibers) in [(1, 1_000), (1_000, 20_000)] {
                let fibers = self.some(fibers);
                let work = Work::Scale(Scale::Trivial { fibers, at_once, power });
                let runs = (0..self.rounds).map(|_| self.children.measure(work)).collect::<Result<Vec<_>, _>>()?;
                Sum::of(&runs, fibers).print(&format!("{name}_trivial_{at_once}_at_once"), "fiber");
            }
        }
        Ok(())
    }

    fn memory(&self) -> anyhow::Result<()> {
        self.figures("standing_fiber", Scale::Standing { fibers: self.some(20_000) })
    }

    /// A hundred thousand sleeping fibers, of which ten thousand wake up within ten seconds.
    fn sleeping(&self) -> anyhow::Result<()> {
        let dir = tempfile::tempdir_in(self.children.dir)?;
        let (fibers, due) = (self.some(100_000), self.some(10_000));
        println!("sleeping_fibers={fibers}\nsleeping_fibers_due={due}");
        self.figures_in("sleeping_fiber", Scale::FallAsleep { fibers, due }, dir.path())?;
        self.figures_in("sleeping", Scale::Awake { due }, dir.path())
    }

    /// A database with a million finished fibers, and one with none.
    fn finished(&self) -> anyhow::Result<()> {
        let dir = tempfile::tempdir_in(self.children.dir)?;
        let steps = self.some(4_000);
        self.figures("beside_none", Scale::Beside { steps })?;
        let fibers = self.some(1_000_000);
        self.figures_in("finished", Scale::Finished { fibers }, dir.path())?;
        println!("finished_fibers={fibers}");
        self.figures_in("beside_finished", Scale::Beside { steps }, dir.path())
    }

    /// Time from the start of a process to the first step, and to every step, of the fibers that a
    /// killed process left.
    fn recovery(&self) -> anyhow::Result<()> {
        for fibers in [1, 1_000] {
            // A database for each round: fibers that died three times without a step in between are
            // started one at a time.
            let killed_once = || {
                let dir = tempfile::tempdir_in(self.children.dir)?;
                let work = Work::Scale(Scale::Crowd { fibers });
                let killed = || self.children.killed_at(work, dir.path(), ["step", "all"]);
                killed()?;
                killed()
            };
            let rounds = if self.quick { 1 } else { 5 };
            let times = (0..rounds).map(|_| killed_once()).collect::<Result<Vec<_>, _>>()?;
            println!("recovery_of_{fibers}_first_step_ms={:.1}", median(times.iter().map(|t| t[0]).collect()));
            println!("recovery_of_{fibers}_all_ms={:.1}", median(times.iter().map(|t| t[1]).collect()));
        }
        Ok(())
    }

    /// Bytes that a step writes beside a value that stays the same, and at the tenth and the
    /// thousandth message of a transcript.
    fn bytes(&self) -> anyhow::Result<()> {
        let steps = self.some(1_000);
        for bytes in [0, 20_000] {
            let runs = [self.children.measure(Work::Scale(Scale::Ballast { bytes, steps }))?];
            Sum::of(&runs, steps).print(&format!("beside_{bytes}_bytes"), "step");
        }
        for messages in [10, 100, 1_000] {
            let tenth = messages / 10;
            let runs = [self.children.measure(Work::Scale(Scale::Transcript { messages }))?];
            Sum::of(&runs, tenth).print(&format!("transcript_of_{messages}"), "step");
        }
        Ok(())
    }

    /// Cost of a step as an effect, compared with the same step as a plain one.
    fn effects(&self) -> anyhow::Result<()> {
        for (fibers, steps) in [(1, 2_000), (100, 200)] {
            let steps = self.some(steps);
            let run = |effect| {
                let work = Work::Scale(Scale::Effects { fibers, steps, effect });
                let runs = (0..self.rounds).map(|_| self.children.measure(work)).collect::<Result<Vec<_>, _>>()?;
                anyhow::Ok(Sum::of(&runs, fibers * steps))
            };
            let (plain, effect) = (run(false)?, run(true)?);
            plain.print(&format!("plain_{fibers}"), "step");
            effect.print(&format!("effect_{fibers}"), "step");
            println!("effect_{fibers}_to_plain={:.2}", effect.each_second / plain.each_second);
        }
        Ok(())
    }

    /// What a kept history costs; the three kinds take turns.
    fn history(&self) -> anyhow::Result<()> {
        let kinds = [("off", Keep::Nothing), ("last_100", Keep::Last100), ("all", Keep::All)];
        for (name, power, fibers, steps) in
            [("power", true, 1, 5_000), ("process", false, 1, 20_000), ("power", true, 1_000, 100), ("process", false, 1_000, 100)]
        {
            let steps = self.some(steps);
            let mut runs = [const { Vec::new() }; 3];
            for _ in 0..self.rounds {
                for (runs, (_, keep)) in runs.iter_mut().zip(kinds) {
                    runs.push(self.children.measure(Work::Scale(Scale::History { fibers, steps, power, keep }))?);
                }
            }
            let [off, kept @ ..] = runs.map(|runs| Sum::of(&runs, fibers * steps));
            off.print(&format!("{name}_{fibers}_history_off"), "step");
            for (kept, (kind, _)) in kept.iter().zip(&kinds[1..]) {
                let name = format!("{name}_{fibers}_history_{kind}");
                kept.print(&name, "step");
                println!("{name}_to_off={:.2}", kept.each_second / off.each_second);
            }
        }
        Ok(())
    }

    fn figures(&self, name: &str, scale: Scale) -> anyhow::Result<()> {
        let dir = tempfile::tempdir_in(self.children.dir)?;
        self.figures_in(name, scale, dir.path())
    }

    fn figures_in(&self, name: &str, scale: Scale, dir: &std::path::Path) -> anyhow::Result<()> {
        let figures: Figures = self.children.measure_in(Work::Scale(scale), dir)?;
        for (figure, value) in figures {
            println!("{name}_{figure}={value:.1}");
        }
        Ok(())
    }
}
