//! The logs of turns, in two tables.
//!
//! Chunks arrive in `turn_tail`, which has the rows of all turns in the order of their arrival: a
//! commit for many turns writes the page at its end, instead of one page per turn. When those of
//! one turn are [`FULL`] bytes long, they are copied into `turn_chunks`, where the rows of a turn
//! are adjacent. The tail is deleted from its beginning, whole pages at a time, up to the first row
//! that is not copied. A turn that blocks this for long is copied early.
//!
//! `turn_tail_open` lists the rows of the tail that are not copied yet. It is a temporary table of
//! the connection that writes, in memory, and part of the transactions that change the other two.
//! So logs are read on that connection.
use std::ops::RangeInclusive;

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::{ChunkBatch, TurnSeq};

/// Number of bytes of chunks after which the rows of a turn are copied: as one row of a few pages,
/// of which only the last is not full.
const FULL: i64 = 8 << 10;

/// Minimum number of rows to delete from the beginning of the tail. Each deletion writes the pages
/// around it.
const DELETED: i64 = 256;

/// Maximum number of rows to delete, so that no commit takes long.
const DELETED_AT_ONCE: i64 = 4 * DELETED;

/// Maximum length of the tail from its first row that is not copied. These rows are read when the
/// database is opened. Tests use a lower limit.
const LONGEST: i64 = if cfg!(test) { 1 << 10 } else { 1 << 16 };

/// A row as it is stored: `first`, `count`, `data`, `stored_ms`.
type Stored = (i64, i64, String, i64);

fn stored(row: &Row<'_>) -> rusqlite::Result<Stored> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
}

/// Lists the rows of the tail that are not copied yet.
pub(in crate::sqlite) fn open(conn: &Connection) -> rusqlite::Result<()> {
    let damaged: bool = conn.query_row("SELECT EXISTS (SELECT 1 FROM turn_tail WHERE seq >= 1 << 62)", (), |r| r.get(0))?;
    if damaged {
        // After the greatest number SQLite would choose any free one, not the next.
        conn.execute_batch(
            "BEGIN IMMEDIATE;
             CREATE TEMP TABLE numbered AS
             SELECT * FROM turn_tail WHERE turn IN (SELECT turn FROM turn_tail WHERE seq >= 1 << 62) ORDER BY turn, first;
             DELETE FROM turn_tail WHERE turn IN (SELECT turn FROM numbered);
             INSERT INTO turn_tail (turn, first, count, data, stored_ms)
             SELECT turn, first, count, data, stored_ms FROM numbered ORDER BY rowid;
             DROP TABLE numbered;
             COMMIT;",
        )?;
    }
    conn.execute_batch(
        "-- `behind` is the number of the chunk behind the row; `bytes` is the length of the turn's rows up to this one.
         CREATE TEMP TABLE turn_tail_open (
             turn   INTEGER NOT NULL,
             seq    INTEGER NOT NULL,
             behind INTEGER NOT NULL,
             bytes  INTEGER NOT NULL,
             PRIMARY KEY (turn, seq)
         ) STRICT, WITHOUT ROWID;
         CREATE INDEX temp.turn_tail_open_seq ON turn_tail_open (seq, turn);
         INSERT INTO turn_tail_open (turn, seq, behind, bytes)
         SELECT turn, seq,
                CASE WHEN first BETWEEN 0 AND 1 << 60 AND count BETWEEN 0 AND 1 << 60 THEN first + count ELSE -1 END,
                sum(length(CAST(data AS BLOB))) OVER (PARTITION BY turn ORDER BY seq)
         FROM turn_tail_left;",
    )
}

/// Number of copied chunks of a turn.
fn copied(conn: &Connection, turn: TurnSeq) -> rusqlite::Result<i64> {
    let end = conn
        .prepare_cached("SELECT first + count FROM turn_chunks WHERE turn = ?1 ORDER BY first DESC LIMIT 1")?
        .query_row([turn], |r| r.get(0))
        .optional()?;
    Ok(end.unwrap_or(0))
}

/// Chunks of a turn that are not copied yet. They are read as a whole, and follow the copied ones.
fn tail(conn: &Connection, turn: TurnSeq) -> rusqlite::Result<Vec<ChunkBatch>> {
    let next = copied(conn, turn)?.cast_unsigned();
    let rows = conn
        .prepare_cached(
            "SELECT t.first, t.count, t.data, t.stored_ms FROM turn_tail_open o CROSS JOIN turn_tail t ON t.seq = o.seq
             WHERE o.turn = ?1 ORDER BY o.seq",
        )?
        .query_map([turn], stored)?
        .collect::<Result<_, _>>()?;
    in_order(rows, next..=next)
}

