//! The newest items of a fiber's history, which stand in its snapshot row.
//!
//! A commit writes whole pages. The checkpoint of a fiber that is alone writes that of its snapshot
//! row, so the item that comes with it is appended to a text in that row. When the row has no room
//! for another one, and when the fiber ends, the items are moved to the stream [`HISTORY`]. Where
//! many fibers commit together, their short rows share pages, and long ones would not: an item goes
//! to [`histories`] at once.
//!
//! A checkpoint that changes a stream is a transaction of several statements, and any other is one
//! statement. So which one it is has to be known before it is queued: [`Lengths`] keeps the lengths
//! of the texts that this process has written.
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension};

use super::conn::Conn;
use super::snapshot_rows::ROW_BYTES;
use super::{histories, streams};
use crate::{HISTORY, NewSnapshot, Seq, StreamAppend, StreamBatch};

/// Number of bytes that the items may always take, on a page of their own if the row has more than
/// one.
const LEAST_BYTES: usize = 512;

/// Number of bytes of a row on each page after its first.
const NEXT_PAGE_BYTES: usize = 2044;

/// Number of bytes of the other texts of a row: a hash and a name. Longer ones only make it longer.
const OTHER_TEXTS: usize = 80;

/// Maximum number of fibers whose lengths are kept. A text of unknown length is moved out.
const MOST_FIBERS: usize = 1 << 16;

/// Lengths of the texts of fibers, as far as they are known. A wrong one makes a row longer or
/// shorter than it should be, and nothing else.
#[derive(Debug, Default)]
pub(super) struct Lengths(Mutex<HashMap<Seq, usize>>);

/// Where the item of a checkpoint goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Destination {
    Row,
    Stream,
    /// To the stream, after the items in the row.
    StreamAfterRow,
}

/// Number of callers from which on checkpoints are expected to share a commit.
const TOGETHER: usize = 4;

impl Lengths {
    /// Where the item of a checkpoint goes. Takes the checkpoint into account.
    pub(super) fn destination(&self, fiber: Seq, new: &NewSnapshot, item: &StreamAppend, callers: usize) -> Destination {
        let mut lengths = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = lengths.get(&fiber).copied().or_else(|| (new.number == 1).then_some(0));
        let length = before.unwrap_or(0) + 1 + item.data.len();
        let is_full = length + item.data.len() > room(new.data.len() + OTHER_TEXTS);
        let destination = match before {
            Some(0) if callers >= TOGETHER => Destination::Stream,
            Some(_) if callers < TOGETHER && !is_full => Destination::Row,
            _ => Destination::StreamAfterRow,
        };
        if lengths.len() >= MOST_FIBERS && !lengths.contains_key(&fiber) {
            lengths.clear();
        }
        lengths.insert(fiber, if destination == Destination::Row { length } else { 0 });
        destination
    }

    /// The fiber has ended.
    pub(super) fn forget(&self, fiber: Seq) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&fiber);
    }
}

/// Number of bytes for items in a row whose other texts have `rest` bytes: as many as go on the
/// pages that are written anyway.
fn room(rest: usize) -> usize {
    let left = match ROW_BYTES.checked_sub(rest) {
        Some(left) => left,
        None => NEXT_PAGE_BYTES - (rest - ROW_BYTES) % NEXT_PAGE_BYTES,
    };
    left.max(LEAST_BYTES)
}

/// The text of the row. What is no UTF-8 in it is damage, and must stop neither the fiber nor the
/// items after it.
fn text(conn: &Connection, fiber: Seq) -> rusqlite::Result<Option<String>> {
    let text = conn
        .prepare_cached("SELECT history FROM snapshots WHERE fiber = ?1")?
        .query_row([fiber], |row| Ok(row.get_ref(0)?.as_bytes_or_null()?.map(|text| String::from_utf8_lossy(text).into_owned())))
        .optional()?;
    Ok(text.flatten().filter(|text| !text.is_empty()))
}

fn count(text: &str) -> u64 {
    text.lines().count() as u64
}

/// Moves the items out of the row, to the end of the stream.
pub(super) fn fold(conn: &Conn, fiber: Seq, keep: Option<u64>, now_ms: i64) -> rusqlite::Result<()> {
    let Some(data) = text(conn, fiber)? else { return Ok(()) };
    let items = StreamAppend { name: HISTORY.into(), first: None, count: count(&data), data, keep };
    match histories::append_whole(conn, fiber, &items, now_ms) {
        // The stream is damaged. The items stay here, and the fiber continues.
        Err(rusqlite::Error::ToSqlConversionFailure(_)) => return Ok(()),
        appended => appended?,
    }
    conn.prepare_cached("UPDATE snapshots SET history = NULL WHERE fiber = ?1")?.execute([fiber]).map(drop)
}

/// Items of a stream of a fiber, from a batch on that has number `from` in it: those of the stream
/// and, of its history, those in the row.
pub(super) fn read(conn: &Conn, fiber: Seq, name: &str, from: u64, limit: u32) -> rusqlite::Result<Vec<StreamBatch>> {
    let (mut batches, next) = streams::read_of_fiber(conn, fiber, name, from, limit)?;
    if name != HISTORY || batches.len() >= limit as usize {
        return Ok(batches);
    }
    let next = histories::read(conn, fiber, &mut batches, from, next, limit)?;
    if batches.len() >= limit as usize {
        return Ok(batches);
    }
    let Some(data) = text(conn, fiber)? else { return Ok(batches) };
    let stored_ms =
        conn.prepare_cached("SELECT coalesce(saved_ms, 0) FROM snapshots WHERE fiber = ?1")?.query_row([fiber], |row| row.get(0))?;
    if next <= from {
        batches.clear();
    }
    batches.push(StreamBatch { first: next, count: count(&data), data, stored_ms });
    Ok(batches)
}

