//! Streams: items that are appended and never changed, in two tables.
//!
//! Items arrive in `stream_tail`, which has the rows of all streams in the order of their arrival:
//! a commit for many streams writes the page at its end, instead of one page per stream. When those
//! of one stream are [`FULL`] bytes long, they are copied into `stream_chunks`, where the rows of a
//! stream are adjacent. The tail is deleted from its beginning, whole pages at a time, up to the
//! first row that is not copied. A stream that blocks this for long is copied early.
//!
//! `stream_tail_open` has each stream with rows of the tail that are not copied yet, and which they
//! are; `stream_next` has the number of the next stream: one that no row of the tail has. Both are
//! temporary tables of the connection that writes, in memory, and part of the transactions that
//! change the others. So streams are read on that connection.
//!
//! Streams that are read with their fiber, on any connection, have their items in `stream_chunks`
//! alone: those of the logs of a snapshot and of operations. A checkpoint or an operation writes
//! rows of its own fiber anyway, so their commits gain little from the tail. Histories, to which
//! most checkpoints append, have a tail of their own: `histories.rs`.
use std::ops::RangeInclusive;

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::{LOGS, Seq, SnapshotRows, StreamAppend, StreamBatch, StreamsDelta, TurnSeq, log_number};

/// Number of items after which those that need not be kept are deleted.
const TRIMMED: u64 = 64;

/// Number of a stream.
pub(super) type StreamSeq = i64;

/// Name of the stream that is the log of a turn.
const LOG: &str = "log";

/// Number of bytes of items after which the rows of a stream are copied: as one row of a few pages,
/// of which only the last is not full.
pub(super) const FULL_BYTES: u32 = 8 << 10;
const FULL: i64 = FULL_BYTES as i64;

/// Number of rows of the tail after which those of a stream are copied, however short they are.
const MOST_ROWS: i64 = 256;

/// Minimum number of rows to delete from the beginning of the tail. Each deletion writes the pages
/// around it.
const DELETED: i64 = 256;

/// Maximum number of rows to delete, so that no commit takes long.
const DELETED_AT_ONCE: i64 = 4 * DELETED;

/// Maximum length of the tail from its first row that is not copied. These rows are read when the
/// database is opened. Tests use a lower limit.
const LONGEST: i64 = if cfg!(test) { 1 << 10 } else { 1 << 16 };

/// Query for a stream, by a condition on its row `s`, with its end.
macro_rules! stream_where {
    ($condition:literal) => {
        concat!(
            "SELECT s.seq, o.behind, o.count, o.bytes FROM streams s LEFT JOIN temp.stream_tail_open o ON o.stream = s.seq WHERE ",
            $condition
        )
    };
}

/// A row as it is stored: `first`, `count`, `data`, `stored_ms`.
type Stored = (i64, i64, String, i64);

fn stored(row: &Row<'_>) -> rusqlite::Result<Stored> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
}

/// Lists the rows of the tail that are not copied yet, and finds the next free number, in a
/// transaction that may write.
pub(super) fn open(conn: &Connection) -> rusqlite::Result<()> {
    let found = "SELECT EXISTS (SELECT 1 FROM stream_tail), EXISTS (SELECT 1 FROM stream_tail WHERE seq < 1 OR seq >= 1 << 62)";
    let (filled, damaged): (bool, bool) = conn.query_row(found, (), |r| Ok((r.get(0)?, r.get(1)?)))?;
    if damaged {
        // After the greatest number SQLite would choose any free one, not the next.
        conn.execute_batch(
            "CREATE TEMP TABLE numbered AS
             SELECT * FROM stream_tail WHERE stream IN (SELECT stream FROM stream_tail WHERE seq < 1 OR seq >= 1 << 62)
             ORDER BY stream, first;
             DELETE FROM stream_tail WHERE stream IN (SELECT stream FROM numbered);
             INSERT INTO stream_tail (stream, first, count, data, stored_ms)
             SELECT stream, first, count, data, stored_ms FROM numbered ORDER BY rowid;
             DROP TABLE numbered;",
        )?;
    }
    conn.execute_batch(
        "-- `seqs` lists the rows in their order, after commas, and `first` is the first of them; `count` is their number, and `bytes`
         -- their length. `behind` is the number of the item behind them.
         CREATE TEMP TABLE stream_tail_open (
             stream INTEGER PRIMARY KEY,
             first  INTEGER NOT NULL,
             seqs   TEXT NOT NULL,
             count  INTEGER NOT NULL,
             bytes  INTEGER NOT NULL,
             behind INTEGER NOT NULL
         ) STRICT;
         CREATE INDEX temp.stream_tail_open_first ON stream_tail_open (first);
         -- Deleted with its turn or its fiber, too.
         CREATE TEMP TRIGGER stream_deleted AFTER DELETE ON main.streams
         BEGIN DELETE FROM stream_tail_open WHERE stream = OLD.seq; END;
         CREATE TEMP TABLE stream_next (seq INTEGER NOT NULL) STRICT;
         -- A number without a successor is damage.
         INSERT INTO stream_next (seq)
         SELECT 1 + max(coalesce((SELECT max(seq) FROM streams WHERE seq < 1 << 62), 0),
                        coalesce((SELECT max(stream) FROM stream_tail WHERE stream < 1 << 62), 0),
                        coalesce((SELECT max(stream) FROM stream_chunks WHERE stream < 1 << 62), 0));",
    )?;
    if filled {
        let mut left = conn.prepare(
            "SELECT stream, seq, length(CAST(data AS BLOB)),
                    CASE WHEN first BETWEEN 0 AND 1 << 60 AND count BETWEEN 0 AND 1 << 60 THEN first + count ELSE -1 END
             FROM stream_tail_left ORDER BY seq",
        )?;
        let mut rows = left.query(())?;
        while let Some(row) = rows.next()? {
            add_open(conn, row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)?;
        }
    }
    Ok(())
}