pub(super) fn chunks(conn: &Connection, turn: TurnSeq, from: u64, limit: u32) -> rusqlite::Result<Vec<ChunkBatch>> {
    // The row that contains chunk `from` may begin before it.
    let rows = conn
        .prepare_cached(
            "SELECT first, count, data, stored_ms FROM turn_chunks
             WHERE turn = ?1 AND first >= coalesce((SELECT max(first) FROM turn_chunks WHERE turn = ?1 AND first <= ?2), 0)
             ORDER BY first LIMIT ?3",
        )?
        .query_map(params![turn, from.cast_signed(), limit], stored)?
        .collect::<Result<_, _>>()?;
    let mut log = in_order(rows, 0..=from)?;
    if log.len() < limit as usize {
        let mut tail = tail(conn, turn)?;
        if let Some(begins) = tail.iter().rposition(|row| row.first <= from) {
            log.clear();
            tail.drain(..begins);
        }
        log.append(&mut tail);
        log.truncate(limit as usize);
    }
    Ok(log)
}

/// Checks that the rows of a log are consecutive, the first of them beginning in `next`.
fn in_order(rows: Vec<Stored>, mut next: RangeInclusive<u64>) -> rusqlite::Result<Vec<ChunkBatch>> {
    let follow = |row| {
        let row = follows(&next, row)?;
        next = row.first + row.count..=row.first + row.count;
        Ok(row)
    };
    rows.into_iter().map(follow).collect()
}

/// Checks that a row of a log begins where it may. Any other row would change the numbers of chunks
/// that clients have seen.
fn follows(next: &RangeInclusive<u64>, (first, count, data, stored_ms): Stored) -> rusqlite::Result<ChunkBatch> {
    let there = data.lines().count() as u64;
    match (u64::try_from(first), u64::try_from(count)) {
        (Ok(first), Ok(count)) if next.contains(&first) && count == there && first.checked_add(count).is_some() => {
            Ok(ChunkBatch { first, count, data, stored_ms })
        }
        _ => {
            let why = format!("the row of its log with {there} chunks says that it has {count} from {first} on, which is not in {next:?}");
            Err(rusqlite::Error::FromSqlConversionFailure(0, Type::Integer, why.into()))
        }
    }
}

pub(super) fn append(conn: &Connection, turn: TurnSeq, new: &ChunkBatch) -> rusqlite::Result<()> {
    let open: Option<(i64, i64)> = conn
        .prepare_cached("SELECT behind, bytes FROM turn_tail_open WHERE turn = ?1 ORDER BY seq DESC LIMIT 1")?
        .query_row([turn], |r| Ok((r.get(0)?, r.get(1)?)))
        .optional()?;
    let is_first = open.is_none();
    let (there, open) = if let Some(open) = open {
        open
    } else {
        let copied = copied(conn, turn)?;
        // Turns that begin together would otherwise all be copied in one commit.
        (copied, if copied == 0 { turn.rem_euclid(64) * (FULL / 64) } else { 0 })
    };
    if there != new.first.cast_signed() {
        let why = format!("chunk {} does not follow the {there} that are stored", new.first);
        return Err(rusqlite::Error::ToSqlConversionFailure(why.into()));
    }
    let long = i64::try_from(new.data.len()).unwrap_or(i64::MAX);
    let bytes = open.saturating_add(long);
    if is_first && long >= FULL {
        return put(conn, turn, new);
    }
    insert(conn, "INSERT INTO turn_tail (turn, first, count, data, stored_ms) VALUES (?1, ?2, ?3, ?4, ?5)", turn, new)?;
    let seq = conn.last_insert_rowid();
    conn.prepare_cached("INSERT INTO turn_tail_open (turn, seq, behind, bytes) VALUES (?1, ?2, ?3, ?4)")?.execute(params![
        turn,
        seq,
        (new.first + new.count).cast_signed(),
        bytes
    ])?;
    if bytes >= FULL {
        copy(conn, turn)?;
        shorten(conn)?;
    } else if seq % DELETED == 0 {
        shorten(conn)?;
    }
    Ok(())
}

fn put(conn: &Connection, turn: TurnSeq, new: &ChunkBatch) -> rusqlite::Result<()> {
    insert(conn, "INSERT INTO turn_chunks (turn, first, count, data, stored_ms) VALUES (?1, ?2, ?3, ?4, ?5)", turn, new)
}

