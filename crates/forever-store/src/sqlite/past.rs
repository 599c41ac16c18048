//! Deletion of fibers that have ended, and the tombstones of the ids and keys that the program
//! gave.
use rusqlite::types::ToSql;
use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, params, params_from_iter};

use super::rows::condition;
use crate::{DeleteCursor, DeleteResult, Deletion, FiberRef, FiberTombstone, Seq, arguments_digest};

/// A fiber that may be deleted.
struct Candidate {
    seq: Seq,
    finished_ms: i64,
    /// Its tombstone, if it leaves one. If that cannot be read, the fiber is not deleted.
    past: rusqlite::Result<Option<FiberTombstone>>,
}

pub(super) fn delete(conn: &Connection, deletion: &Deletion) -> rusqlite::Result<DeleteResult> {
    let candidates = candidates(conn, deletion)?;
    let full = u32::try_from(candidates.len()) == Ok(deletion.limit);
    let next = candidates.last().filter(|_| full).map(|last| DeleteCursor { finished_ms: last.finished_ms, seq: last.seq });
    let references = references(conn)?;
    let mut free = Vec::new();
    for candidate in &candidates {
        if candidate.past.is_ok() && !is_referred_to(conn, &references, candidate.seq)? {
            free.push(candidate);
        }
    }
    let mut deleted = Vec::new();
    if remove(conn, &free)? {
        deleted = free;
    } else {
        // A table of the program with a reference to its rows protects one of them, by a constraint
        // or a trigger.
        for candidate in free {
            if remove(conn, &[candidate])? {
                deleted.push(candidate);
            }
        }
    }
    if let Some(now_ms) = deletion.tombstone_ms {
        let past = deleted.iter().filter_map(|candidate| candidate.past.as_ref().ok()?.as_ref());
        past.into_iter().try_for_each(|past| remember(conn, past, now_ms))?;
    }
    Ok(DeleteResult { count: deleted.len() as u64, held: (candidates.len() - deleted.len()) as u64, next })
}

/// A page of the fibers that the query selects, in the order of the index, so that each page finds
/// its rows at once.
fn candidates(conn: &Connection, deletion: &Deletion) -> rusqlite::Result<Vec<Candidate>> {
    let (condition, mut values) = condition(&deletion.query);
    let after = match deletion.after {
        Some(DeleteCursor { finished_ms, seq }) => {
            values.extend([Box::new(finished_ms) as Box<dyn ToSql>, Box::new(seq)]);
            " AND (f.finished_ms, f.seq) > (?, ?)"
        }
        None => "",
    };
    values.push(Box::new(deletion.limit));
    let sql = format!(
        "SELECT f.seq, f.finished_ms, f.id_given = 1 OR f.key IS NOT NULL AS is_remembered, f.id, f.key, f.name, f.args, f.state
         FROM fibers f WHERE f.finished_ms IS NOT NULL AND {condition}{after} ORDER BY f.state, f.finished_ms, f.seq LIMIT ?"
    );
    conn.prepare_cached(&sql)?
        .query_map(params_from_iter(values), |row| {
            let is_remembered = deletion.tombstone_ms.is_some() && row.get("is_remembered")?;
            let past = || -> rusqlite::Result<FiberTombstone> {
                Ok(FiberTombstone { args: arguments_digest(row.get_ref("args")?.as_str()?), ..past_fiber(row)? })
            };
            let past = if is_remembered { past().map(Some) } else { Ok(None) };
            Ok(Candidate { seq: row.get("seq")?, finished_ms: row.get("finished_ms")?, past })
        })?
        .collect()
}

/// Deletes all these fibers, or none if a table of the program protects one of them; returns which.
fn remove(conn: &Connection, fibers: &[&Candidate]) -> rusqlite::Result<bool> {
    if fibers.is_empty() {
        return Ok(true);
    }
    let list: Vec<String> = fibers.iter().map(|fiber| fiber.seq.to_string()).collect();
    conn.prepare_cached("SAVEPOINT remove")?.execute(())?;
    let removed = conn
        .prepare_cached("DELETE FROM fibers WHERE seq IN (SELECT value FROM json_each(?1))")
        .and_then(|mut delete| delete.execute([format!("[{}]", list.join(","))]));
    let held = match removed {
        Ok(_) => false,
        Err(why) if is_of_row(&why) && !conn.is_autocommit() => true,
        Err(why) => return Err(why),
    };
    if held {
        conn.prepare_cached("ROLLBACK TO remove")?.execute(())?;
    }
    conn.prepare_cached("RELEASE remove")?.execute(())?;
    Ok(!held)
}

