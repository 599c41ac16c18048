//! The floor: SQLite alone, with one row for each workflow, replaced and committed after each step.
use std::path::Path;

use rusqlite::{Connection, OptionalExtension};

use crate::usage::tell;
use crate::work::{BEFORE, DATABASE, Done, Task, add, begin, body};

const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS snapshots (workflow INTEGER PRIMARY KEY, step INTEGER, sum INTEGER, result TEXT) STRICT";

pub(crate) async fn run(power: bool, task: Task, dir: &Path) -> anyhow::Result<()> {
    let conn = Connection::open(dir.join(DATABASE))?;
    conn.pragma_update(None, "journal_mode", "WAL")?;
    conn.pragma_update(None, "synchronous", if power { "FULL" } else { "NORMAL" })?;
    conn.execute_batch(SCHEMA)?;
    match task {
        Task::Finish { before, workflows, steps } => {
            chain(&conn, BEFORE, before).await?;
            let begun = begin();
            let mut sums = Vec::new();
            for workflow in 0..workflows {
                sums.push(chain(&conn, workflow, steps).await?);
            }
            tell(&Done::new(begun.spent(), sums, settings(&conn)?));
            Ok(())
        }
        Task::Endless { .. } => chain(&conn, 0, u64::MAX).await.map(drop),
    }
}

async fn chain(conn: &Connection, workflow: u64, steps: u64) -> anyhow::Result<u64> {
    let workflow_id = i64::try_from(workflow)?;
    let stored = conn
        .query_row("SELECT step, sum FROM snapshots WHERE workflow = ?1", [workflow_id], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
        })
        .optional()?;
    let (done, mut sum) = stored.map_or((0, 0), |(step, sum)| (step.cast_unsigned(), sum.cast_unsigned()));
    if stored.is_none() {
        conn.execute("INSERT INTO snapshots VALUES (?1, 0, 0, '')", [workflow_id])?;
    }
    let mut update = conn.prepare("UPDATE snapshots SET step = ?2, sum = ?3, result = ?4 WHERE workflow = ?1")?;
    for step in done..steps {
        let result = body(workflow, step, sum).await;
        sum = add(sum, &result);
        update.execute((workflow_id, (step + 1).cast_signed(), sum.cast_signed(), result))?;
    }
    Ok(sum)
}

fn settings(conn: &Connection) -> anyhow::Result<String> {
    let journal: String = conn.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    let synchronous: i64 = conn.pragma_query_value(None, "synchronous", |row| row.get(0))?;
    Ok(format!("SQLite {}, journal_mode={journal}, synchronous={synchronous}", rusqlite::version()))
}