/// Runs a statement whose parameters are a turn and one of its rows.
fn insert(conn: &Connection, sql: &str, turn: TurnSeq, new: &ChunkBatch) -> rusqlite::Result<()> {
    let ChunkBatch { first, count, data, stored_ms } = new;
    conn.prepare_cached(sql)?.execute(params![turn, first.cast_signed(), count.cast_signed(), data, stored_ms]).map(drop)
}

/// Copies the rows of a turn from the tail, as one row.
fn copy(conn: &Connection, turn: TurnSeq) -> rusqlite::Result<()> {
    match tail(conn, turn) {
        Ok(rows) => {
            let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Ok(()) };
            let (first, stored_ms, behind) = (first.first, last.stored_ms, last.first + last.count);
            let data: Vec<_> = rows.into_iter().map(|row| row.data).collect();
            put(conn, turn, &ChunkBatch { first, count: behind - first, data: data.join("\n"), stored_ms })?;
            forget(conn, turn)
        }
        Err(failed @ rusqlite::Error::SqliteFailure(..)) => Err(failed),
        // A damaged row stays as it is, for a person to repair, where it does not block deletion.
        Err(_) => move_to_the_end(conn, turn),
    }
}

/// Takes the rows of a turn off the list of rows to copy.
fn forget(conn: &Connection, turn: TurnSeq) -> rusqlite::Result<()> {
    conn.prepare_cached("DELETE FROM turn_tail_open WHERE turn = ?1")?.execute([turn]).map(drop)
}

fn move_to_the_end(conn: &Connection, turn: TurnSeq) -> rusqlite::Result<()> {
    let seqs: Vec<i64> = conn
        .prepare_cached("SELECT seq FROM turn_tail_open WHERE turn = ?1 ORDER BY seq")?
        .query_map([turn], |r| r.get(0))?
        .collect::<Result<_, _>>()?;
    for seq in seqs {
        let moved: i64 = conn
            .prepare_cached("UPDATE turn_tail SET seq = (SELECT max(seq) + 1 FROM turn_tail) WHERE seq = ?1 RETURNING seq")?
            .query_row([seq], |r| r.get(0))?;
        conn.prepare_cached("UPDATE turn_tail_open SET seq = ?3 WHERE turn = ?1 AND seq = ?2")?.execute([turn, seq, moved])?;
    }
    Ok(())
}

/// Deletes the beginning of the tail as far as it is copied, or copies the turn that blocks it.
fn shorten(conn: &Connection) -> rusqlite::Result<()> {
    let ends: (Option<i64>, Option<i64>) = conn
        .prepare_cached("SELECT (SELECT min(seq) FROM turn_tail), (SELECT max(seq) FROM turn_tail)")?
        .query_row((), |r| Ok((r.get(0)?, r.get(1)?)))?;
    let (Some(first), Some(last)) = ends else { return Ok(()) };
    let open: Option<(i64, TurnSeq)> = conn
        .prepare_cached("SELECT seq, turn FROM turn_tail_open WHERE seq = (SELECT min(seq) FROM turn_tail_open)")?
        .query_row((), |r| Ok((r.get(0)?, r.get(1)?)))
        .optional()?;
    let behind = open.map_or(last + 1, |(seq, _)| seq);
    if behind - first >= DELETED {
        conn.prepare_cached("DELETE FROM turn_tail WHERE seq < ?1")?.execute([behind.min(first + DELETED_AT_ONCE)])?;
    }
    match open {
        Some((seq, turn)) if last - seq >= LONGEST => copy(conn, turn),
        _ => Ok(()),
    }
}

/// Copies the log of a turn that has ended.
pub(super) fn close(conn: &Connection, turn: TurnSeq) -> rusqlite::Result<()> {
    copy(conn, turn)?;
    shorten(conn)
}

