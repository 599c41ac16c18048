//! When the write-ahead log is copied into the database, so that it stays short and can begin anew.
//!
//! SQLite would do it inside a commit, while callers wait; here it is done between two commits. A
//! long log costs at the next open after a crash, which reads all of it; a short one costs syncs.
//! So it is copied when it is long in pages or in commits: many small checkpoints make a log that
//! is read in a millisecond, and large ones do not pay for more copies than SQLite's own rule.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rusqlite::Connection;
use rusqlite::hooks::Wal;
use tracing::warn;

use super::open::Durability;
use super::worker::Pages;
use crate::error::{Error, ErrorKind, Result};

/// SQLite's own limit: 1000 pages of the size that it chooses by itself.
const BYTES: u32 = 1000 * 4096;

/// After how many commits the log is copied although it is not long. Where no commit waits for the
/// disk, the syncs of a copy are most of what commits cost, so that the log is only as short there
/// as SQLite itself keeps it.
fn most_commits(durability: Durability, longest: u32) -> u32 {
    match durability {
        Durability::Power => 256,
        Durability::Process => longest,
    }
}

/// The log of one connection that writes.
#[derive(Debug)]
pub(crate) struct Log {
    /// How many pages are in the log since it began anew, set by each commit.
    pages: Arc<AtomicU32>,
    /// Of these, how many were there when it was last copied.
    copied: u32,
    /// After so many more pages it is copied.
    longest: u32,
    /// After so many commits it is copied.
    most_commits: u32,
    commits: u32,
    seen: u32,
    /// Whether a commit waits for the disk.
    syncs: bool,
    /// Whether it was copied since the last commit. The next one begins it anew, and waits for the
    /// disk at any durability.
    begins_anew: bool,
    /// Set when a commit begins to write.
    began: Arc<AtomicBool>,
}

impl Log {
    /// Takes over from SQLite's own rule.
    pub(crate) fn watch(conn: &mut Connection, durability: Durability) -> Result<Self> {
        let pages = Arc::new(AtomicU32::new(0));
        let told = Arc::clone(&pages);
        let hook = move |_: &mut Wal, pages| {
            told.store(u32::try_from(pages).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        };
        conn.wal_hook(Some(hook)).map_err(|e| Error::new(ErrorKind::Store, "failed to watch the write-ahead log").with_source(e))?;
        let began = Arc::new(AtomicBool::new(false));
        let begins = Arc::clone(&began);
        let hook = move || {
            begins.store(true, Ordering::Relaxed);
            false
        };
        conn.commit_hook(Some(hook)).map_err(|e| Error::new(ErrorKind::Store, "failed to watch commits").with_source(e))?;
        let page_bytes: u32 = conn
            .pragma_query_value(None, "page_size", |r| r.get(0))
            .map_err(|e| Error::new(ErrorKind::Store, "failed to read the size of a page").with_source(e))?;
        let longest = BYTES / page_bytes.max(1);
        let syncs = durability == Durability::Power;
        Ok(Log {
            pages,
            copied: 0,
            longest,
            most_commits: most_commits(durability, longest),
            commits: 0,
            seen: 0,
            syncs,
            begins_anew: true,
            began,
        })
    }

    /// Becomes true when a commit begins to write, whatever becomes of it.
    pub(crate) fn commits(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.began)
    }

    /// How long it is.
    pub(crate) fn pages(&self) -> Pages {
        self.pages.load(Ordering::Relaxed)
    }

    /// Whether the next commit neither waits for the disk nor has the log copied behind it.
    pub(crate) fn commits_without_sync(&self) -> bool {
        !self.syncs && !self.begins_anew && !self.is_long()
    }

    fn is_long(&self) -> bool {
        self.commits >= self.most_commits || self.seen.saturating_sub(self.copied) >= self.longest
    }

    /// Counts the last commit, if there was one since the last time.
    pub(crate) fn count(&mut self) {
        let pages = self.pages.load(Ordering::Relaxed);
        if pages == self.seen {
            return;
        }
        if pages < self.seen {
            self.copied = 0;
        }
        self.seen = pages;
        self.commits += 1;
        self.begins_anew = false;
    }

    /// Copies the log if it has become long.
    pub(crate) fn tidy(&mut self, conn: &Connection) {
        self.count();
        if !self.is_long() {
            return;
        }
        // A reader may keep part of the log from being copied. It is tried again when as much has
        // been added.
        self.commits = 0;
        self.copied = self.seen;
        self.begins_anew = true;
        let copied = conn.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)").and_then(|mut s| s.query_row((), |_| Ok(())));
        if let Err(error) = copied {
            warn!(%error, "the write-ahead log could not be copied into the database");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::open;

    /// The length of the log in bytes after each of `commits` updates of a row to `bytes` bytes.
    fn lengths(commits: usize, bytes: usize, durability: Durability) -> Vec<u64> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let mut conn = open::writer(&path, Durability::Process, false).unwrap();
        let mut log = Log::watch(&mut conn, durability).unwrap();
        conn.execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, data TEXT); INSERT INTO t VALUES (1, '')").unwrap();
        (0..commits)
            .map(|n| {
                conn.execute("UPDATE t SET data = ?1", [format!("{n:010}").repeat(bytes / 10)]).unwrap();
                log.tidy(&conn);
                std::fs::metadata(folder.path().join("a.db-wal")).unwrap().len()
            })
            .collect()
    }

    #[test]
    fn commit_that_waits_for_the_disk_is_known_before_it_begins() {
        for durability in [Durability::Power, Durability::Process] {
            let folder = tempfile::tempdir().unwrap();
            let mut conn = open::writer(&folder.path().join("a.db"), Durability::Process, false).unwrap();
            let mut log = Log::watch(&mut conn, durability).unwrap();
            log.most_commits = 3;
            conn.execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, data INTEGER); INSERT INTO t VALUES (1, 0)").unwrap();
            let mut known = Vec::new();
            for n in 0..7 {
                known.push(log.commits_without_sync());
                conn.execute("UPDATE t SET data = data + 1", ()).unwrap();
                if known[n] {
                    log.count();
                } else {
                    // Its own thread copies the log.
                    log.tidy(&conn);
                }
            }
            // The first begins the log; after three the fourth has it copied behind itself, and the
            // fifth begins it anew.
            let process = [false, true, true, false, false, true, true];
            let expected = if durability == Durability::Power { [false; 7] } else { process };
            assert_eq!(known, expected, "{durability:?}");
        }
    }

    #[test]
    fn the_log_of_small_commits_stays_at_256_of_them() {
        let lengths = lengths(2000, 100, Durability::Power);
        // A new file begins with its tables.
        let (first, longest) = (lengths[0], *lengths.iter().max().unwrap());
        assert!(longest < first + 300 * 2072, "{first} {longest}");
    }

    #[test]
    fn the_log_of_large_commits_stays_at_four_megabytes() {
        let longest = *lengths(300, 60_000, Durability::Process).iter().max().unwrap();
        assert!((900 * 4120..1100 * 4120).contains(&longest), "{longest}");
    }
}