/// Lists a row of the tail behind the others of its stream that are not copied yet.
fn add_open(conn: &Connection, stream: StreamSeq, seq: i64, bytes: i64, behind: i64) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT INTO stream_tail_open (stream, first, seqs, count, bytes, behind) VALUES (?1, ?2, ',' || ?2, 1, ?3, ?4)
         ON CONFLICT (stream) DO UPDATE SET
             seqs = seqs || excluded.seqs, count = count + 1, bytes = bytes + excluded.bytes, behind = excluded.behind",
    )?
    .execute([stream, seq, bytes, behind])
    .map(drop)
}

fn found(conn: &Connection, sql: &str, by: impl rusqlite::Params) -> rusqlite::Result<Option<StreamSeq>> {
    conn.prepare_cached(sql)?.query_row(by, |r| r.get(0)).optional()
}

/// The stream that is the log of a turn, once it has a chunk.
pub(super) fn of_turn(conn: &Connection, turn: TurnSeq) -> rusqlite::Result<Option<StreamSeq>> {
    found(conn, "SELECT seq FROM streams WHERE turn = ?1", [turn])
}

/// A stream of a fiber, once it has an item.
pub(super) fn of_fiber(conn: &Connection, fiber: Seq, name: &str) -> rusqlite::Result<Option<StreamSeq>> {
    found(conn, "SELECT seq FROM streams WHERE fiber = ?1 AND name = ?2", params![fiber, name])
}

/// Gives new streams only numbers above this one.
pub(super) fn leave_numbers_up_to(conn: &Connection, stream: StreamSeq) -> rusqlite::Result<()> {
    conn.prepare_cached("UPDATE stream_next SET seq = max(seq, ?1 + 1)")?.execute([stream]).map(drop)
}

