//! The database of a round at its end, read without the library.
use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::{Connection, OpenFlags, Row};

use super::peek;
use super::worker::database;

/// A fiber's row.
#[derive(Debug)]
pub(crate) struct StoredFiber {
    pub(crate) name: String,
    pub(crate) state: String,
    /// The result or the reason.
    pub(crate) text: String,
    /// Id of the parent.
    pub(crate) parent: Option<String>,
}

pub(crate) struct Stored {
    /// Fibers by id.
    pub(crate) fibers: BTreeMap<String, StoredFiber>,
    /// Fiber, place, value.
    pub(crate) bookings: Vec<(String, u32, i64)>,
    /// Agent, name, error; one row for each schedule.
    pub(crate) schedules: Vec<(String, String, Option<String>)>,
    /// Agent, and its state.
    pub(crate) agents: BTreeMap<String, u64>,
}

impl Stored {
    pub(crate) fn read(dir: &Path) -> anyhow::Result<Self> {
        let sql = Connection::open_with_flags(database(dir), OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        peek::check(&sql)?;
        let fibers = all(
            &sql,
            "SELECT f.id, f.name, f.state, coalesce(f.result, f.reason, ''), p.id FROM fibers f LEFT JOIN fibers p ON p.seq = f.parent",
            |row| {
                let fiber = StoredFiber { name: row.get(1)?, state: row.get(2)?, text: row.get(3)?, parent: row.get(4)? };
                Ok((row.get(0)?, fiber))
            },
        )?;
        Ok(Stored {
            fibers: fibers.into_iter().collect(),
            bookings: all(&sql, "SELECT fiber, place, value FROM bookings", |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?,
            schedules: all(&sql, "SELECT agent, name, error FROM schedules", |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?,
            agents: all(&sql, "SELECT name, CAST(state AS INTEGER) FROM agents WHERE state IS NOT NULL", |row| {
                Ok((row.get(0)?, row.get::<_, i64>(1)?.cast_unsigned()))
            })?
            .into_iter()
            .collect(),
        })
    }

    /// The result of a fiber that has completed with text.
    pub(crate) fn result(&self, id: &str) -> Option<String> {
        let fiber = self.fibers.get(id).filter(|fiber| fiber.state == "completed")?;
        serde_json::from_str(&fiber.text).ok()
    }
}

fn all<T>(sql: &Connection, query: &str, read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>) -> anyhow::Result<Vec<T>> {
    let mut statement = sql.prepare(query)?;
    let rows = statement.query_map((), read)?.collect::<Result<_, _>>()?;
    Ok(rows)
}
