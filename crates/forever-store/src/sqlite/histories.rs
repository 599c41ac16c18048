//! Histories of fibers that commit together.
//!
//! A commit stores the items of all its fibers as one row of `history_tail`. In memory they are
//! kept by fiber, and those of a fiber that are [`FULL`] bytes long are stored in `stream_chunks`
//! as one row, from memory. Rows of the tail are deleted from its beginning, once everything in
//! them is in `stream_chunks`; a fiber that blocks this for long is stored there early. The tail is
//! read when the database is opened, and not again.
//!
//! [`Histories`] is part of the transactions of its connection: [`Conn`] has it undo what a
//! rollback takes back.
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, params};

use super::conn::Conn;
use super::streams::{self, StreamSeq};
use crate::{HISTORY, Seq, StreamAppend, StreamBatch};

/// Number of bytes of items after which those of a fiber are stored in `stream_chunks`.
const FULL: usize = streams::FULL_BYTES as usize;

/// Maximum length of the tail, in bytes, from the first item on that is not in `stream_chunks`. It
/// is what is read when the database is opened, and most of what is kept in memory.
const LONGEST: u64 = if cfg!(test) { 64 << 10 } else { 16 << 20 };

/// Number of bytes after which the beginning of the tail is deleted. Each deletion writes the pages
/// around it.
const DELETED: u64 = if cfg!(test) { 4 << 10 } else { 1 << 20 };

/// The items that are in the tail, and not in `stream_chunks`.
#[derive(Debug, Default)]
pub(super) struct Histories {
    by_fiber: HashMap<Seq, Recent>,
    /// Where the items of each fiber begin, in the order of their rows.
    begins: BTreeSet<(Place, Seq)>,
    /// The row that the transaction under way is to write.
    next: Place,
    /// Its items.
    lines: String,
    /// Length of the tail at the last deletion.
    deleted_at: u64,
    /// What a rollback has to take back, in the order in which it was done.
    done: Vec<Done>,
}

/// A row of the tail.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    row: i64,
    /// Number of bytes in the rows before it.
    bytes: u64,
}

/// The items of one fiber.
#[derive(Debug)]
struct Recent {
    stream: StreamSeq,
    begins: Place,
    /// Number of the first one, and of the one behind the last.
    first: u64,
    next: u64,
    /// One a line.
    data: String,
    stored_ms: i64,
    /// Number of newest items of the stream to keep.
    keep: Option<u64>,
    /// Length from which on they are stored.
    full: usize,
}

/// A change of [`Histories`].
#[derive(Debug)]
enum Done {
    Began(Seq),
    Grew { fiber: Seq, length: usize, next: u64, stored_ms: i64 },
    Left(Seq, Box<Recent>),
}

/// A moment of a transaction. The default is its beginning.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Mark {
    done: usize,
    lines: usize,
}

impl Histories {
    /// Reads the tail, in a transaction of its own.
    pub(super) fn load(conn: &Connection) -> rusqlite::Result<Self> {
        let transaction = conn.unchecked_transaction()?;
        let mut histories = Histories::default();
        let (mut fibers, mut damaged) = (HashMap::new(), Vec::new());
        {
            let mut rows = transaction.prepare("SELECT seq, data FROM history_tail WHERE seq BETWEEN 1 AND 1 << 62 ORDER BY seq")?;
            let mut rows = rows.query(())?;
            while let Some(row) = rows.next()? {
                let (seq, bytes): (i64, &[u8]) = (row.get(0)?, row.get_ref(1)?.as_bytes()?);
                histories.next.row = seq;
                let read = std::str::from_utf8(bytes).map(|text| histories.read_row(&transaction, text, &mut fibers));
                match read {
                    Ok(Ok(true)) => {}
                    // The file cannot be read at this moment, which says nothing of the row.
                    Ok(Err(failed @ rusqlite::Error::SqliteFailure(..))) => return Err(failed),
                    Ok(_) | Err(_) => damaged.push(seq),
                }
                histories.next.bytes += bytes.len() as u64;
            }
        }
        if let Some(greatest) = fibers.keys().max() {
            // Some may be deleted, and their numbers must not become those of others.
            streams::leave_numbers_up_to(&transaction, *greatest)?;
        }
        // Kept for a person to repair.
        for seq in damaged {
            transaction.execute("UPDATE history_tail SET damaged = 1 WHERE seq = ?1", [seq])?;
        }
        histories.next.row += 1;
        histories.done.clear();
        transaction.commit()?;
        Ok(histories)
    }