fn created(conn: &Connection, fiber: Option<Seq>, turn: Option<TurnSeq>, name: &str) -> rusqlite::Result<StreamSeq> {
    let stream = conn.prepare_cached("UPDATE stream_next SET seq = seq + 1 RETURNING seq - 1")?.query_row((), |r| r.get(0))?;
    conn.prepare_cached("INSERT INTO streams (seq, fiber, turn, name) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![stream, fiber, turn, name])?;
    Ok(stream)
}

pub(super) fn append_of_turn(conn: &Connection, turn: TurnSeq, new: &StreamBatch) -> rusqlite::Result<()> {
    let there = with_end(conn, stream_where!("s.turn = ?1"), [turn])?;
    let (stream, end) = there.map_or_else(|| begun(conn, None, Some(turn), LOG), Ok)?;
    append(conn, stream, &end, new)
}

/// Appends to a stream of a fiber, and deletes items that need not be kept. Items whose number the
/// caller knows get a row of their own.
pub(super) fn append_of_fiber(conn: &Connection, fiber: Seq, new: &StreamAppend, now_ms: i64) -> rusqlite::Result<()> {
    match new.first {
        Some(_) => put_of_fiber(conn, fiber, new, now_ms),
        None => append_to(conn, fiber, new, now_ms, append_at),
    }
}

/// Names of the streams of a fiber, in the order of their bytes.
pub(super) fn names_of_fiber(conn: &Connection, fiber: Seq) -> rusqlite::Result<Vec<String>> {
    conn.prepare_cached("SELECT name FROM streams WHERE fiber = ?1 ORDER BY name")?.query_map([fiber], |row| row.get(0))?.collect()
}

/// Appends to a stream that is in `stream_chunks` alone.
pub(super) fn put_of_fiber(conn: &Connection, fiber: Seq, new: &StreamAppend, now_ms: i64) -> rusqlite::Result<()> {
    let there = of_fiber(conn, fiber, &new.name)?;
    let stream = there.map_or_else(|| created(conn, Some(fiber), None, &new.name), Ok)?;
    let first = new.first.map_or_else(|| copied(conn, stream), |first| Ok(first.cast_signed()))?;
    // A row can be there already only if a person has written it.
    conn.prepare_cached(
        "INSERT INTO stream_chunks (stream, first, count, data, stored_ms) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (stream, first) DO UPDATE SET count = excluded.count, data = excluded.data, stored_ms = excluded.stored_ms",
    )?
    .execute(params![stream, first, new.count.cast_signed(), new.data, now_ms])
    .map(drop)
}

/// Deletes the streams that a checkpoint removes.
pub(super) fn remove_of_fiber(conn: &Connection, fiber: Seq, delta: &StreamsDelta) -> rusqlite::Result<()> {
    delta.removed.iter().try_for_each(|name| delete_of_fiber(conn, fiber, name))
}

/// Deletes a stream of a fiber, if it has an item.
pub(super) fn delete_of_fiber(conn: &Connection, fiber: Seq, name: &str) -> rusqlite::Result<()> {
    conn.prepare_cached("DELETE FROM streams WHERE fiber = ?1 AND name = ?2")?.execute(params![fiber, name]).map(drop)
}

/// Name behind those of all streams of logs, in the order of the index.
const BEHIND_LOGS: &str = "log0";

/// Reads the logs of a snapshot.
pub(super) fn read_logs(conn: &Connection, fiber: Seq, into: &mut SnapshotRows) -> rusqlite::Result<()> {
    let mut statement = conn.prepare_cached(
        "SELECT s.name, c.first, c.count, c.data FROM streams s CROSS JOIN stream_chunks c ON c.stream = s.seq
         WHERE s.fiber = ?1 AND s.name >= ?2 AND s.name < ?3 ORDER BY s.name, c.first",
    )?;
    let mut rows = statement.query(params![fiber, LOGS, BEHIND_LOGS])?;
    while let Some(row) = rows.next()? {
        if let Some(log) = log_number(row.get_ref(0)?.as_str()?) {
            into.add_to_log(log, row.get(1)?, row.get(2)?, row.get_ref(3)?.as_str()?);
        }
    }
    Ok(())
}

/// Deletes the logs of a snapshot.
pub(super) fn delete_logs(conn: &Connection, fiber: Seq) -> rusqlite::Result<()> {
    conn.prepare_cached("DELETE FROM streams WHERE fiber = ?1 AND name >= ?2 AND name < ?3")?
        .execute(params![fiber, LOGS, BEHIND_LOGS])
        .map(drop)
}

/// As [`append_of_fiber`], with items that are long enough for a row of their own.
pub(super) fn append_whole_of_fiber(conn: &Connection, fiber: Seq, new: &StreamAppend, now_ms: i64) -> rusqlite::Result<()> {
    append_to(conn, fiber, new, now_ms, |conn, stream, end, batch| {
        if end.rows > 0 {
            return append_at(conn, stream, end, batch);
        }
        // Old items are deleted some at a time: each deletion writes the pages around it.
        put(conn, stream, batch).map(|()| batch.first / TRIMMED != (batch.first + batch.count) / TRIMMED)
    })
}

fn append_to(
    conn: &Connection,
    fiber: Seq,
    new: &StreamAppend,
    now_ms: i64,
    // Returns whether this is the time to delete old items.
    append: impl Fn(&Connection, StreamSeq, &End, &StreamBatch) -> rusqlite::Result<bool>,
) -> rusqlite::Result<()> {
    let there = with_end(conn, stream_where!("s.fiber = ?1 AND s.name = ?2"), params![fiber, new.name])?;
    let (stream, end) = there.map_or_else(|| begun(conn, Some(fiber), None, &new.name), Ok)?;
    if end.items < 0 {
        return Err(no_valid_number(&new.name));
    }
    let batch = StreamBatch { first: end.items.cast_unsigned(), count: new.count, data: new.data.clone(), stored_ms: now_ms };
    if append(conn, stream, &end, &batch)?
        && let Some(keep) = new.keep
    {
        trim(conn, stream, (batch.first + batch.count).saturating_sub(keep).cast_signed())?;
    }
    Ok(())
}

/// Items of a stream of a fiber, from a row on that has number `from` in it; and the number of the
/// next item.
pub(super) fn read_of_fiber(conn: &Connection, fiber: Seq, name: &str, from: u64, limit: u32) -> rusqlite::Result<(Vec<StreamBatch>, u64)> {
    let Some(stream) = of_fiber(conn, fiber, name)? else { return Ok((Vec::new(), 0)) };
    let kept: i64 = conn.prepare_cached("SELECT kept FROM streams WHERE seq = ?1")?.query_row([stream], |r| r.get(0))?;
    let log = read(conn, stream, from.max(u64::try_from(kept).unwrap_or(0)), limit)?;
    let end = with_end(conn, stream_where!("s.seq = ?1"), [stream])?;
    Ok((log, end.map_or(0, |(_, end)| end.items.max(0).cast_unsigned())))
}

/// Copies the streams of a fiber that has ended.
pub(super) fn close_of_fiber(conn: &Connection, fiber: Seq) -> rusqlite::Result<()> {
    let streams: Vec<StreamSeq> =
        conn.prepare_cached("SELECT seq FROM streams WHERE fiber = ?1")?.query_map([fiber], |r| r.get(0))?.collect::<Result<_, _>>()?;
    streams.into_iter().try_for_each(|stream| close(conn, stream))
}

/// Items of the log of a turn, from a row on that has number `from` in it.
pub(super) fn read_of_turn(conn: &Connection, turn: TurnSeq, from: u64, limit: u32) -> rusqlite::Result<Vec<StreamBatch>> {
    of_turn(conn, turn)?.map_or_else(|| Ok(Vec::new()), |stream| read(conn, stream, from, limit))
}

/// Copies the log of a turn that has ended.
pub(super) fn close_of_turn(conn: &Connection, turn: TurnSeq) -> rusqlite::Result<()> {
    of_turn(conn, turn)?.map_or(Ok(()), |stream| close(conn, stream))
}

pub(super) fn delete_of_turn(conn: &Connection, turn: TurnSeq) -> rusqlite::Result<()> {
    of_turn(conn, turn)?.map_or(Ok(()), |stream| delete(conn, stream))
}

/// Number of copied items of a stream.
pub(super) fn copied(conn: &Connection, stream: StreamSeq) -> rusqlite::Result<i64> {
    let end = conn
        .prepare_cached("SELECT first + count FROM stream_chunks WHERE stream = ?1 ORDER BY first DESC LIMIT 1")?
        .query_row([stream], |r| r.get(0))
        .optional()?;
    Ok(end.unwrap_or(0))
}

/// Items of a stream that are not copied yet. They are read as a whole, and follow the copied ones.
fn tail(conn: &Connection, stream: StreamSeq) -> rusqlite::Result<Vec<StreamBatch>> {
    let next = copied(conn, stream)?.cast_unsigned();
    let rows = conn
        .prepare_cached(
            "SELECT t.first, t.count, t.data, t.stored_ms
             FROM stream_tail_open o CROSS JOIN json_each('[' || substr(o.seqs, 2) || ']') e CROSS JOIN stream_tail t ON t.seq = e.value
             WHERE o.stream = ?1 AND t.stream = ?1",
        )?
        .query_map([stream], stored)?
        .collect::<Result<_, _>>()?;
    in_order(rows, next..=next)
}

fn read(conn: &Connection, stream: StreamSeq, from: u64, limit: u32) -> rusqlite::Result<Vec<StreamBatch>> {
    // The row that contains item `from` may begin before it.
    let rows = conn
        .prepare_cached(
            "SELECT first, count, data, stored_ms FROM stream_chunks
             WHERE stream = ?1 AND first >= coalesce((SELECT max(first) FROM stream_chunks WHERE stream = ?1 AND first <= ?2), 0)
             ORDER BY first LIMIT ?3",
        )?
        .query_map(params![stream, from.cast_signed(), limit], stored)?
        .collect::<Result<_, _>>()?;
    let mut log = in_order(rows, 0..=from)?;
    if log.len() < limit as usize {
        let mut tail = tail(conn, stream)?;
        if let Some(begins) = tail.iter().rposition(|row| row.first <= from) {
            log.clear();
            tail.drain(..begins);
        }
        log.append(&mut tail);
        log.truncate(limit as usize);
    }
    Ok(log)
}

/// Checks that the rows of a stream are consecutive, the first of them beginning in `next`.
fn in_order(rows: Vec<Stored>, mut next: RangeInclusive<u64>) -> rusqlite::Result<Vec<StreamBatch>> {
    let follow = |row| {
        let row = follows(&next, row)?;
        next = row.first + row.count..=row.first + row.count;
        Ok(row)
    };
    rows.into_iter().map(follow).collect()
}

/// Checks that a row begins where it may. Any other row would change the numbers of items that
/// readers have seen.
fn follows(next: &RangeInclusive<u64>, (first, count, data, stored_ms): Stored) -> rusqlite::Result<StreamBatch> {
    let there = data.lines().count() as u64;
    match (u64::try_from(first), u64::try_from(count)) {
        (Ok(first), Ok(count)) if next.contains(&first) && count == there && first.checked_add(count).is_some() => {
            Ok(StreamBatch { first, count, data, stored_ms })
        }
        _ => {
            let why =
                format!("the row of its stream with {there} items says that it has {count} from {first} on, which is not in {next:?}");
            Err(rusqlite::Error::FromSqlConversionFailure(0, Type::Integer, why.into()))
        }
    }
}

/// Where a stream ends.
struct End {
    /// Number of its items.
    items: i64,
    /// Number of rows of the tail that are not copied.
    rows: i64,
    /// Their length.
    bytes: i64,
}

/// Where a stream ends all of whose items are copied.
fn end_of_copied(stream: StreamSeq, items: i64) -> End {
    // Streams that begin together would otherwise all be copied in one commit.
    End { items, rows: 0, bytes: if items == 0 { stream.rem_euclid(64) * (FULL / 64) } else { 0 } }
}

/// The stream that a [`stream_where`] finds, with its end, once it has an item.
fn with_end(conn: &Connection, sql: &str, by: impl rusqlite::Params) -> rusqlite::Result<Option<(StreamSeq, End)>> {
    let there = conn.prepare_cached(sql)?.query_row(by, |row| {
        let end = |items| -> rusqlite::Result<End> { Ok(End { items, rows: row.get(2)?, bytes: row.get(3)? }) };
        Ok((row.get(0)?, row.get::<_, Option<i64>>(1)?.map(end).transpose()?))
    });
    let Some((stream, end)) = there.optional()? else { return Ok(None) };
    Ok(Some((stream, end.map_or_else(|| copied(conn, stream).map(|items| end_of_copied(stream, items)), Ok)?)))
}

/// A stream of a fiber whose rows are all in `stream_chunks`, which is created if it does not
/// exist; the number of its next item; and how many bytes of its next row count as there.
pub(super) fn whole(conn: &Connection, fiber: Seq, name: &str) -> rusqlite::Result<(StreamSeq, u64, i64)> {
    let there = with_end(conn, stream_where!("s.fiber = ?1 AND s.name = ?2"), params![fiber, name])?;
    let (stream, mut end) = there.map_or_else(|| begun(conn, Some(fiber), None, name), Ok)?;
    if end.rows > 0 {
        copy(conn, stream)?;
        end = end_of_copied(stream, copied(conn, stream)?);
    }
    let items = u64::try_from(end.items).map_err(|_| no_valid_number(name))?;
    Ok((stream, items, end.bytes))
}

fn no_valid_number(name: &str) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(format!("the last item of stream {name} has no valid number").into())
}

