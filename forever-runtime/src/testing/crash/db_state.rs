//! Content of a database, read beside the store and independently of it.
use std::collections::BTreeMap;
use std::fmt;

use rusqlite::Connection;

/// Content of a database at one moment.
#[derive(Debug, Clone, Default)]
pub(in crate::testing) struct DbState {
    pub(super) fibers: Vec<FiberImage>,
    /// Effects and manual operations.
    ops: Vec<Op>,
    /// Messages that were sent and not received: fiber, topic, text.
    messages: Vec<(i64, String, String)>,
    /// Agent, name, kind and payload of each schedule.
    schedules: Vec<String>,
    /// Whether fibers were deleted by a command before.
    pub(super) deleted: bool,
}

/// A fiber as it is stored.
#[derive(Debug, Clone)]
pub(super) struct FiberImage {
    seq: i64,
    pub(super) id: String,
    name: String,
    key: Option<String>,
    parent: Option<i64>,
    args: String,
    pub(super) state: String,
    /// The result, or the reason why there is none.
    end: Option<String>,
    pub(super) checkpoints: u64,
    at: Option<String>,
    snapshot: Option<String>,
}

#[derive(Debug, Clone)]
struct Op {
    fiber: i64,
    id: String,
    kind: String,
    step: String,
    key: Option<String>,
    state: String,
    outcome: Option<String>,
}

/// A row of either database, by the names of its columns.
pub(super) trait Columns {
    type Error;

    fn int(&self, name: &str) -> Result<i64, Self::Error>;
    fn text(&self, name: &str) -> Result<String, Self::Error>;
    fn int_or_null(&self, name: &str) -> Result<Option<i64>, Self::Error>;
    fn text_or_null(&self, name: &str) -> Result<Option<String>, Self::Error>;
}

macro_rules! columns {
    ($row:ty, $get:ident, $error:ty) => {
        impl Columns for $row {
            type Error = $error;

            fn int(&self, name: &str) -> Result<i64, $error> {
                self.$get(name)
            }
            fn text(&self, name: &str) -> Result<String, $error> {
                self.$get(name)
            }
            fn int_or_null(&self, name: &str) -> Result<Option<i64>, $error> {
                self.$get(name)
            }
            fn text_or_null(&self, name: &str) -> Result<Option<String>, $error> {
                self.$get(name)
            }
        }
    };
}