    /// Takes the items of a row; returns whether all of them could be read. `fibers` has the fibers
    /// of the streams that were looked up.
    fn read_row(&mut self, conn: &Connection, text: &str, fibers: &mut HashMap<StreamSeq, Option<Seq>>) -> rusqlite::Result<bool> {
        let mut all_read = true;
        for line in text.lines() {
            all_read &= match Item::read(line).map(|item| self.read_item(conn, &item, fibers)) {
                Some(Ok(is_read)) => is_read,
                Some(Err(failed @ rusqlite::Error::SqliteFailure(..))) => return Err(failed),
                // What is damaged of one fiber says nothing of the others.
                Some(Err(_)) | None => false,
            };
        }
        Ok(all_read)
    }

    /// Takes an item, unless it is stored elsewhere or its fiber is deleted; returns whether it
    /// follows the one before it.
    fn read_item(&mut self, conn: &Connection, item: &Item<'_>, fibers: &mut HashMap<StreamSeq, Option<Seq>>) -> rusqlite::Result<bool> {
        let fiber = match fibers.get(&item.stream) {
            Some(fiber) => *fiber,
            None => *fibers.entry(item.stream).or_insert(fiber_of(conn, item.stream)?),
        };
        let Some(fiber) = fiber else { return Ok(true) };
        let next = match self.by_fiber.get(&fiber) {
            Some(recent) => recent.next,
            None => streams::copied(conn, item.stream)?.cast_unsigned(),
        };
        if item.number != next {
            return Ok(item.number < next);
        }
        if !self.by_fiber.contains_key(&fiber) {
            self.begin(fiber, item.stream, next, 0);
        }
        self.grow(fiber, item.data, 1, item.stored_ms, None);
        Ok(true)
    }

    /// Where the transaction stands.
    pub(super) fn mark(&self) -> Mark {
        Mark { done: self.done.len(), lines: self.lines.len() }
    }

    /// Takes back what was done since a moment of the transaction.
    pub(super) fn undo(&mut self, to: Mark) {
        self.lines.truncate(to.lines);
        while self.done.len() > to.done
            && let Some(done) = self.done.pop()
        {
            match done {
                Done::Began(fiber) => {
                    if let Some(recent) = self.by_fiber.remove(&fiber) {
                        self.begins.remove(&(recent.begins, fiber));
                    }
                }
                Done::Grew { fiber, length, next, stored_ms } => {
                    if let Some(recent) = self.by_fiber.get_mut(&fiber) {
                        recent.data.truncate(length);
                        (recent.next, recent.stored_ms) = (next, stored_ms);
                    }
                }
                Done::Left(fiber, recent) => {
                    self.begins.insert((recent.begins, fiber));
                    self.by_fiber.insert(fiber, *recent);
                }
            }
        }
    }

    /// Stores the items of the transaction, before its commit.
    pub(super) fn write(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        if self.lines.is_empty() {
            return Ok(());
        }
        let end = self.next.bytes + self.lines.len() as u64;
        while let Some(&(begins, fiber)) = self.begins.first()
            && end - begins.bytes > LONGEST
        {
            self.store(conn, fiber)?;
        }
        conn.prepare_cached("INSERT INTO history_tail (seq, data) VALUES (?1, ?2)")?
            .execute(params![self.next.row, self.lines.trim_end_matches('\n')])?;
        if end - self.deleted_at >= DELETED {
            let kept = self.begins.first().map_or(self.next.row + 1, |(begins, _)| begins.row);
            conn.prepare_cached("DELETE FROM history_tail WHERE seq < ?1 AND NOT damaged")?.execute([kept])?;
            // If this is rolled back, the next deletion does it.
            self.deleted_at = end;
        }
        Ok(())
    }