/// Whether a refusal is about a row: a constraint, or whatever the expressions of a trigger fail
/// with. Disk, memory, locks and damage are not, and would meet the next fiber too.
fn is_of_row(why: &rusqlite::Error) -> bool {
    // `Unknown` is the code of all errors of functions and operators.
    use ErrorCode::{ConstraintViolation, TooBig, TypeMismatch, Unknown};
    matches!(why.sqlite_error_code(), Some(ConstraintViolation | TypeMismatch | TooBig | Unknown))
}

/// Queries, each with the number of a fiber, for a foreign key in a table of the program that
/// protects the fiber. A deferred foreign key would fail the commit for all of them.
fn references(conn: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut keys = conn.prepare_cached(
        "SELECT m.name, k.id, k.\"from\", coalesce(k.\"to\", 'seq') FROM sqlite_schema m JOIN pragma_foreign_key_list(m.name) k
         WHERE m.type = 'table' AND k.\"table\" = 'fibers' COLLATE NOCASE AND k.on_delete IN ('NO ACTION', 'RESTRICT')
         ORDER BY m.name, k.id, k.seq",
    )?;
    let columns = keys.query_map((), |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?)))?;
    let columns: Vec<(String, i64, String, String)> = columns.collect::<Result<_, _>>()?;
    let same_key = |a: &(String, i64, _, _), b: &(String, i64, _, _)| (&a.0, a.1) == (&b.0, b.1);
    let questions = columns.chunk_by(same_key).map(|key| {
        let on: Vec<String> = key.iter().map(|(.., from, to)| format!("t.{} = f.{}", quoted(from), quoted(to))).collect();
        format!("SELECT EXISTS (SELECT 1 FROM fibers f JOIN {} t ON {} WHERE f.seq = ?1)", quoted(&key[0].0), on.join(" AND "))
    });
    Ok(questions.collect())
}

fn is_referred_to(conn: &Connection, references: &[String], seq: Seq) -> rusqlite::Result<bool> {
    for question in references {
        if conn.prepare_cached(question)?.query_row([seq], |r| r.get(0))? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn remember(conn: &Connection, past: &FiberTombstone, now_ms: i64) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT OR REPLACE INTO past_fibers (id, key, name, args, state, finished_ms, deleted_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![past.id, past.key, past.name, past.args, past.state.as_str(), past.finished_ms, now_ms])
    .map(drop)
}

const PAST: &str = "SELECT id, key, name, args, state, finished_ms FROM past_fibers";

fn past_fiber(row: &Row<'_>) -> rusqlite::Result<FiberTombstone> {
    Ok(FiberTombstone {
        id: row.get("id")?,
        key: row.get("key")?,
        name: row.get("name")?,
        args: row.get("args")?,
        state: super::rows::state(row)?,
        finished_ms: row.get("finished_ms")?,
    })
}

/// The tombstone of a fiber.
pub(super) fn find(conn: &Connection, which: &FiberRef) -> rusqlite::Result<Option<FiberTombstone>> {
    let (column, value) = match which {
        FiberRef::Id(id) => ("id", id),
        FiberRef::Key(key) => ("key", key),
        // Tombstones have no numbers: they mean nothing outside of the store.
        FiberRef::Seq(_) => return Ok(None),
    };
    conn.prepare_cached(&format!("{PAST} WHERE {column} = ?1"))?.query_row([value], past_fiber).optional()
}

/// Deletes at most `limit` tombstones that the query selects, deleted before a time if one is
/// given; returns how many.
pub(super) fn forget(conn: &Connection, deletion: &Deletion, deleted_before_ms: Option<i64>) -> rusqlite::Result<u64> {
    let which = &deletion.query;
    let mut terms = vec!["1".to_owned()];
    let mut values: Vec<Box<dyn ToSql>> = Vec::new();
    if !which.states.is_empty() {
        let words: Vec<_> = which.states.iter().map(|state| format!("'{state}'")).collect();
        terms.push(format!("state IN ({})", words.join(", ")));
    }
    if let Some(name) = &which.name {
        terms.push("name = ?".to_owned());
        values.push(Box::new(name.clone()));
    }
    for (column, before) in [("finished_ms", which.ended_before_ms), ("deleted_ms", deleted_before_ms)] {
        if let Some(before) = before {
            terms.push(format!("{column} < ?"));
            values.push(Box::new(before));
        }
    }
    values.push(Box::new(deletion.limit));
    let sql = format!("DELETE FROM past_fibers WHERE id IN (SELECT id FROM past_fibers WHERE {} LIMIT ?)", terms.join(" AND "));
    let forgotten = conn.prepare_cached(&sql)?.execute(params_from_iter(values))?;
    Ok(forgotten as u64)
}