/// A new stream, with its end.
fn begun(conn: &Connection, fiber: Option<Seq>, turn: Option<TurnSeq>, name: &str) -> rusqlite::Result<(StreamSeq, End)> {
    let stream = created(conn, fiber, turn, name)?;
    Ok((stream, end_of_copied(stream, 0)))
}

fn append(conn: &Connection, stream: StreamSeq, end: &End, new: &StreamBatch) -> rusqlite::Result<()> {
    if end.items != new.first.cast_signed() {
        let why = format!("item {} does not follow the {} that are stored", new.first, end.items);
        return Err(rusqlite::Error::ToSqlConversionFailure(why.into()));
    }
    append_at(conn, stream, end, new).map(drop)
}

/// Appends at the end of a stream; returns whether items were copied.
fn append_at(conn: &Connection, stream: StreamSeq, end: &End, new: &StreamBatch) -> rusqlite::Result<bool> {
    let long = i64::try_from(new.data.len()).unwrap_or(i64::MAX);
    if end.rows == 0 && long >= FULL {
        return put(conn, stream, new).map(|()| true);
    }
    insert(conn, "INSERT INTO stream_tail (stream, first, count, data, stored_ms) VALUES (?1, ?2, ?3, ?4, ?5)", stream, new)?;
    let seq = conn.last_insert_rowid();
    let bytes = if end.rows == 0 { end.bytes.saturating_add(long) } else { long };
    add_open(conn, stream, seq, bytes, (new.first + new.count).cast_signed())?;
    if end.bytes.saturating_add(long) >= FULL || end.rows + 1 >= MOST_ROWS {
        copy(conn, stream)?;
        shorten(conn)?;
        return Ok(true);
    }
    if seq % DELETED == 0 {
        shorten(conn)?;
    }
    Ok(false)
}