pub(super) fn fold(conn: &Connection, turn: TurnSeq) -> rusqlite::Result<()> {
    conn.prepare_cached("DELETE FROM turn_chunks WHERE turn = ?1")?.execute([turn])?;
    forget(conn, turn)?;
    conn.prepare_cached("UPDATE turns SET folded = 1 WHERE seq = ?1")?.execute([turn]).map(drop)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::sqlite::{Durability, open, schema};

    const TURNS: i64 = 40;

    fn opened(path: &std::path::Path) -> Connection {
        open::writer(path, Durability::Process, false).unwrap()
    }

    /// A database with turns that are under way.
    fn turns(path: &std::path::Path) -> Connection {
        let conn = opened(path);
        conn.execute_batch(&format!(
            "INSERT INTO chats (seq, class, agent) VALUES (1, 'c', 'a');
             WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {TURNS})
             INSERT INTO turns (seq, chat, id, kind, policy, state, message, place, origins, created_ms)
             SELECT n, 1, n, 'answer', 'queue', 'running', n, n, '[]', 0 FROM n"
        ))
        .unwrap();
        conn
    }

    fn batch(first: u64, lines: &[String], stored_ms: i64) -> ChunkBatch {
        ChunkBatch { first, count: lines.len() as u64, data: lines.join("\n"), stored_ms }
    }

    fn number(conn: &Connection, sql: &str) -> i64 {
        conn.query_row(sql, (), |r| r.get(0)).unwrap()
    }

    /// All chunks of a turn, as the store and as the view have them.
    fn told(conn: &Connection, turn: TurnSeq) -> Vec<String> {
        let rows = chunks(conn, turn, 0, u32::MAX).unwrap();
        let told: Vec<String> = rows.iter().flat_map(|row| row.data.lines().map(str::to_owned)).collect();
        let seen: Vec<String> = conn
            .prepare("SELECT data FROM turn_log WHERE turn = ?1 ORDER BY first")
            .unwrap()
            .query_map([turn], |r| r.get(0))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(seen.iter().flat_map(|data| data.lines()).collect::<Vec<_>>(), told);
        for from in [1, told.len() / 2, told.len()] {
            let rows = chunks(conn, turn, from as u64, u32::MAX).unwrap();
            if let Some(row) = rows.first() {
                assert!(row.first <= from as u64 && from as u64 <= row.first + row.count, "{} from {from}", row.first);
                let behind: Vec<&str> = rows.iter().flat_map(|row| row.data.lines()).collect();
                assert_eq!(behind, &told[usize::try_from(row.first).unwrap()..]);
            }
        }
        told
    }

    /// Numbers that look random, the same in each run.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, n: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % n
        }
    }

    #[test]
    fn logs_are_what_was_appended_however_the_tail_is_copied_and_whatever_is_taken_back() {
        for seed in 0..3 {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("a.db");
            let mut conn = turns(&path);
            let mut dice = Dice(seed);
            let mut logs: BTreeMap<TurnSeq, Vec<String>> = (1..=TURNS).map(|turn| (turn, Vec::new())).collect();
            for at in 0..1500 {
                let turn = 1 + i64::try_from(dice.below(TURNS.unsigned_abs()).min(dice.below(TURNS.unsigned_abs()))).unwrap();
                let log = logs.get_mut(&turn).unwrap();
                match dice.below(300) {
                    0 => {
                        conn.execute("UPDATE turns SET settled_ms = 1, state = 'completed' WHERE seq = ?1", [turn]).unwrap();
                        close(&conn, turn).unwrap();
                    }
                    1 => {
                        fold(&conn, turn).unwrap();
                        conn.execute("UPDATE turns SET folded = 0 WHERE seq = ?1", [turn]).unwrap();
                        // What was in the tail of it is gone too.
                        conn.execute("DELETE FROM turn_tail WHERE turn = ?1", [turn]).unwrap();
                        log.clear();
                    }
                    2 => {
                        drop(conn);
                        conn = open::writer(&path, Durability::Process, dice.below(2) == 0).unwrap();
                    }
                    kind => {
                        let longest = if kind < 6 { 9000 } else { 200 };
                        let lines: Vec<String> = (0..=dice.below(3))
                            .map(|n| format!("{at} {n} {}", "x".repeat(usize::try_from(dice.below(longest)).unwrap())))
                            .collect();
                        let new = batch(log.len() as u64, &lines, at);
                        conn.execute_batch("SAVEPOINT s").unwrap();
                        append(&conn, turn, &new).unwrap();
                        if dice.below(20) == 0 {
                            conn.execute_batch("ROLLBACK TO s").unwrap();
                        } else {
                            log.extend(lines);
                        }
                        conn.execute_batch("RELEASE s").unwrap();
                        assert!(append(&conn, turn, &batch(log.len() as u64 + 1, &["x".to_owned()], at)).is_err());
                    }
                }
                if at % 75 == 0 {
                    for (turn, log) in &logs {
                        assert_eq!(told(&conn, *turn), *log, "{seed}: turn {turn} at {at}");
                    }
                }
            }
        }
    }

    #[test]
    fn tail_is_deleted_as_far_as_it_is_copied_and_a_slow_turn_does_not_keep_it() {
        let folder = tempfile::tempdir().unwrap();
        let conn = turns(&folder.path().join("a.db"));
        conn.execute_batch("BEGIN").unwrap();
        let line = || vec!["x".repeat(100)];
        append(&conn, 1, &batch(0, &line(), 0)).unwrap();
        let mut longest = 0;
        for n in 0..5000 {
            append(&conn, 2, &batch(n, &line(), 0)).unwrap();
            assert!(n > LONGEST.unsigned_abs() + 2 || number(&conn, "SELECT min(seq) FROM turn_tail") == 1, "it is kept for so long");
            longest = longest.max(number(&conn, "SELECT coalesce((SELECT max(seq) FROM turn_tail) - (SELECT min(seq) FROM turn_tail), 0)"));
        }
        assert!(longest <= LONGEST + 2 * DELETED, "{longest}");
        assert_eq!((told(&conn, 1).len(), told(&conn, 2).len()), (1, 5000));
        assert_eq!(number(&conn, "SELECT count(*) FROM turn_chunks WHERE turn = 1"), 1, "copied with one chunk");
        close(&conn, 2).unwrap();
        assert!(number(&conn, "SELECT count(*) FROM turn_tail") < 2 * DELETED);
    }

    #[test]
    fn damaged_tail_keeps_no_other_turn_from_being_stored_and_stays() {
        let damages = ["first = -1", "first = 7", "count = 9", "data = CAST(x'ff' AS TEXT)", "data = ''"];
        for damage in damages {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("a.db");
            let conn = turns(&path);
            append(&conn, 1, &batch(0, &["a".to_owned()], 0)).unwrap();
            append(&conn, 1, &batch(1, &["b".to_owned()], 0)).unwrap();
            conn.execute(&format!("UPDATE turn_tail SET {damage} WHERE first = 0"), ()).unwrap();
            drop(conn);
            let conn = opened(&path);
            assert!(chunks(&conn, 1, 0, 9).is_err(), "{damage}");
            conn.execute_batch("BEGIN").unwrap();
            for n in 0..3000 {
                append(&conn, 2, &batch(n, &["x".to_owned()], 0)).unwrap();
            }
            close(&conn, 1).unwrap();
            conn.execute_batch("COMMIT").unwrap();
            assert_eq!(told(&conn, 2).len(), 3000);
            assert_eq!(number(&conn, "SELECT count(*) FROM turn_tail WHERE turn = 1"), 2, "{damage}");
        }
    }

    #[test]
    fn number_that_leaves_none_behind_it_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let conn = turns(&path);
        for n in 0..3 {
            append(&conn, 1, &batch(n, &[format!("a{n}")], 0)).unwrap();
            append(&conn, 2, &batch(n, &[format!("b{n}")], 0)).unwrap();
        }
        conn.execute("UPDATE turn_tail SET seq = 9223372036854775807 WHERE turn = 1 AND first = 0", ()).unwrap();
        drop(conn);
        let conn = opened(&path);
        append(&conn, 1, &batch(3, &["a3".to_owned()], 0)).unwrap();
        append(&conn, 2, &batch(3, &["b3".to_owned()], 0)).unwrap();
        assert_eq!(
            (told(&conn, 1), told(&conn, 2)),
            (["a0", "a1", "a2", "a3"].map(str::to_owned).into(), ["b0", "b1", "b2", "b3"].map(str::to_owned).into())
        );
    }

    #[test]
    fn commit_for_many_turns_writes_little_more_than_their_chunks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let conn = turns(&path);
        conn.execute_batch("PRAGMA wal_autocheckpoint = 0; PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        let chunk = vec!["x".repeat(80)];
        for n in 0..200 {
            conn.execute_batch("BEGIN").unwrap();
            for turn in 1..=TURNS {
                append(&conn, turn, &batch(n, &chunk, 0)).unwrap();
            }
            conn.execute_batch("COMMIT").unwrap();
        }
        let written = std::fs::metadata(folder.path().join("a.db-wal")).unwrap().len();
        let chunks = 200 * TURNS.unsigned_abs();
        assert!(written / chunks < 512, "{} bytes of log a chunk", written / chunks);
        assert_eq!(number(&conn, "PRAGMA user_version"), i64::from(schema::version()));
    }
}
