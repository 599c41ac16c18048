//! Reads the database of a dead worker, without the library, and checks its integrity with SQLite.
use std::path::Path;

use anyhow::{Context, ensure};
use rusqlite::{Connection, OptionalExtension};

use super::journal;
use super::sabotage::Sabotage;
use super::worker::{DATABASE, database};

/// Progress of the fibers, as lines for the log of effects. This reads a copy, so that the next
/// worker finds the database unchanged.
pub(crate) fn into_copy(dir: &Path) -> anyhow::Result<Vec<String>> {
    let copy = tempfile::tempdir_in(dir)?;
    for name in ["", "-wal", "-journal"].map(|suffix| format!("{DATABASE}{suffix}")) {
        if dir.join(&name).exists() {
            std::fs::copy(dir.join(&name), copy.path().join(&name))?;
        }
    }
    let sql = Connection::open(copy.path().join(DATABASE))?;
    check(&sql)?;
    let tables: u32 = sql.query_row("SELECT count(*) FROM sqlite_schema WHERE name = 'branch_results'", (), |row| row.get(0))?;
    if tables == 0 {
        return Ok(Vec::new()); // The worker died before the database existed.
    }
    let mut lines = Vec::new();
    let mut fibers = sql.prepare("SELECT f.id, s.number FROM fibers f JOIN snapshots s ON s.fiber = f.seq WHERE s.number > 0")?;
    for row in fibers.query_map((), |row| Ok((row.get::<_, String>(0)?, row.get::<_, u32>(1)?)))? {
        let (id, number) = row?;
        lines.push(format!("stored {id} {number}"));
    }
    for data in sql.prepare("SELECT data FROM branch_results")?.query_map((), |row| row.get::<_, String>(0))? {
        let branch: String = serde_json::from_str(&data?)?;
        let (fiber, place) = branch.split_once('/').context("a branch without a place")?;
        lines.push(format!("arrived {fiber} {place}"));
    }
    Ok(lines)
}

/// Runs SQLite's integrity check.
pub(crate) fn check(sql: &Connection) -> anyhow::Result<()> {
    let said: String = sql.query_row("PRAGMA integrity_check", (), |row| row.get(0))?;
    ensure!(said == "ok", "the database is damaged: {said}");
    let foreign: Option<String> = sql.query_row("PRAGMA foreign_key_check", (), |row| row.get(0)).optional()?;
    ensure!(foreign.is_none(), "a row of `{}` refers to nothing", foreign.unwrap_or_default());
    Ok(())
}

/// Removes something that is stored; returns whether there was anything. Of fibers it takes one
/// that was accepted: any other would be started anew.
pub(crate) fn damage(dir: &Path, how: Sabotage) -> anyhow::Result<bool> {
    let sql = Connection::open(database(dir))?;
    sql.pragma_update(None, "foreign_keys", true)?;
    let damaged = match how {
        Sabotage::Bank => return Ok(true),
        Sabotage::Fiber => {
            let lines = journal::read(dir)?;
            let accepted: Vec<_> = lines.iter().filter_map(|line| line.text.strip_prefix("accepted ")).collect();
            let query =
                "DELETE FROM fibers WHERE seq = (SELECT min(f.seq) FROM fibers f JOIN json_each(?1) accepted ON accepted.value = f.id
                         WHERE f.name = 'chain' AND f.state <> 'completed')";
            sql.execute(query, [serde_json::to_string(&accepted)?])?
        }
        Sabotage::Snapshot => {
            let query = "UPDATE snapshots SET number = 0, at = NULL, layout = NULL, data = NULL WHERE fiber =
                         (SELECT min(fiber) FROM snapshots JOIN fibers ON seq = fiber WHERE name = 'chain' AND number > 1 AND state <> 'completed')";
            sql.execute(query, ())?
        }
    };
    Ok(damaged > 0)
}
