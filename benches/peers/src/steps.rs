//! Throughput: the steps of an engine in a second, and what a step costs the disk or the server.
use crate::children::{Children, Finished, Whole};
use crate::numbers::{float, median};
use crate::server::Totals;
use crate::table::{Table, short};
use crate::work::{Duroxide, Engine, Store};

/// Steps before the measurement. A new log file of SQLite grows until it has a thousand pages, and
/// a sync of a file that has grown takes longer. Where commits are not synced it makes no
/// difference, and duroxide would need minutes.
const BEFORE: u64 = 1_200;

/// An engine in one part.
struct Entry {
    engine: Engine,
    rounds: usize,
    workflows: u64,
    steps: u64,
}

const FULL: Store = Store::Sqlite { power: true };
const NORMAL: Store = Store::Sqlite { power: false };

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
    let mut part = Part::new("steps", children);
    part.run(FULL, &fast().collect::<Vec<_>>())?;
    part.run(NORMAL, &fast().chain(slow).collect::<Vec<_>>())?;
    Ok(part.table("One workflow, one step after the other"))
}

/// Many concurrent workflows.
pub(crate) fn together(children: &Children, quick: bool) -> anyhow::Result<Table> {
    let (rounds, workflows, steps) = if quick { (1, 20, 20) } else { (3, 100, 100) };
    let entry = |engine, rounds| Entry { engine, rounds, workflows, steps };
    let fast = || [Engine::Floor, Engine::Forever, Engine::Durare].map(|engine| entry(engine, rounds)).into_iter();
    let slow = [entry(Engine::Duroxide(Duroxide::Renewed), 1)];
    let mut part = Part::new("together", children);
    part.run(FULL, &fast().collect::<Vec<_>>())?;
    part.run(NORMAL, &fast().chain(slow).collect::<Vec<_>>())?;
    Ok(part.table(&format!("{workflows} workflows of {steps} steps each at the same time")))
}

/// Both on Postgres.
pub(crate) fn on_postgres(children: &Children, quick: bool) -> anyhow::Result<[Table; 2]> {
    let [one, many] = if quick { [(1, 1, 200), (1, 20, 20)] } else { [(5, 1, 1_000), (3, 100, 100)] };
    let part = |name, title: &str, (rounds, workflows, steps)| {
        let engines = [Engine::Floor, Engine::Forever, Engine::Durare, Engine::Dbos];
        let mut part = Part::new(name, children);
        part.run(Store::Postgres, &engines.map(|engine| Entry { engine, rounds, workflows, steps }))?;
        anyhow::Ok(part.table(title))
    };
    Ok([
        part("steps", "One workflow on Postgres, one step after the other", one)?,
        part("together", &format!("{} workflows of {} steps each at the same time, on Postgres", many.1, many.2), many)?,
    ])
}

struct Part<'a> {
    name: &'static str,
    children: &'a Children<'a>,
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// What one step costs.
struct Cost {
    /// Name in the output.
    name: &'static str,
    /// Head of its column.
    head: &'static str,
    value: Option<f64>,
    digits: usize,
}

impl Cost {
    fn text(&self) -> String {
        self.value.map_or("unknown".to_owned(), |value| format!("{value:.*}", self.digits))
    }

    /// Its cell in the table.
    fn cell(&self) -> String {
        self.value.filter(|value| *value >= 1_000.0).map_or_else(|| self.text(), short)
    }
}

impl<'a> Part<'a> {
    fn new(name: &'static str, children: &'a Children<'a>) -> Self {
        Part { name, children, head: Vec::new(), rows: Vec::new() }
    }

    /// Runs the engines in turn, in each round. The cost of a step is compared with the floor of
    /// the same round.
    fn run(&mut self, store: Store, entries: &[Entry]) -> anyhow::Result<()> {
        let before = if store == NORMAL { 0 } else { BEFORE };
        let mut runs: Vec<Vec<(usize, Finished)>> = entries.iter().map(|_| Vec::new()).collect();
        for round in 0..entries.iter().map(|entry| entry.rounds).max().unwrap_or(0) {
            for (entry, runs) in entries.iter().zip(&mut runs).filter(|(entry, _)| round < entry.rounds) {
                match self.children.finish(entry.engine, store, before, entry.workflows, entry.steps) {
                    Ok(run) => runs.push((round, run)),
                    Err(error) if entry.engine.is_a_peer() => println!("{}_failed={error:#}", self.label(store, entry)),
                    Err(error) => return Err(error),
                }
            }
        }
        let floors: Vec<f64> = runs[0].iter().map(|(_, run)| each_second(&entries[0], run)).collect();
        for (entry, runs) in entries.iter().zip(&runs) {
            // What comes before the steps, such as the fixed size of a database, is in both runs.
            let begun = self.children.finish(entry.engine, store, before, entry.workflows, entry.steps / 10)?;
            self.row(store, entry, runs, &floors, begun.whole);
        }
        Ok(())
    }

