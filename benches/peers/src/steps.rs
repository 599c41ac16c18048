//! Throughput: the steps of an engine in a second, and the disk cost of a step.
use crate::children::{Children, Finished};
use crate::numbers::{float, median};
use crate::table::{Table, short};
use crate::work::{Duroxide, Engine};

/// Steps before the measurement. A new log file grows until it has a thousand pages, and a sync of
/// a file that has grown takes longer. Where commits are not synced it makes no difference, and
/// duroxide would need minutes.
const BEFORE: u64 = 1_200;

/// An engine in one part.
struct Entry {
    engine: Engine,
    rounds: usize,
    workflows: u64,
    steps: u64,
}

/// One workflow, with its steps one after the other.
pub(crate) fn one_after_the_other(children: &Children, quick: bool) -> anyhow::Result<Table> {
    let (rounds, steps) = if quick { (1, 200) } else { (5, 1_000) };
    let entry = |engine, rounds, steps| Entry { engine, rounds, workflows: 1, steps };
    let fast = || [Engine::Floor, Engine::Forever, Engine::Durare].map(|engine| entry(engine, rounds, steps)).into_iter();
    let mut slow = vec![entry(Engine::Duroxide(Duroxide::Renewed), rounds.min(3), steps)];
    if !quick {
        slow.push(entry(Engine::Duroxide(Duroxide::Whole), 1, steps));
        slow.push(entry(Engine::Duroxide(Duroxide::Defaults), 1, steps / 10));
    }
    let mut part = Part { name: "steps", children, rows: Vec::new() };
    part.run(true, &fast().collect::<Vec<_>>())?;
    part.run(false, &fast().chain(slow).collect::<Vec<_>>())?;
    Ok(part.table("One workflow, one step after the other"))
}

/// Many concurrent workflows.
pub(crate) fn together(children: &Children, quick: bool) -> anyhow::Result<Table> {
    let (rounds, workflows, steps) = if quick { (1, 20, 20) } else { (3, 100, 100) };
    let entry = |engine, rounds| Entry { engine, rounds, workflows, steps };
    let fast = || [Engine::Floor, Engine::Forever, Engine::Durare].map(|engine| entry(engine, rounds)).into_iter();
    let slow = [entry(Engine::Duroxide(Duroxide::Renewed), 1)];
    let mut part = Part { name: "together", children, rows: Vec::new() };
    part.run(true, &fast().collect::<Vec<_>>())?;
    part.run(false, &fast().chain(slow).collect::<Vec<_>>())?;
    Ok(part.table(&format!("{workflows} workflows of {steps} steps each at the same time")))
}

struct Part<'a> {
    name: &'static str,
    children: &'a Children<'a>,
    rows: Vec<Vec<String>>,
}

impl Part<'_> {
    /// Runs the engines in turn, in each round. The cost of a step is compared with the floor of
    /// the same round.
    fn run(&mut self, power: bool, entries: &[Entry]) -> anyhow::Result<()> {
        let before = if power { BEFORE } else { 0 };
        let mut runs: Vec<Vec<(usize, Finished)>> = entries.iter().map(|_| Vec::new()).collect();
        for round in 0..entries.iter().map(|entry| entry.rounds).max().unwrap_or(0) {
            for (entry, runs) in entries.iter().zip(&mut runs).filter(|(entry, _)| round < entry.rounds) {
                match self.children.finish(entry.engine, power, before, entry.workflows, entry.steps) {
                    Ok(run) => runs.push((round, run)),
                    Err(error) if entry.engine.is_a_peer() => println!("{}_failed={error:#}", self.label(power, entry)),
                    Err(error) => return Err(error),
                }
            }
        }
        let floors: Vec<f64> = runs[0].iter().map(|(_, run)| each_second(&entries[0], run)).collect();
        for (entry, runs) in entries.iter().zip(&runs) {
            // The fixed size of a database, and its first pages, are in both figures.
            let begun = self.children.finish(entry.engine, power, before, entry.workflows, entry.steps / 10)?;
            self.row(power, entry, runs, &floors, begun.kept);
        }
        Ok(())
    }

    fn label(&self, power: bool, entry: &Entry) -> String {
        format!("{}_{}_{}", self.name, if power { "power" } else { "process" }, entry.engine.name())
    }

    fn row(&mut self, power: bool, entry: &Entry, runs: &[(usize, Finished)], floors: &[f64], begun: u64) {
        let all = float(entry.workflows * entry.steps);
        let of = |what: &dyn Fn(&Finished) -> Option<f64>| runs.iter().map(|(_, run)| what(run)).collect::<Option<Vec<f64>>>().map(median);
        let speed = median(runs.iter().map(|(_, run)| each_second(entry, run)).collect());
        let to_floor = median(runs.iter().map(|(round, run)| each_second(entry, run) / floors[*round]).collect());
        let syncs = of(&|run| Some(float(run.spent.syncs?) / all));
        let written = of(&|run| Some(float(run.spent.stored?) / all));
        let kept = of(&|run| Some((float(run.kept) - float(begun)) / (all * 0.9)));
        let known = |value: Option<f64>, digits: usize| value.map_or("unknown".to_owned(), |value| format!("{value:.digits$}"));

        let name = self.label(power, entry);
        println!("{name}_settings={}", runs.first().map_or("unknown", |(_, run)| &run.settings));
        println!("{name}_rounds={}", runs.len());
        println!("{name}_steps={}", entry.workflows * entry.steps);
        println!("{name}_steps_per_second={speed:.0}");
        println!("{name}_to_floor={to_floor:.3}");
        println!("{name}_fsyncs_per_step={}", known(syncs, 3));
        println!("{name}_bytes_to_disk_per_step={}", known(written, 0));
        println!("{name}_bytes_kept_per_step={}", known(kept, 0));
        self.rows.push(vec![
            entry.engine.name().replace('_', " "),
            if power { "`FULL`" } else { "`NORMAL`" }.to_owned(),
            short(all),
            short(speed),
            format!("{to_floor:.3}"),
            known(syncs, 3),
            written.map_or("unknown".to_owned(), short),
            known(kept, 0),
        ]);
    }

    fn table(self, title: &str) -> Table {
        let head = ["", "`synchronous`", "steps", "steps/s", "to the floor", "fsyncs a step", "bytes to disk a step", "bytes kept a step"];
        Table { title: title.to_owned(), head: head.map(str::to_owned).to_vec(), rows: self.rows }
    }
}

fn each_second(entry: &Entry, run: &Finished) -> f64 {
    float(entry.workflows * entry.steps) / run.spent.seconds
}