/// Deletes the rows whose items are all before number `before`, except the last.
pub(super) fn trim(conn: &Connection, stream: StreamSeq, before: i64) -> rusqlite::Result<()> {
    let trimmed = conn
        .prepare_cached(
            "DELETE FROM stream_chunks
             WHERE stream = ?1 AND first < ?2 AND first + count <= ?2
                   AND first < (SELECT max(first) FROM stream_chunks WHERE stream = ?1)",
        )?
        .execute([stream, before])?;
    if trimmed > 0 {
        conn.prepare_cached("UPDATE streams SET kept = (SELECT min(first) FROM stream_chunks WHERE stream = ?1) WHERE seq = ?1")?
            .execute([stream])?;
    }
    Ok(())
}

/// Stores a row of items, unless the stream is deleted. Only in a damaged stream there is a row in
/// its place already: then both stay, for a person to repair.
pub(super) fn put_if_there(
    conn: &Connection,
    stream: StreamSeq,
    first: u64,
    count: u64,
    data: &str,
    stored_ms: i64,
) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT INTO stream_chunks (stream, first, count, data, stored_ms)
         SELECT ?1, ?2, ?3, ?4, ?5 WHERE EXISTS (SELECT 1 FROM streams WHERE seq = ?1)
         ON CONFLICT (stream, first) DO UPDATE SET data = data || char(10) || excluded.data",
    )?
    .execute(params![stream, first.cast_signed(), count.cast_signed(), data, stored_ms])
    .map(drop)
}