    /// The transaction is stored.
    pub(super) fn committed(&mut self) {
        self.done.clear();
        if !self.lines.is_empty() {
            self.next = Place { row: self.next.row + 1, bytes: self.next.bytes + self.lines.len() as u64 };
            self.lines.clear();
        }
    }

    fn begin(&mut self, fiber: Seq, stream: StreamSeq, first: u64, begun: usize) {
        let (begins, data) = (self.next, String::new());
        let full = FULL - begun;
        self.by_fiber.insert(fiber, Recent { stream, begins, first, next: first, data, stored_ms: 0, keep: None, full });
        self.begins.insert((begins, fiber));
        self.done.push(Done::Began(fiber));
    }

    fn grow(&mut self, fiber: Seq, items: &str, count: u64, stored_ms: i64, keep: Option<u64>) {
        let Some(recent) = self.by_fiber.get_mut(&fiber) else { return };
        self.done.push(Done::Grew { fiber, length: recent.data.len(), next: recent.next, stored_ms: recent.stored_ms });
        if !recent.data.is_empty() {
            recent.data.push('\n');
        }
        recent.data.push_str(items);
        recent.next += count;
        (recent.stored_ms, recent.keep) = (stored_ms, keep);
    }

    /// Stores the items of a fiber in `stream_chunks`.
    fn store(&mut self, conn: &Connection, fiber: Seq) -> rusqlite::Result<()> {
        let Some(recent) = self.by_fiber.remove(&fiber) else { return Ok(()) };
        self.begins.remove(&(recent.begins, fiber));
        let Recent { stream, first, next, stored_ms, keep, .. } = recent;
        let stored = streams::put_if_there(conn, stream, first, next - first, &recent.data, stored_ms);
        self.done.push(Done::Left(fiber, Box::new(recent)));
        stored?;
        keep.map_or(Ok(()), |keep| streams::trim(conn, stream, next.saturating_sub(keep).cast_signed()))
    }
}

/// The fiber whose history a stream is.
fn fiber_of(conn: &Connection, stream: StreamSeq) -> rusqlite::Result<Option<Seq>> {
    conn.prepare_cached("SELECT fiber FROM streams WHERE seq = ?1 AND name = ?2 AND fiber IS NOT NULL")?
        .query_row(params![stream, HISTORY], |row| row.get(0))
        .optional()
}

/// A line of the tail: a JSON array of the stream, the item's number, its time, and the item.
struct Item<'a> {
    stream: StreamSeq,
    number: u64,
    stored_ms: i64,
    data: &'a str,
}

impl<'a> Item<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let mut parts = line.strip_prefix('[')?.strip_suffix(']')?.splitn(4, ',');
        let stream = parts.next()?.parse().ok().filter(|stream| *stream < 1 << 62)?;
        let number: u64 = parts.next()?.parse().ok().filter(|number| *number < 1 << 60)?;
        let stored_ms = parts.next()?.parse().ok()?;
        let data = parts.next()?;
        Some(Item { stream, number, stored_ms, data })
    }

    fn write(&self, lines: &mut String) {
        let Item { stream, number, stored_ms, data } = self;
        // A text takes whatever is written to it.
        let _ = writeln!(lines, "[{stream},{number},{stored_ms},{data}]");
    }
}