/// Names of the streams of a fiber, in the order of their bytes.
pub(super) fn names(conn: &Connection, fiber: Seq) -> rusqlite::Result<Vec<String>> {
    let mut names = streams::names_of_fiber(conn, fiber)?;
    if let Err(at) = names.binary_search_by(|name| name.as_str().cmp(HISTORY))
        && text(conn, fiber)?.is_some()
    {
        names.insert(at, HISTORY.to_owned());
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{accept, snapshot};
    use crate::sqlite::Sqlite;
    use crate::{Claim, Durability, End, FiberStore, NewSnapshot, StreamStore, StreamsDelta};

    fn item(n: u64) -> String {
        format!(r#"{{"n":{n},"ms":1790000000000,"took":3,"at":"charge","set":{{"total":{n},"note":"{}"}}}}"#, "x".repeat(40))
    }

    async fn checkpoint(store: &Sqlite, claim: Claim, n: u64, data: &str) {
        let append = StreamAppend { name: HISTORY.into(), first: None, count: 1, data: item(n), keep: None };
        let new = NewSnapshot {
            replaces: false,
            data: format!("{{\"text\":\"{data}\"}}"),
            streams: StreamsDelta { appended: vec![append], ..StreamsDelta::default() },
            ..snapshot(n)
        };
        store.checkpoint(claim, new).await.unwrap();
    }

    async fn number(store: &Sqlite, sql: &'static str) -> i64 {
        store.read("look", move |c| c.query_row(sql, (), |r| r.get(0))).await.unwrap()
    }

    async fn items(store: &Sqlite, claim: Claim) -> Vec<String> {
        let batches = store.stream(claim.fiber, HISTORY.to_owned(), 0, 1000).await.unwrap();
        batches.iter().flat_map(|batch| batch.data.lines().map(str::to_owned)).collect()
    }

    #[tokio::test]
    async fn row_with_the_newest_items_stays_on_its_page_and_a_long_one_takes_no_more_than_one_page_more() {
        let store = Sqlite::in_memory().await.unwrap();
        store.join(0).await.unwrap();
        let sizes = [(100, ROW_BYTES), (900, ROW_BYTES), (1700, ROW_BYTES + LEAST_BYTES), (3000, 2 * NEXT_PAGE_BYTES)];
        for (nth, (bytes, limit)) in sizes.into_iter().enumerate() {
            let claim = accept(&store, &format!("fiber {nth}")).await;
            let mut in_row = 0;
            for n in 1..=100 {
                checkpoint(&store, claim, n, &"x".repeat(bytes)).await;
                let row =
                    number(&store, "SELECT octet_length(data) + coalesce(octet_length(history), 0) FROM snapshots WHERE data IS NOT NULL");
                let row = usize::try_from(row.await).unwrap();
                assert!(row <= limit, "{bytes} and {row}");
                in_row += number(&store, "SELECT history IS NOT NULL FROM snapshots WHERE data IS NOT NULL").await;
                assert_eq!(items(&store, claim).await.len() as u64, n);
            }
            assert!(in_row > 60, "{bytes}: only {in_row} of 100 did not write to the stream");
            store.end(claim, End::Completed("1".into()), Vec::new(), Vec::new(), 9).await.unwrap();
            assert_eq!(items(&store, claim).await, (1..=100).map(item).collect::<Vec<_>>());
        }
    }

    #[tokio::test]
    async fn checkpoint_whose_items_cannot_be_stored_is_not_stored() {
        let store = Sqlite::in_memory().await.unwrap();
        store.join(0).await.unwrap();
        let claim = accept(&store, "fiber").await;
        let with_item = |n| {
            let append = StreamAppend { name: "log".into(), first: None, count: 1, data: item(n), keep: None };
            NewSnapshot { streams: StreamsDelta { appended: vec![append], ..StreamsDelta::default() }, ..snapshot(n) }
        };
        store.checkpoint(claim, with_item(1)).await.unwrap();
        store.read("damage", |c| c.execute_batch("UPDATE temp.stream_tail_open SET behind = -1")).await.unwrap();
        store.checkpoint(claim, with_item(2)).await.unwrap_err();
        assert_eq!(number(&store, "SELECT number FROM snapshots").await, 1);
    }

    #[tokio::test]
    async fn commits_with_history_write_little_more_pages() {
        let pages = async |with_history: bool| {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("a.db");
            let store = Sqlite::open(&path, Durability::Process, std::time::Duration::ZERO).await.unwrap();
            store.join(0).await.unwrap();
            let claim = accept(&store, "fiber").await;
            let log = || std::fs::metadata(folder.path().join("a.db-wal")).unwrap().len();
            let before = log();
            for n in 1..=200 {
                if with_history {
                    checkpoint(&store, claim, n, "some text").await;
                } else {
                    store.checkpoint(claim, snapshot(n)).await.unwrap();
                }
            }
            log() - before
        };
        let (without, with) = (pages(false).await, pages(true).await);
        assert!(with < without * 3 / 2, "{with} bytes of log in place of {without}");
    }

    #[tokio::test]
    async fn damaged_text_stops_neither_the_fiber_nor_its_later_items() {
        let store = Sqlite::in_memory().await.unwrap();
        store.join(0).await.unwrap();
        let claim = accept(&store, "fiber").await;
        checkpoint(&store, claim, 1, "").await;
        store.read("damage", |c| c.execute("UPDATE snapshots SET history = CAST(x'ff0aff' AS TEXT)", ())).await.unwrap();
        for n in 2..=40 {
            checkpoint(&store, claim, n, "").await;
        }
        assert_eq!(items(&store, claim).await[2..], (2..=40).map(item).collect::<Vec<_>>());
    }
}