fn put(conn: &Connection, stream: StreamSeq, new: &StreamBatch) -> rusqlite::Result<()> {
    insert(conn, "INSERT INTO stream_chunks (stream, first, count, data, stored_ms) VALUES (?1, ?2, ?3, ?4, ?5)", stream, new)
}

/// Runs a statement whose parameters are a stream and one of its rows.
fn insert(conn: &Connection, sql: &str, stream: StreamSeq, new: &StreamBatch) -> rusqlite::Result<()> {
    let StreamBatch { first, count, data, stored_ms } = new;
    conn.prepare_cached(sql)?.execute(params![stream, first.cast_signed(), count.cast_signed(), data, stored_ms]).map(drop)
}

/// Copies the rows of a stream from the tail, as one row.
fn copy(conn: &Connection, stream: StreamSeq) -> rusqlite::Result<()> {
    match tail(conn, stream) {
        Ok(rows) => {
            let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Ok(()) };
            let (first, stored_ms, behind) = (first.first, last.stored_ms, last.first + last.count);
            let data: Vec<_> = rows.into_iter().map(|row| row.data).collect();
            put(conn, stream, &StreamBatch { first, count: behind - first, data: data.join("\n"), stored_ms })?;
            forget(conn, stream)
        }
        Err(failed @ rusqlite::Error::SqliteFailure(..)) => Err(failed),
        // A damaged row stays as it is, for a person to repair, where it does not block deletion.
        Err(_) => move_to_the_end(conn, stream),
    }
}

/// Takes the rows of a stream off the list of rows to copy.
fn forget(conn: &Connection, stream: StreamSeq) -> rusqlite::Result<()> {
    conn.prepare_cached("DELETE FROM stream_tail_open WHERE stream = ?1")?.execute([stream]).map(drop)
}

fn move_to_the_end(conn: &Connection, stream: StreamSeq) -> rusqlite::Result<()> {
    let listed: Vec<i64> = conn
        .prepare_cached(
            "SELECT e.value FROM stream_tail_open o CROSS JOIN json_each('[' || substr(o.seqs, 2) || ']') e WHERE o.stream = ?1",
        )?
        .query_map([stream], |r| r.get(0))?
        .collect::<Result<_, _>>()?;
    let mut moved = Vec::with_capacity(listed.len());
    for seq in listed {
        let to: Option<i64> = conn
            .prepare_cached("UPDATE stream_tail SET seq = (SELECT max(seq) + 1 FROM stream_tail) WHERE seq = ?1 RETURNING seq")?
            .query_row([seq], |r| r.get(0))
            .optional()?;
        moved.extend(to);
    }
    let Some(first) = moved.first() else { return forget(conn, stream) };
    let count = i64::try_from(moved.len()).unwrap_or(i64::MAX);
    let seqs = moved.iter().fold(String::new(), |seqs, seq| format!("{seqs},{seq}"));
    conn.prepare_cached("UPDATE stream_tail_open SET first = ?2, seqs = ?3, count = ?4 WHERE stream = ?1")?
        .execute(params![stream, first, seqs, count])
        .map(drop)
}