    fn label(&self, store: Store, entry: &Entry) -> String {
        let store = match store {
            Store::Sqlite { power: true } => "power",
            Store::Sqlite { power: false } => "process",
            Store::Postgres => "postgres",
        };
        format!("{}_{store}_{}", self.name, entry.engine.name())
    }

    fn row(&mut self, store: Store, entry: &Entry, runs: &[(usize, Finished)], floors: &[f64], begun: Whole) {
        let all = float(entry.workflows * entry.steps);
        let speed = median(runs.iter().map(|(_, run)| each_second(entry, run)).collect());
        let to_floor = median(runs.iter().map(|(round, run)| each_second(entry, run) / floors[*round]).collect());

        let name = self.label(store, entry);
        println!("{name}_settings={}", runs.first().map_or("unknown", |(_, run)| &run.settings));
        println!("{name}_rounds={}", runs.len());
        println!("{name}_steps={}", entry.workflows * entry.steps);
        println!("{name}_steps_per_second={speed:.0}");
        println!("{name}_to_floor={to_floor:.3}");
        let costs = costs(all, runs, begun);
        for cost in &costs {
            println!("{name}_{}={}", cost.name, cost.text());
        }

        let synchronous = match store {
            Store::Sqlite { power: true } => Some("`FULL`"),
            Store::Sqlite { power: false } => Some("`NORMAL`"),
            Store::Postgres => None,
        };
        let mut columns = vec![("", entry.engine.name().replace('_', " "))];
        columns.extend(synchronous.map(|value| ("`synchronous`", value.to_owned())));
        columns.extend([("steps", short(all)), ("steps/s", short(speed)), ("to the floor", format!("{to_floor:.3}"))]);
        columns.extend(costs.iter().map(|cost| (cost.head, cost.cell())));
        self.head = columns.iter().map(|(head, _)| (*head).to_owned()).collect();
        self.rows.push(columns.into_iter().map(|(_, cell)| cell).collect());
    }

    fn table(self, title: &str) -> Table {
        Table { title: title.to_owned(), head: self.head, rows: self.rows }
    }
}

/// What a step of these runs costs. A shorter run, of a tenth of the steps, says what comes before
/// the steps.
fn costs(all: f64, runs: &[(usize, Finished)], begun: Whole) -> Vec<Cost> {
    let of = |what: &dyn Fn(&Finished) -> Option<f64>| runs.iter().map(|(_, run)| what(run)).collect::<Option<Vec<f64>>>().map(median);
    let without_start = || of(&|run| Some((float(run.whole.with_start()) - float(begun.with_start())) / (all * 0.9)));
    let server = |what: fn(Totals) -> u64| {
        of(&|run| match run.whole {
            Whole::Server(totals) => Some(float(what(totals)) / all),
            Whole::Kept(_) => None,
        })
    };
    let cost = |name, head, digits, value| Cost { name, head, value, digits };
    match begun {
        Whole::Kept(_) => vec![
            cost("fsyncs_per_step", "fsyncs a step", 3, of(&|run| Some(float(run.spent.syncs?) / all))),
            cost("bytes_to_disk_per_step", "bytes to disk a step", 0, of(&|run| Some(float(run.spent.stored?) / all))),
            cost("bytes_kept_per_step", "bytes kept a step", 0, without_start()),
        ],
        Whole::Server(_) => vec![
            cost("commits_per_step", "commits a step", 3, server(|totals| totals.writes)),
            // Where a transaction stores many steps, what an engine does besides is as much.
            cost("transactions_per_step", "transactions a step, with reads", 1, without_start().map(|value| value.max(0.0))),
            cost("wal_bytes_per_step", "WAL bytes a step", 0, server(|totals| totals.wal_bytes)),
        ],
    }
}

fn each_second(entry: &Entry, run: &Finished) -> f64 {
    float(entry.workflows * entry.steps) / run.spent.seconds
}
