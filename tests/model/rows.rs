//! What can be seen of fibers from outside, in the database and in the [`Model`]: the same fields of text, to be compared and printed.
use std::collections::BTreeMap;
use std::path::Path;

use forever::fiber::FiberStatus;
use forever_testkit::database;

use crate::model::{Fiber, Model, Place};

/// A fiber, field by field.
pub(crate) type Row = BTreeMap<&'static str, String>;

/// All fibers, by name.
pub(crate) type Rows = BTreeMap<String, Row>;

fn row<const N: usize>(fields: [(&'static str, String); N]) -> Row {
    Row::from(fields)
}

fn text<T: ToString>(value: Option<T>) -> String {
    value.map_or("none".to_owned(), |value| value.to_string())
}

pub(crate) fn of_model(model: &Model) -> Rows {
    model.fibers.iter().map(|(name, fiber)| (name.clone(), of_fiber(fiber))).collect()
}

fn of_fiber(fiber: &Fiber) -> Row {
    let waits = fiber.state == forever::fiber::FiberState::Waiting;
    let (due, topic, joins) = match &fiber.at {
        Place::Sleeping { until } if waits => (Some(*until), None, vec![]),
        Place::Hearing { until } if waits => (*until, Some("word"), vec![]),
        Place::Joining { child } if waits => (None, None, vec![child.clone()]),
        _ => (None, None, vec![]),
    };
    let ops: Vec<_> = fiber.ops.iter().map(|(number, act)| op(*number, act.state.as_str(), act.resolved)).collect();
    row([
        ("function", if fiber.guest { "guest" } else { "puppet" }.to_owned()),
        ("key", text(fiber.key.as_ref())),
        ("agent", text(fiber.agent)),
        ("parent", text(fiber.parent.as_ref())),
        ("state", fiber.state.to_string()),
        ("why", text(fiber.why.as_ref())),
        ("cancel", text(fiber.cancel.as_ref())),
        ("result", text(fiber.result.as_ref().map(|heard| format!("{heard:?}")))),
        ("checkpoints", fiber.number.to_string()),
        ("deaths", fiber.deaths.to_string()),
        ("restarts", fiber.restarts.to_string()),
        ("due", text(due)),
        ("topic", text(topic)),
        ("joins", format!("{joins:?}")),
        ("messages", format!("{:?}", fiber.messages)),
        ("ops", ops.join(", ")),
    ])
}

fn op(number: u64, state: &str, resolved: bool) -> String {
    format!("{state} at {number}{}", if resolved { " by hand" } else { "" })
}

/// The database, beside the process that may have it open.
pub(crate) struct Database {
    beside: database::Database,
    /// The time that is 0, in milliseconds since 1970.
    begun: i64,
}

/// What only the database knows: ids.
#[derive(Debug, Default, Clone)]
pub(crate) struct Ids {
    pub(crate) fibers: BTreeMap<String, String>,
    pub(crate) ops: BTreeMap<(String, u64), String>,
}

impl Database {
    /// `None` while a process has made nothing.
    pub(crate) fn look(path: &Path, begun: i64) -> Option<Self> {
        let is_there = database::is_in_postgres() || path.exists();
        let beside = is_there.then(|| database::Database::look(path)).filter(database::Database::has_tables)?;
        Some(Database { beside, begun })
    }

    pub(crate) fn rows(&self) -> (Rows, Ids) {
        let topic = if database::is_in_postgres() { "(SELECT max(t.topic) FROM wait_topics t WHERE t.fiber = f.seq)" } else { "w.topic" };
        let fibers = format!(
            "SELECT f.seq, f.id, f.name, f.key, f.agent, p.args, f.state, f.reason, f.cancel, f.result, coalesce(s.number, 0),
                    coalesce(s.deaths, 0), f.restarts, w.due_ms, {topic}, f.args
             FROM fibers f LEFT JOIN fibers p ON p.seq = f.parent LEFT JOIN snapshots s ON s.fiber = f.seq
             LEFT JOIN waits w ON w.fiber = f.seq"
        );
        let [fibers, joined, sent, effects] = self.beside.at_one_moment([
            &fibers,
            "SELECT fiber, child FROM joins ORDER BY child",
            "SELECT fiber, data FROM messages ORDER BY seq",
            "SELECT fiber, number, id, state, resolved FROM op_ledger WHERE kind = 'effect' ORDER BY number",
        ]);
        let mut ids = Ids::default();
        let mut seqs = BTreeMap::new();
        let mut rows: BTreeMap<String, Row> = BTreeMap::new();
        for found in fibers {
            let [seq, id, function, key, agent, parent, state, why, cancel, result, number, deaths, restarts, due, topic, args] =
                <[_; 16]>::try_from(found).unwrap();
            let name = name_in(&args.unwrap());
            let seq = seq.unwrap();
            ids.fibers.insert(name.clone(), id.unwrap());
            seqs.insert(seq.clone(), name);
            let heard = |text: String| format!("{:?}", serde_json::from_str::<Vec<String>>(&text).unwrap_or_default());
            let fields = row([
                ("function", text(function)),
                ("key", text(key)),
                ("agent", text(agent)),
                ("parent", text(parent.map(|args| name_in(&args)))),
                ("state", text(state)),
                ("why", text(why.map(|why| word_of(&why)))),
                ("cancel", text(cancel)),
                ("result", text(result.map(heard))),
                ("checkpoints", text(number)),
                ("deaths", text(deaths)),
                ("restarts", text(restarts)),
                ("due", text(due.map(|due| due.parse::<i64>().unwrap() - self.begun))),
                ("topic", text(topic)),
            ]);
            rows.insert(seq, as_in_sqlite(fields));
        }
        let mut joins: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for [fiber, child] in joined.into_iter().map(of_columns) {
            joins.entry(fiber).or_default().push(seqs[&child].clone());
        }
        let mut messages: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for [fiber, data] in sent.into_iter().map(of_columns) {
            messages.entry(fiber).or_default().push(data.parse().unwrap_or(u64::MAX));
        }
        let mut ops: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for [fiber, number, id, state, resolved] in effects.into_iter().map(of_columns) {
            let number = number.parse().unwrap();
            ids.ops.insert((seqs[&fiber].clone(), number), id);
            ops.entry(fiber).or_default().push(op(number, &state, ["1", "t"].contains(&&*resolved)));
        }
        for (seq, row) in &mut rows {
            row.insert("joins", format!("{:?}", joins.remove(seq).unwrap_or_default()));
            row.insert("messages", format!("{:?}", messages.remove(seq).unwrap_or_default()));
            row.insert("ops", ops.remove(seq).unwrap_or_default().join(", "));
        }
        (rows.into_iter().map(|(seq, row)| (seqs[&seq].clone(), row)).collect(), ids)
    }
}

/// Over Postgres a fiber that its worker has left is stored as pending, and the reason tells it from others: any worker may claim it.
fn as_in_sqlite(mut row: Row) -> Row {
    if database::is_in_postgres() && row["state"] == "pending" && row["why"] == "process died" {
        row.insert("state", "interrupted".to_owned());
    }
    row
}

/// The values of a row without NULL.
fn of_columns<const N: usize>(row: database::Row) -> [String; N] {
    <[_; N]>::try_from(row).unwrap().map(Option::unwrap)
}

/// What a list of fibers shows of one.
pub(crate) fn of_status(status: &FiberStatus, ids: &Ids) -> Row {
    let name_of = |id: &String| ids.fibers.iter().find(|(_, other)| *other == id).map(|(name, _)| name.clone());
    row([
        ("function", status.name.clone()),
        ("key", text(status.key.as_ref())),
        ("agent", text(status.agent.as_ref().map(|(_, name)| name))),
        ("parent", text(status.parent.as_ref().and_then(name_of))),
        ("state", status.state.to_string()),
        ("why", text(status.reason.as_ref().map(|why| word_of(why)))),
        ("checkpoints", status.checkpoints.to_string()),
        ("deaths", status.deaths.to_string()),
    ])
}

fn name_in(args: &str) -> String {
    let args: serde_json::Value = serde_json::from_str(args).unwrap_or_default();
    args["name"].as_str().unwrap_or("nameless").to_owned()
}

/// What tells one reason from another.
fn word_of(why: &str) -> String {
    let words =
        ["not registered", "to be restarted, but", "to be restarted", "may have executed", "recoveries are allowed", "process died"];
    let others = ["was closed", "broken", "declined", "said so"];
    let word = words.into_iter().chain(others).find(|word| why.contains(word)).unwrap_or(why);
    match word {
        "to be restarted, but" => "may have executed",
        "recoveries are allowed" => "died too often",
        word => word,
    }
    .to_owned()
}

/// In what two views differ; nothing if they do not.
pub(crate) fn differences(should: &Rows, is: &Rows) -> String {
    let names: std::collections::BTreeSet<_> = should.keys().chain(is.keys()).collect();
    let mut all = String::new();
    for name in names {
        match (should.get(name), is.get(name)) {
            (Some(should), Some(is)) => {
                for (field, wanted) in should {
                    let there = is.get(field).map_or("not told", String::as_str);
                    if wanted != there {
                        all.push_str(&["\n    ", field, " of ", name, " should be ", wanted, ", and is ", there].concat());
                    }
                }
            }
            (Some(_), None) => all.push_str(&["\n    ", name, " should be there, and is not"].concat()),
            (None, Some(_)) => all.push_str(&["\n    ", name, " should not be there, and is"].concat()),
            (None, None) => {}
        }
    }
    all
}