/// Appends to a stream of a fiber.
pub(super) fn append(conn: &Conn, fiber: Seq, new: &StreamAppend, now_ms: i64) -> rusqlite::Result<()> {
    if new.name != HISTORY {
        return streams::append_of_fiber(conn, fiber, new, now_ms);
    }
    if new.data.len() >= FULL {
        return append_whole(conn, fiber, new, now_ms);
    }
    let mut histories = conn.histories();
    let histories = &mut *histories;
    if !histories.by_fiber.contains_key(&fiber) {
        let (stream, items, begun) = streams::whole(conn, fiber, HISTORY)?;
        // Those that begin together would otherwise all be stored in one commit.
        histories.begin(fiber, stream, items, usize::try_from(begun).unwrap_or(0).min(FULL));
    }
    let Some(recent) = histories.by_fiber.get(&fiber) else { return Ok(()) };
    let (stream, mut number, full) = (recent.stream, recent.next, recent.full);
    let is_full = recent.data.len() + 1 + new.data.len() >= full;
    histories.grow(fiber, &new.data, new.count, now_ms, new.keep);
    if is_full {
        return histories.store(conn, fiber);
    }
    for data in new.data.lines() {
        Item { stream, number, stored_ms: now_ms, data }.write(&mut histories.lines);
        number += 1;
    }
    Ok(())
}

/// As [`append`], with items that are long enough for a row of their own, unless there are some in
/// the tail.
pub(super) fn append_whole(conn: &Conn, fiber: Seq, new: &StreamAppend, now_ms: i64) -> rusqlite::Result<()> {
    if new.name != HISTORY {
        return streams::append_whole_of_fiber(conn, fiber, new, now_ms);
    }
    let follows = conn.histories().by_fiber.contains_key(&fiber);
    if follows && new.data.len() < FULL {
        return append(conn, fiber, new, now_ms);
    }
    close(conn, fiber)?;
    streams::append_whole_of_fiber(conn, fiber, new, now_ms)
}

/// Stores the items of a fiber in `stream_chunks`, where those of a fiber that has ended are.
pub(super) fn close(conn: &Conn, fiber: Seq) -> rusqlite::Result<()> {
    conn.histories().store(conn, fiber)
}