/// Deletes the beginning of the tail as far as it is copied, or copies the stream that blocks it.
fn shorten(conn: &Connection) -> rusqlite::Result<()> {
    let ends: (Option<i64>, Option<i64>) = conn
        .prepare_cached("SELECT (SELECT min(seq) FROM stream_tail), (SELECT max(seq) FROM stream_tail)")?
        .query_row((), |r| Ok((r.get(0)?, r.get(1)?)))?;
    let (Some(first), Some(last)) = ends else { return Ok(()) };
    let open: Option<(i64, StreamSeq)> = conn
        .prepare_cached("SELECT first, stream FROM stream_tail_open WHERE first = (SELECT min(first) FROM stream_tail_open)")?
        .query_row((), |r| Ok((r.get(0)?, r.get(1)?)))
        .optional()?;
    let behind = open.map_or(last + 1, |(seq, _)| seq);
    if behind - first >= DELETED {
        conn.prepare_cached("DELETE FROM stream_tail WHERE seq < ?1")?.execute([behind.min(first + DELETED_AT_ONCE)])?;
    }
    match open {
        Some((seq, stream)) if last - seq >= LONGEST => copy(conn, stream),
        _ => Ok(()),
    }
}

fn close(conn: &Connection, stream: StreamSeq) -> rusqlite::Result<()> {
    copy(conn, stream)?;
    shorten(conn)
}

