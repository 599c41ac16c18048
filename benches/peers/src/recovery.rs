//! Recovery time: from the start of the next process, after a SIGKILL in a step, to the body of
//! that step.
use std::time::Duration;

use crate::children::{Children, Place};
use crate::numbers::median;
use crate::table::{Table, short};
use crate::work::{Duroxide, Engine, Store};

/// A way to be killed and restarted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way {
    engine: Engine,
    store: Store,
    /// Name in the output.
    name: &'static str,
    /// Label in the plot and the table.
    label: &'static str,
    /// Pause between the kill and the start; `None` where it makes no difference, so that other
    /// ways can run meanwhile.
    rest: Option<Duration>,
    rounds: usize,
    /// The greatest number of steps that it reaches in a short time.
    up_to: u64,
}

/// Recovery times of one way, by the number of finished steps.
pub(crate) struct Line {
    pub(crate) label: &'static str,
    pub(crate) points: Vec<Point>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Point {
    pub(crate) finished: u64,
    /// Milliseconds to the body of the interrupted step.
    pub(crate) first: f64,
    /// Milliseconds to the body of the next step.
    pub(crate) next: f64,
}

/// The ways over SQLite.
pub(crate) fn ways(quick: bool) -> Vec<Way> {
    let way = |engine: Engine, name, label, rest, rounds, up_to| {
        let store = Store::Sqlite { power: engine.can_sync() };
        Way { engine, store, name, label, rest, rounds, up_to }
    };
    let duroxide = Engine::Duroxide(Duroxide::Renewed);
    let (at_once, later) = (Some(Duration::ZERO), Some(Duration::from_millis(1_200)));
    let (rounds, few) = if quick { (1, 1) } else { (7, 3) };
    let (many, some) = if quick { (1_000, 100) } else { (10_000, 1_000) };
    let mut ways = vec![
        way(Engine::Floor, "floor", "SQLite alone", None, rounds, many),
        way(Engine::Forever, "forever", "Forever", None, rounds, many),
        way(Engine::Durare, "durare", "durare", None, rounds, many),
        way(duroxide, "duroxide", "duroxide at once, locks of 1 s", at_once, few, some),
        way(duroxide, "duroxide_later", "duroxide, its locks run out", later, few, some),
    ];
    if !quick {
        let defaults = Engine::Duroxide(Duroxide::Defaults);
        ways.push(way(defaults, "duroxide_defaults", "duroxide at once, defaults", at_once, 1, 10));
    }
    ways
}

/// The ways over Postgres.
pub(crate) fn postgres_ways(quick: bool) -> Vec<Way> {
    let (rounds, up_to) = if quick { (1, 100) } else { (7, 1_000) };
    let way = |engine, name, label| Way { engine, store: Store::Postgres, name, label, rest: None, rounds, up_to };
    vec![
        way(Engine::Floor, "postgres_floor", "Postgres alone"),
        way(Engine::Forever, "postgres_forever", "Forever"),
        way(Engine::Durare, "postgres_durare", "durare"),
        way(Engine::Dbos, "postgres_dbos", "DBOS"),
    ]
}

/// A killed process of a way, at some number of finished steps.
struct Killed<'a> {
    children: &'a Children<'a>,
    way: Way,
    place: Place<'a>,
    finished: u64,
    times: Vec<[f64; 2]>,
}

impl<'a> Killed<'a> {
    fn new(children: &'a Children, way: Way, finished: u64) -> anyhow::Result<Self> {
        let place = children.place(way.store)?;
        // The earlier steps are not measured, and SQLite is faster at this durability.
        let store = if way.store == Store::Postgres { Store::Postgres } else { Store::Sqlite { power: false } };
        children.killed_after(way.engine, store, &place, 0, finished)?;
        Ok(Killed { children, way, place, finished, times: Vec::new() })
    }

    /// Measures once more, which finishes one more step.
    fn again(&mut self) -> anyhow::Result<()> {
        std::thread::sleep(self.way.rest.unwrap_or_default());
        let from = self.finished + self.times.len() as u64;
        self.times.push(self.children.killed_after(self.way.engine, self.way.store, &self.place, from, 1)?);
        Ok(())
    }

    fn point(&self) -> Point {
        let of = |which: usize| median(self.times.iter().map(|time| time[which]).collect());
        let point = Point { finished: self.finished, first: of(0), next: of(1) };
        println!("recovery_{}_{}_first_ms={:.1}", self.way.name, self.finished, point.first);
        println!("recovery_{}_{}_next_ms={:.1}", self.way.name, self.finished, point.next);
        point
    }
}

pub(crate) fn measure(children: &Children, ways: &[Way]) -> anyhow::Result<Vec<Line>> {
    let mut lines: Vec<Line> = ways.iter().map(|way| Line { label: way.label, points: Vec::new() }).collect();
    for finished in [10, 100, 1_000, 10_000] {
        let mut in_turn = Vec::new();
        for (way, line) in ways.iter().zip(&mut lines).filter(|(way, _)| finished <= way.up_to) {
            let mut killed = Killed::new(children, *way, finished)?;
            if way.rest.is_none() {
                in_turn.push((killed, line));
            } else {
                (0..way.rounds).try_for_each(|_| killed.again())?;
                line.points.push(killed.point());
            }
        }
        for _ in 0..in_turn.first().map_or(0, |(killed, _)| killed.way.rounds) {
            in_turn.iter_mut().try_for_each(|(killed, _)| killed.again())?;
        }
        for (killed, line) in in_turn {
            line.points.push(killed.point());
        }
    }
    Ok(lines)
}

/// A row for each way, a column for each number of steps.
pub(crate) fn table(store: &str, lines: &[Line]) -> Table {
    let counts: Vec<u64> = lines.first().map(|line| line.points.iter().map(|point| point.finished).collect()).unwrap_or_default();
    let cell = |line: &Line, count: &u64| {
        let point = line.points.iter().find(|point| point.finished == *count);
        point.map_or("-".to_owned(), |point| format!("{}, {}", short(point.first), short(point.next)))
    };
    let head = std::iter::once(String::new()).chain(counts.iter().map(|count| format!("after {count}"))).collect();
    let rows = lines
        .iter()
        .map(|line| std::iter::once(line.label.to_owned()).chain(counts.iter().map(|count| cell(line, count))).collect())
        .collect();
    let title = format!("From the start of a process to the interrupted step, and to the one after it, in ms, on {store}");
    Table { title, head, rows }
}