/// Adds the items of the tail to those of `stream_chunks`, and returns the number of the next item.
/// The latter were read from number `from` on, and end before number `next`.
pub(super) fn read(conn: &Conn, fiber: Seq, batches: &mut Vec<StreamBatch>, from: u64, next: u64, limit: u32) -> rusqlite::Result<u64> {
    let histories = conn.histories();
    let Some(recent) = histories.by_fiber.get(&fiber) else { return Ok(next) };
    if recent.first != next {
        let why = format!("the items of the history from {} on do not follow the {next} before them", recent.first);
        return Err(rusqlite::Error::FromSqlConversionFailure(0, Type::Integer, why.into()));
    }
    if recent.first <= from {
        batches.clear();
    }
    if batches.len() < limit as usize {
        let Recent { first, next, data, stored_ms, .. } = recent;
        batches.push(StreamBatch { first: *first, count: next - first, data: data.clone(), stored_ms: *stored_ms });
    }
    Ok(recent.next)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use forever_testkit::prng::Prng;

    use super::*;
    use crate::sqlite::{Durability, open, recent_items};

    const FIBERS: i64 = 40;

    fn opened(path: &Path) -> Conn {
        Conn::of_writer(open::writer(path, Durability::Process, false).unwrap()).unwrap()
    }

    /// A database with fibers that are running.
    fn fibers(path: &Path) -> Conn {
        let conn = opened(path);
        conn.execute_batch(&format!(
            "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {FIBERS})
             INSERT INTO fibers (seq, id, name, state, args, created_ms, changed_ms) SELECT n, n, 'work', 'running', '{{}}', 0, 0 FROM n;
             INSERT INTO snapshots (fiber) SELECT seq FROM fibers"
        ))
        .unwrap();
        conn
    }

    fn item(n: u64, length: u64) -> String {
        format!(r#"{{"n":{n},"é":"{}"}}"#, "x".repeat(usize::try_from(length).unwrap()))
    }

    fn items(items: &[String]) -> StreamAppend {
        StreamAppend { name: HISTORY.into(), first: None, count: items.len() as u64, data: items.join("\n"), keep: None }
    }

    fn lines(batches: &[StreamBatch]) -> Vec<String> {
        batches.iter().flat_map(|batch| batch.data.lines().map(str::to_owned)).collect()
    }

    fn number(conn: &Connection, sql: &str) -> i64 {
        conn.query_row(sql, (), |row| row.get(0)).unwrap()
    }

    /// The history of a fiber as the store and, after a commit, as the view has it.
    fn history(conn: &Conn, fiber: Seq) -> Vec<String> {
        let all = lines(&recent_items::read(conn, fiber, HISTORY, 0, u32::MAX).unwrap());
        for from in [1, all.len() / 2, all.len()] {
            let batches = recent_items::read(conn, fiber, HISTORY, from as u64, u32::MAX).unwrap();
            if let Some(first) = batches.first() {
                assert!(first.first <= from as u64 && from as u64 <= first.first + first.count, "{} from {from}", first.first);
                assert_eq!(lines(&batches), all[usize::try_from(first.first).unwrap()..]);
            }
            assert!(recent_items::read(conn, fiber, HISTORY, from as u64, 1).unwrap().len() <= 1);
        }
        all
    }

    fn in_view(conn: &Connection, fiber: Seq) -> Vec<String> {
        let all: Vec<String> = conn
            .prepare("SELECT data FROM stream_log WHERE fiber = ?1 AND name = 'history' ORDER BY first")
            .unwrap()
            .query_map([fiber], |row| row.get(0))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        all.iter().flat_map(|data| data.lines().map(str::to_owned)).collect()
    }

    #[test]
    fn histories_are_what_was_appended_whatever_is_taken_back_and_whenever_it_is_opened_again() {
        for seed in 0..3 {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("a.db");
            let mut conn = fibers(&path);
            let mut prng = Prng::new(seed);
            let mut stored: BTreeMap<Seq, Vec<String>> = (1..=FIBERS).map(|fiber| (fiber, Vec::new())).collect();
            for at in 0..400 {
                conn.begin().unwrap();
                let mut now = stored.clone();
                for _ in 0..prng.below(20) {
                    let fiber = 1 + i64::try_from(prng.below(FIBERS.unsigned_abs()).min(prng.below(FIBERS.unsigned_abs()))).unwrap();
                    let history = now.get_mut(&fiber).unwrap();
                    let longest = if prng.below(50) == 0 { 9000 } else { 300 };
                    let new: Vec<String> = (0..=prng.below(2)).map(|n| item(at * 100 + n, prng.below(longest))).collect();
                    let kind = prng.below(40);
                    let work = || {
                        match kind {
                            0 => close(&conn, fiber)?,
                            1 => append_whole(&conn, fiber, &items(&new), 7)?,
                            _ => append(&conn, fiber, &items(&new), 7)?,
                        }
                        if kind < 5 { Err(rusqlite::Error::InvalidQuery) } else { Ok(()) }
                    };
                    let ran = conn.in_savepoint(work);
                    assert!(!conn.is_autocommit());
                    if ran.is_ok() {
                        history.extend(new);
                    }
                    if kind == 39 {
                        close(&conn, fiber).unwrap();
                    }
                }
                if prng.below(8) == 0 {
                    conn.roll_back().unwrap();
                } else {
                    conn.commit().unwrap();
                    stored = now;
                }
                if prng.below(20) == 0 {
                    drop(conn);
                    conn = opened(&path);
                }
                if at % 20 == 0 {
                    for (fiber, expected) in &stored {
                        assert_eq!(history(&conn, *fiber), *expected, "{seed}: fiber {fiber} at {at}");
                        assert_eq!(in_view(&conn, *fiber), *expected, "{seed}: fiber {fiber} at {at}");
                    }
                }
                let tail = number(&conn, "SELECT coalesce(sum(octet_length(data)), 0) FROM history_tail");
                assert!(tail.unsigned_abs() <= LONGEST + DELETED + (20 << 10), "{tail} bytes of tail");
            }
            assert!(number(&conn, "SELECT count(*) FROM stream_chunks") > 100);
        }
    }

    #[test]
    fn fiber_that_appends_rarely_does_not_keep_the_tail() {
        let folder = tempfile::tempdir().unwrap();
        let conn = fibers(&folder.path().join("a.db"));
        let commit = |fiber: Seq, n: u64| {
            conn.begin().unwrap();
            append(&conn, fiber, &items(&[item(n, 100)]), 0).unwrap();
            conn.commit().unwrap();
        };
        commit(1, 0);
        let chunks = || number(&conn, "SELECT count(*) FROM stream_chunks JOIN streams s ON s.seq = stream WHERE fiber = 1");
        let mut n = 0;
        while chunks() == 0 {
            n += 1;
            assert!(n < LONGEST, "it is kept for so long");
            commit(2, n);
        }
        assert!(n * 130 > LONGEST / 2 && n * 130 < 2 * LONGEST, "{n} items");
        assert_eq!((history(&conn, 1).len(), history(&conn, 2).len() as u64), (1, n));
        close(&conn, 2).unwrap();
    }

    #[test]
    fn line_that_cannot_be_read_is_kept_and_keeps_no_other_history_from_growing() {
        for damage in ["replace(data, '[1,1,', '[1,x,')", "replace(data, '[1,1,', '[1,7,')", "'x'", "CAST(x'ff0aff' AS TEXT)", "''"] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("a.db");
            let conn = fibers(&path);
            for n in 0..3 {
                conn.begin().unwrap();
                append(&conn, 1, &items(&[item(n, 10)]), 0).unwrap();
                append(&conn, 2, &items(&[item(n, 10)]), 0).unwrap();
                conn.commit().unwrap();
            }
            conn.execute(&format!("UPDATE history_tail SET data = {damage} WHERE seq = 2"), ()).unwrap();
            let damaged: Vec<u8> =
                conn.query_row("SELECT CAST(data AS BLOB) FROM history_tail WHERE seq = 2", (), |row| row.get(0)).unwrap();
            drop(conn);
            let conn = opened(&path);
            let is_empty = damage == "''";
            for n in 3..2000 {
                conn.begin().unwrap();
                append(&conn, 1, &items(&[item(n, 100)]), 0).unwrap();
                append(&conn, 3, &items(&[item(n, 100)]), 0).unwrap();
                conn.commit().unwrap();
            }
            assert_eq!(history(&conn, 3).len(), 1997, "{damage}");
            assert!(history(&conn, 1).len() >= 1998, "{damage}");
            let kept: Option<Vec<u8>> = conn
                .query_row("SELECT CAST(data AS BLOB) FROM history_tail WHERE seq = 2 AND damaged", (), |row| row.get(0))
                .optional()
                .unwrap();
            assert!(is_empty || kept == Some(damaged), "{damage}");
            drop(conn);
            assert_eq!(history(&opened(&path), 3).len(), 1997);
        }
    }

    #[test]
    fn failed_read_is_not_taken_for_a_damaged_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let conn = fibers(&path);
        conn.begin().unwrap();
        append(&conn, 1, &items(&[item(0, 10)]), 0).unwrap();
        conn.commit().unwrap();
        drop(conn);
        let sqlite = open::writer(&path, Durability::Process, false).unwrap();
        sqlite.execute_batch("PRAGMA legacy_alter_table = 1; ALTER TABLE streams RENAME TO elsewhere").unwrap();
        Histories::load(&sqlite).unwrap_err();
        sqlite.execute_batch("ALTER TABLE elsewhere RENAME TO streams").unwrap();
        assert_eq!(number(&sqlite, "SELECT count(*) FROM history_tail WHERE damaged"), 0);
        drop(sqlite);
        assert_eq!(history(&opened(&path), 1), [item(0, 10)]);
    }

    #[test]
    fn damaged_stream_keeps_no_commit_from_being_stored_and_loses_nothing() {
        for damage in ["count = 0", "count = -1", "count = 1 << 62", "first = 1 << 61", "data = CAST(x'ff' AS TEXT)", "first = -1"] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("a.db");
            let conn = fibers(&path);
            conn.begin().unwrap();
            append_whole(&conn, 1, &items(&[item(0, 10)]), 0).unwrap();
            conn.commit().unwrap();
            conn.execute(&format!("UPDATE stream_chunks SET {damage}"), ()).unwrap();
            drop(conn);
            let conn = opened(&path);
            conn.begin().unwrap();
            // If it cannot be stored, its checkpoint is not.
            let is_stored = append(&conn, 1, &items(&[item(1, 10)]), 0).is_ok();
            conn.commit().unwrap();
            for n in 0..2000 {
                conn.begin().unwrap();
                append(&conn, 2, &items(&[item(n, 100)]), 0).unwrap();
                conn.commit().unwrap();
            }
            assert_eq!(history(&conn, 2).len(), 2000, "{damage}");
            let kept = |n: u64| {
                let sql = format!("SELECT EXISTS (SELECT 1 FROM stream_chunks WHERE instr(data, '\"n\":{n},\"é\":\"xxxxxxxxxx\"') > 0)");
                number(&conn, &sql) == 1
            };
            assert!(kept(0) || damage.starts_with("data"), "{damage}");
            assert!(kept(1) || !is_stored, "{damage}");
        }
    }

    #[test]
    fn items_that_stand_in_the_tail_of_all_streams_come_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let conn = fibers(&path);
        // As those of any other stream.
        streams::append_of_fiber(&conn, 1, &items(&[item(0, 10), item(1, 10)]), 0).unwrap();
        assert_eq!(history(&conn, 1).len(), 2);
        conn.begin().unwrap();
        append(&conn, 1, &items(&[item(2, 10)]), 0).unwrap();
        conn.commit().unwrap();
        drop(conn);
        assert_eq!(history(&opened(&path), 1), [item(0, 10), item(1, 10), item(2, 10)]);
    }

    #[test]
    fn history_of_a_deleted_fiber_is_left_out_and_is_not_that_of_another_one() {
        for is_opened_again in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("a.db");
            let mut conn = fibers(&path);
            conn.begin().unwrap();
            append(&conn, 1, &items(&[item(0, 10), item(1, 10)]), 0).unwrap();
            conn.commit().unwrap();
            conn.execute("DELETE FROM fibers WHERE seq = 1", ()).unwrap();
            if is_opened_again {
                drop(conn);
                conn = opened(&path);
            }
            conn.begin().unwrap();
            close(&conn, 1).unwrap();
            append(&conn, 2, &items(&[item(7, 10)]), 0).unwrap();
            conn.commit().unwrap();
            drop(conn);
            let conn = opened(&path);
            assert_eq!((history(&conn, 1), history(&conn, 2)), (vec![], vec![item(7, 10)]));
            assert_eq!((in_view(&conn, 1), in_view(&conn, 2)), (vec![], vec![item(7, 10)]));
            assert_eq!(number(&conn, "SELECT count(*) FROM history_tail WHERE damaged"), 0);
        }
    }

    #[test]
    fn commit_for_many_fibers_writes_their_items_twice_and_little_more() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let conn = fibers(&path);
        conn.execute_batch("PRAGMA wal_autocheckpoint = 0; PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        for n in 0..200 {
            conn.begin().unwrap();
            for fiber in 1..=FIBERS {
                append(&conn, fiber, &items(&[item(n, 300)]), 0).unwrap();
            }
            conn.commit().unwrap();
        }
        let written = std::fs::metadata(folder.path().join("a.db-wal")).unwrap().len();
        let items = 200 * FIBERS.unsigned_abs();
        assert!(written / items < 1000, "{} bytes of log an item", written / items);
    }
}