/// Its rows in the tail belong to no stream from now on.
fn delete(conn: &Connection, stream: StreamSeq) -> rusqlite::Result<()> {
    conn.prepare_cached("DELETE FROM streams WHERE seq = ?1")?.execute([stream]).map(drop)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use forever_testkit::prng::Prng;

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

    fn batch(first: u64, lines: &[String], stored_ms: i64) -> StreamBatch {
        StreamBatch { first, count: lines.len() as u64, data: lines.join("\n"), stored_ms }
    }

    fn number(conn: &Connection, sql: &str) -> i64 {
        conn.query_row(sql, (), |r| r.get(0)).unwrap()
    }

    /// All chunks of a turn, as the store and as the view have them.
    fn told(conn: &Connection, turn: TurnSeq) -> Vec<String> {
        let rows = read_of_turn(conn, turn, 0, u32::MAX).unwrap();
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
            let rows = read_of_turn(conn, turn, from as u64, u32::MAX).unwrap();
            if let Some(row) = rows.first() {
                assert!(row.first <= from as u64 && from as u64 <= row.first + row.count, "{} from {from}", row.first);
                let behind: Vec<&str> = rows.iter().flat_map(|row| row.data.lines()).collect();
                assert_eq!(behind, &told[usize::try_from(row.first).unwrap()..]);
            }
        }
        told
    }

    #[test]
    fn logs_are_what_was_appended_however_the_tail_is_copied_and_whatever_is_taken_back() {
        for seed in 0..3 {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("a.db");
            let mut conn = turns(&path);
            let mut prng = Prng::new(seed);
            let mut logs: BTreeMap<TurnSeq, Vec<String>> = (1..=TURNS).map(|turn| (turn, Vec::new())).collect();
            for at in 0..1500 {
                let turn = 1 + i64::try_from(prng.below(TURNS.unsigned_abs()).min(prng.below(TURNS.unsigned_abs()))).unwrap();
                let log = logs.get_mut(&turn).unwrap();
                match prng.below(300) {
                    0 => {
                        conn.execute("UPDATE turns SET settled_ms = 1, state = 'completed' WHERE seq = ?1", [turn]).unwrap();
                        close_of_turn(&conn, turn).unwrap();
                    }
                    1 => {
                        // Its rows stay in the tail, and are not those of the next one.
                        delete_of_turn(&conn, turn).unwrap();
                        log.clear();
                    }
                    2 => {
                        drop(conn);
                        conn = open::writer(&path, Durability::Process, prng.below(2) == 0).unwrap();
                    }
                    kind => {
                        let longest = if kind < 6 { 9000 } else { 200 };
                        let lines: Vec<String> = (0..=prng.below(3))
                            .map(|n| format!("{at} {n} {}", "x".repeat(usize::try_from(prng.below(longest)).unwrap())))
                            .collect();
                        let new = batch(log.len() as u64, &lines, at);
                        conn.execute_batch("SAVEPOINT s").unwrap();
                        append_of_turn(&conn, turn, &new).unwrap();
                        if prng.below(20) == 0 {
                            conn.execute_batch("ROLLBACK TO s").unwrap();
                        } else {
                            log.extend(lines);
                        }
                        conn.execute_batch("RELEASE s").unwrap();
                        assert!(append_of_turn(&conn, turn, &batch(log.len() as u64 + 1, &["x".to_owned()], at)).is_err());
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
        append_of_turn(&conn, 1, &batch(0, &line(), 0)).unwrap();
        let mut longest = 0;
        for n in 0..5000 {
            append_of_turn(&conn, 2, &batch(n, &line(), 0)).unwrap();
            assert!(n > LONGEST.unsigned_abs() + 2 || number(&conn, "SELECT min(seq) FROM stream_tail") == 1, "it is kept for so long");
            longest =
                longest.max(number(&conn, "SELECT coalesce((SELECT max(seq) FROM stream_tail) - (SELECT min(seq) FROM stream_tail), 0)"));
        }
        assert!(longest <= LONGEST + 2 * DELETED, "{longest}");
        assert_eq!((told(&conn, 1).len(), told(&conn, 2).len()), (1, 5000));
        assert_eq!(
            number(&conn, "SELECT count(*) FROM stream_chunks JOIN streams s ON s.seq = stream WHERE turn = 1"),
            1,
            "copied with one chunk"
        );
        close_of_turn(&conn, 2).unwrap();
        assert!(number(&conn, "SELECT count(*) FROM stream_tail") < 2 * DELETED);
    }

    #[test]
    fn many_short_items_are_copied_as_long_ones_are() {
        let folder = tempfile::tempdir().unwrap();
        let conn = turns(&folder.path().join("a.db"));
        for n in 0..1000 {
            append_of_turn(&conn, 1, &batch(n, &["x".to_owned()], 0)).unwrap();
            let (rows, listed) = conn
                .query_row("SELECT coalesce(sum(count), 0), coalesce(sum(length(seqs)), 0) FROM stream_tail_open", (), |r| {
                    Ok((r.get::<_, i64>(0)?, r.get::<_, i64>(1)?))
                })
                .unwrap();
            assert!(rows < MOST_ROWS && listed <= 8 * MOST_ROWS, "{rows} rows, {listed} bytes");
        }
        assert_eq!(number(&conn, "SELECT count(*) FROM stream_chunks"), 1000 / MOST_ROWS);
        assert_eq!(told(&conn, 1), vec!["x"; 1000]);
    }

    #[test]
    fn damaged_tail_keeps_no_other_turn_from_being_stored_and_stays() {
        let damages = ["first = -1", "first = 7", "count = 9", "data = CAST(x'ff' AS TEXT)", "data = ''"];
        for damage in damages {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("a.db");
            let conn = turns(&path);
            append_of_turn(&conn, 1, &batch(0, &["a".to_owned()], 0)).unwrap();
            append_of_turn(&conn, 1, &batch(1, &["b".to_owned()], 0)).unwrap();
            conn.execute(&format!("UPDATE stream_tail SET {damage} WHERE first = 0"), ()).unwrap();
            drop(conn);
            let conn = opened(&path);
            assert!(read_of_turn(&conn, 1, 0, 9).is_err(), "{damage}");
            conn.execute_batch("BEGIN").unwrap();
            for n in 0..3000 {
                append_of_turn(&conn, 2, &batch(n, &["x".to_owned()], 0)).unwrap();
            }
            close_of_turn(&conn, 1).unwrap();
            conn.execute_batch("COMMIT").unwrap();
            assert_eq!(told(&conn, 2).len(), 3000);
            assert_eq!(number(&conn, "SELECT count(*) FROM stream_tail JOIN streams s ON s.seq = stream WHERE turn = 1"), 2, "{damage}");
        }
    }

    #[test]
    fn number_that_none_can_stand_before_or_behind_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let mut conn = turns(&path);
        for n in 0..3 {
            append_of_turn(&conn, 1, &batch(n, &[format!("a{n}")], 0)).unwrap();
            append_of_turn(&conn, 2, &batch(n, &[format!("b{n}")], 0)).unwrap();
        }
        for (n, seq) in (3..).zip([i64::MAX, i64::MIN, 0]) {
            conn.execute("UPDATE stream_tail SET seq = ?1 WHERE stream = 1 AND first = 1", [seq]).unwrap();
            drop(conn);
            conn = opened(&path);
            append_of_turn(&conn, 1, &batch(n, &[format!("a{n}")], 0)).unwrap();
            append_of_turn(&conn, 2, &batch(n, &[format!("b{n}")], 0)).unwrap();
            shorten(&conn).unwrap();
            let all = |of: char| (0..=n).map(|n| format!("{of}{n}")).collect::<Vec<_>>();
            assert_eq!((told(&conn, 1), told(&conn, 2)), (all('a'), all('b')), "{seq}");
        }
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
                append_of_turn(&conn, turn, &batch(n, &chunk, 0)).unwrap();
            }
            conn.execute_batch("COMMIT").unwrap();
        }
        let written = std::fs::metadata(folder.path().join("a.db-wal")).unwrap().len();
        let chunks = 200 * TURNS.unsigned_abs();
        assert!(written / chunks < 512, "{} bytes of log a chunk", written / chunks);
        assert_eq!(number(&conn, "PRAGMA user_version"), i64::from(schema::version()));
    }
}