columns!(rusqlite::Row<'_>, get, rusqlite::Error);
#[cfg(feature = "postgres")]
columns!(forever_postgres::tokio_postgres::Row, try_get, forever_postgres::tokio_postgres::Error);

const FIBERS: &str =
    "SELECT f.seq, f.id, f.name, f.key, f.parent, f.args, f.state, coalesce(f.result, f.reason) AS ended, s.number, s.at, d.document
     FROM fibers f LEFT JOIN snapshots s ON s.fiber = f.seq LEFT JOIN snapshot_documents d ON d.id = f.id ORDER BY f.seq";
const OPS: &str =
    "SELECT fiber, id, kind, step, key, state, outcome FROM op_ledger WHERE kind IN ('effect', 'op') ORDER BY fiber, number, id";
/// The same in both databases, where `@` stands for the schema.
const MESSAGES: &str = "SELECT m.fiber, m.topic, m.data FROM @messages m JOIN @fibers f ON f.seq = m.fiber
                        WHERE f.state NOT IN ('completed', 'cancelled') ORDER BY m.seq";
const SCHEDULES: &str =
    "SELECT class || ' `' || agent || '`: ' || name || ' (' || kind || ') ' || payload AS schedule FROM @schedules ORDER BY 1";

impl DbState {
    /// Queries for fibers, operations, messages and schedules in Postgres.
    #[cfg(feature = "postgres")]
    pub(super) const IN_POSTGRES: [&str; 4] = [
        "SELECT f.seq, f.id, f.name, f.key, f.parent, f.args, f.state, coalesce(f.result, f.reason) AS ended, s.number, s.at,
                s.data AS document
         FROM @fibers f LEFT JOIN @snapshots s ON s.fiber = f.seq ORDER BY f.seq",
        "SELECT fiber, id, kind, step, key, state, outcome FROM @ops WHERE kind IN ('effect', 'op') ORDER BY fiber, number, id",
        MESSAGES,
        SCHEDULES,
    ];

    /// Reads the database. Tables that the process did not create before it died count as empty.
    pub(in crate::testing) fn read(conn: &Connection) -> rusqlite::Result<Self> {
        let tables: i64 = conn.query_row("SELECT count(*) FROM sqlite_schema WHERE name = 'stream_log'", (), |r| r.get(0))?;
        if tables == 0 {
            return Ok(DbState::default());
        }
        Ok(DbState {
            fibers: conn.prepare(FIBERS)?.query_map((), |row| fiber(row))?.collect::<Result<_, _>>()?,
            ops: conn.prepare(OPS)?.query_map((), |row| op(row))?.collect::<Result<_, _>>()?,
            messages: conn.prepare(&MESSAGES.replace('@', ""))?.query_map((), |row| message(row))?.collect::<Result<_, _>>()?,
            schedules: conn.prepare(&SCHEDULES.replace('@', ""))?.query_map((), |row| schedule(row))?.collect::<Result<_, _>>()?,
            deleted: false,
        })
    }

    /// The rows of these queries in another database.
    #[cfg(feature = "postgres")]
    pub(super) fn of_rows<R: Columns>(fibers: &[R], ops: &[R], messages: &[R], schedules: &[R]) -> Result<Self, R::Error> {
        Ok(DbState {
            fibers: fibers.iter().map(fiber).collect::<Result<_, _>>()?,
            ops: ops.iter().map(op).collect::<Result<_, _>>()?,
            messages: messages.iter().map(message).collect::<Result<_, _>>()?,
            schedules: schedules.iter().map(schedule).collect::<Result<_, _>>()?,
            deleted: false,
        })
    }

    /// Names for fibers in place of their ids, which differ in each run.
    pub(super) fn names(&self) -> Names {
        // A fiber whose arguments contain the id of another is named by the other's name, so those
        // without come first. Short ids were given by the program, and are the same in every run.
        let long = self.fibers.iter().filter(|fiber| fiber.id.len() >= LONG_ID);
        let mut replace: Vec<_> = long.map(|fiber| (fiber.id.clone(), format!("<{}>", fiber.name))).collect();
        let by_seq: BTreeMap<_, _> = self.fibers.iter().map(|fiber| (fiber.seq, fiber)).collect();
        let named = |fiber: &FiberImage| -> String {
            let mut name = fiber.called(&replace);
            let mut above = fiber;
            while let Some(parent) = above.parent.and_then(|parent| by_seq.get(&parent)) {
                name = format!("{name} of {}", parent.called(&replace));
                above = parent;
            }
            name
        };
        let fibers = self.fibers.iter().map(|fiber| (fiber.id.clone(), named(fiber))).collect();
        replace.extend(self.ops.iter().map(|op| (op.id.clone(), format!("<{}>", op.step))));
        Names { fibers, replace }
    }

    /// Everything that must be the same in every run, as sorted lines.
    pub(super) fn lines(&self) -> Vec<String> {
        let names = self.names();
        let fiber_of = |seq: i64| self.fibers.iter().find(|fiber| fiber.seq == seq).map_or("?", |fiber| names.of(&fiber.id));
        let mut lines = Vec::new();
        for fiber in &self.fibers {
            let end = names.plain(&same(fiber.end.as_deref().unwrap_or_default()));
            lines.push(format!("fiber {}: {} {end}", names.of(&fiber.id), fiber.state));
        }
        for op in &self.ops {
            let [key, outcome] = [&op.key, &op.outcome].map(|text| names.plain(&same(text.as_deref().unwrap_or_default())));
            let key = if key.is_empty() { key } else { format!(" with key {key}") };
            lines.push(format!("{} `{}`{key} of fiber {}: {} {outcome}", op.kind, op.step, fiber_of(op.fiber), op.state));
        }
        for (fiber, topic, data) in &self.messages {
            lines.push(format!("message on `{topic}` to fiber {}: {}", fiber_of(*fiber), names.plain(data)));
        }
        lines.extend(self.schedules.iter().map(|schedule| format!("schedule of {}", names.plain(schedule))));
        for line in &mut lines {
            line.truncate(line.trim_end().len());
        }
        lines.sort_unstable();
        lines
    }
}

fn fiber<R: Columns>(row: &R) -> Result<FiberImage, R::Error> {
    Ok(FiberImage {
        seq: row.int("seq")?,
        id: row.text("id")?,
        name: row.text("name")?,
        key: row.text_or_null("key")?,
        parent: row.int_or_null("parent")?,
        args: row.text("args")?,
        state: row.text("state")?,
        end: row.text_or_null("ended")?,
        checkpoints: row.int_or_null("number")?.unwrap_or_default().cast_unsigned(),
        at: row.text_or_null("at")?,
        snapshot: row.text_or_null("document")?,
    })
}

fn op<R: Columns>(row: &R) -> Result<Op, R::Error> {
    Ok(Op {
        fiber: row.int("fiber")?,
        id: row.text("id")?,
        kind: row.text("kind")?,
        step: row.text("step")?,
        key: row.text_or_null("key")?,
        state: row.text("state")?,
        outcome: row.text_or_null("outcome")?,
    })
}

fn message<R: Columns>(row: &R) -> Result<(i64, String, String), R::Error> {
    Ok((row.int("fiber")?, row.text("topic")?, row.text("data")?))
}

fn schedule<R: Columns>(row: &R) -> Result<String, R::Error> {
    row.text("schedule")
}

impl FiberImage {
    fn called(&self, replace: &[(String, String)]) -> String {
        let name = format!("{}{}", self.name, plain(&self.args, replace));
        match &self.key {
            Some(key) => format!("{name} with key `{key}`"),
            None => name,
        }
    }
}

/// The form for a report.
impl fmt::Display for DbState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.fibers.is_empty() {
            writeln!(f, "    no fiber")?;
        }
        for fiber in &self.fibers {
            write!(f, "    {}{} `{}` is {}", fiber.name, short(&fiber.args), fiber.id, fiber.state)?;
            match (&fiber.end, &fiber.at) {
                (Some(end), _) => write!(f, ": {}", short(end))?,
                (None, Some(at)) => write!(f, " after checkpoint {}, `{at}`", fiber.checkpoints)?,
                (None, None) => write!(f, " before its first checkpoint")?,
            }
            if let Some(snapshot) = &fiber.snapshot {
                write!(f, "\n      {}", short(snapshot))?;
            }
            writeln!(f)?;
            for op in self.ops.iter().filter(|op| op.fiber == fiber.seq) {
                writeln!(f, "      {} `{}` is {} {}", op.kind, op.step, op.state, short(op.outcome.as_deref().unwrap_or_default()))?;
            }
        }
        Ok(())
    }
}

