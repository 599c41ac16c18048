//! What can be seen of fibers from outside, in the database and in the [`Model`]: the same fields of text, to be compared and printed.
use std::collections::BTreeMap;
use std::path::Path;

use forever::fiber::FiberStatus;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

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

/// A database, as it is while nobody has it open.
pub(crate) struct Database {
    conn: Connection,
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
    /// Reads and changes nothing: the next process finds the log as the last one has left it.
    pub(crate) fn look(path: &Path, begun: i64) -> rusqlite::Result<Self> {
        let conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        Ok(Database { conn, begun })
    }

    pub(crate) fn rows(&self) -> rusqlite::Result<(Rows, Ids)> {
        // All of it from one moment.
        let all = self.conn.unchecked_transaction()?;
        let mut ids = Ids::default();
        let mut seqs = BTreeMap::new();
        let mut rows: BTreeMap<i64, Row> = BTreeMap::new();
        let mut fibers = all.prepare_cached(
            "SELECT f.seq, f.id, f.name, f.key, f.agent, p.args, f.state, f.reason, f.cancel, f.result, coalesce(s.number, 0),
                    coalesce(s.deaths, 0), f.restarts, w.due_ms, w.topic, f.args
             FROM fibers f LEFT JOIN fibers p ON p.seq = f.parent LEFT JOIN snapshots s ON s.fiber = f.seq
             LEFT JOIN waits w ON w.fiber = f.seq",
        )?;
        let mut found = fibers.query(())?;
        while let Some(r) = found.next()? {
            let name = name_in(&r.get::<_, String>(15)?);
            let seq = r.get(0)?;
            ids.fibers.insert(name.clone(), r.get(1)?);
            seqs.insert(seq, name);
            let result: Option<String> = r.get(9)?;
            let heard = |text: String| format!("{:?}", serde_json::from_str::<Vec<String>>(&text).unwrap_or_default());
            let fields = row([
                ("function", r.get(2)?),
                ("key", text(r.get::<_, Option<String>>(3)?)),
                ("agent", text(r.get::<_, Option<String>>(4)?)),
                ("parent", text(r.get::<_, Option<String>>(5)?.map(|args| name_in(&args)))),
                ("state", r.get(6)?),
                ("why", text(r.get::<_, Option<String>>(7)?.map(|why| word_of(&why)))),
                ("cancel", text(r.get::<_, Option<String>>(8)?)),
                ("result", text(result.map(heard))),
                ("checkpoints", r.get::<_, i64>(10)?.to_string()),
                ("deaths", r.get::<_, u32>(11)?.to_string()),
                ("restarts", r.get::<_, u32>(12)?.to_string()),
                ("due", text(r.get::<_, Option<i64>>(13)?.map(|due| due - self.begun))),
                ("topic", text(r.get::<_, Option<String>>(14)?)),
            ]);
            rows.insert(seq, fields);
        }
        let mut joins: BTreeMap<i64, Vec<String>> = BTreeMap::new();
        let mut there = all.prepare_cached("SELECT fiber, child FROM joins ORDER BY child")?;
        let mut found = there.query(())?;
        while let Some(r) = found.next()? {
            joins.entry(r.get(0)?).or_default().push(seqs[&r.get::<_, i64>(1)?].clone());
        }
        let mut messages: BTreeMap<i64, Vec<u64>> = BTreeMap::new();
        let mut there = all.prepare_cached("SELECT fiber, data FROM messages ORDER BY seq")?;
        let mut found = there.query(())?;
        while let Some(r) = found.next()? {
            messages.entry(r.get(0)?).or_default().push(r.get::<_, String>(1)?.parse().unwrap_or(u64::MAX));
        }
        let mut ops: BTreeMap<i64, Vec<String>> = BTreeMap::new();
        let mut there =
            all.prepare_cached("SELECT fiber, number, id, state, resolved FROM op_ledger WHERE kind = 'effect' ORDER BY number")?;
        let mut found = there.query(())?;
        while let Some(r) = found.next()? {
            let (seq, number): (i64, u64) = (r.get(0)?, r.get::<_, i64>(1)?.cast_unsigned());
            ids.ops.insert((seqs[&seq].clone(), number), r.get(2)?);
            ops.entry(seq).or_default().push(op(number, &r.get::<_, String>(3)?, r.get(4)?));
        }
        for (seq, row) in &mut rows {
            row.insert("joins", format!("{:?}", joins.remove(seq).unwrap_or_default()));
            row.insert("messages", format!("{:?}", messages.remove(seq).unwrap_or_default()));
            row.insert("ops", ops.remove(seq).unwrap_or_default().join(", "));
        }
        Ok((rows.into_iter().map(|(seq, row)| (seqs[&seq].clone(), row)).collect(), ids))
    }
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