/// Minimum length of ids made by the runtime.
const LONG_ID: usize = 16;

/// Maximum length of a text that a report shows whole, in characters.
const SHORT: usize = 240;

fn short(text: &str) -> String {
    match text.char_indices().nth(SHORT).and_then(|(end, _)| text.get(..end)) {
        Some(start) => format!("{start}.. ({} bytes)", text.len()),
        None => text.to_owned(),
    }
}

/// Normalizes a value: resolutions by a person may have their fields in another order.
fn same(text: &str) -> String {
    serde_json::from_str::<serde_json::Value>(text).map_or_else(|_| text.to_owned(), |value| value.to_string())
}

/// Names of the fibers of one run.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    fibers: BTreeMap<String, String>,
    /// Ids with their replacements.
    replace: Vec<(String, String)>,
}

impl Names {
    pub(super) fn of(&self, id: &str) -> &str {
        self.fibers.get(id).map_or("that is gone", String::as_str)
    }

    /// A text without the ids that differ in each run.
    fn plain(&self, text: &str) -> String {
        plain(text, &self.replace)
    }
}

fn plain(text: &str, replace: &[(String, String)]) -> String {
    let mut text = text.to_owned();
    for (id, name) in replace {
        if text.contains(id.as_str()) {
            text = text.replace(id.as_str(), name);
        }
    }
    text
}
