//! Decides when the write-ahead log is copied into the database, so that it stays short and can
//! restart.
//!
//! SQLite would copy inside a commit, while callers wait. Here a [`Copier`] copies beside the
//! commits, and the writer copies the rest between two of them. A long log costs time at the next
//! open after a crash, which reads all of it. A short one costs syncs. So it is copied when it is
//! long in pages or in commits. Many small checkpoints make a log that is read in milliseconds, and
//! large ones do not justify more copies than SQLite's own rule.
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::Connection;
use tracing::warn;

use super::compat::Outcome as _;
use super::copier::{self, Copier};
use super::log_length::{FRAME_HEADER, LOG_HEADER, LogLength};
use super::open::Durability;
use crate::error::{Error, ErrorKind, Result};
use crate::witness::Pages;

/// SQLite's own limit: 1000 pages of its default size.
const BYTES: u32 = 1000 * 4096;

/// How many times that long it may be where it is copied beside the commits. Only large commits
/// make it so long before there are [`most_commits`]. Then copies follow each other, and commits
/// wait for the disk that they use.
const LONGER_BESIDE: u32 = 4;

/// Number of commits after which the log is copied although it is short. Where commits do not sync,
/// the syncs of a copy are most of their cost, so the log is kept only as short as SQLite itself
/// would. A copy beside the commits costs more syncs, but no commit waits for them.
fn most_commits(durability: Durability, page_bytes: u32, beside: bool) -> u32 {
    match durability {
        Durability::Power if beside => 1024,
        Durability::Power => 256,
        Durability::Process => BYTES / page_bytes,
    }
}

/// If the log grows to so many times its limit while it is copied, the writer waits for the copy:
/// the disk does not keep up.
const OVERLONG: u32 = 2;

/// The log of one connection that writes.
#[derive(Debug)]
pub(crate) struct Log {
    length: LogLength,
    /// How many of them were there at the last copy.
    copied: u32,
    /// Length of a page with the header of its frame.
    frame_bytes: u64,
    /// Number of further pages after which it is copied.
    longest: u32,
    /// Number of commits after which it is copied.
    most_commits: u32,
    commits: u32,
    seen: u32,
    /// Whether a commit waits for the disk.
    syncs: bool,
    /// Whether it was copied since the last commit. The next commit restarts it, and syncs at any
    /// durability.
    begins_anew: bool,
    /// Set when a commit starts to write.
    began: Arc<AtomicBool>,
    /// Copies beside the commits.
    copier: Option<Copier>,
    /// Whether a copy was requested, and the rest is not copied yet.
    copying: bool,
}

impl Log {
    /// Takes over from SQLite's own rule for the database at `path`. With a second connection to
    /// the same database, the log is copied beside the commits.
    pub(crate) fn watch(conn: &mut Connection, path: &Path, durability: Durability, beside: Option<Connection>) -> Result<Self> {
        let began = Arc::new(AtomicBool::new(false));
        let begins = Arc::clone(&began);
        let hook = move || {
            begins.store(true, Ordering::Relaxed);
            false
        };
        let watched = conn.commit_hook(Some(hook)).outcome();
        watched.map_err(|e| Error::new(ErrorKind::Store, "failed to watch commits").with_source(e))?;
        let page_bytes: u32 = conn
            .pragma_query_value(None, "page_size", |r| r.get(0))
            .map_err(|e| Error::new(ErrorKind::Store, "failed to read the size of a page").with_source(e))?;
        let page_bytes = page_bytes.max(1);
        let length = LogLength::watch(conn, path, page_bytes)
            .map_err(|e| Error::new(ErrorKind::Store, "failed to watch the write-ahead log").with_source(e))?;
        let syncs = durability == Durability::Power;
        let copier = beside.and_then(|conn| Copier::new(conn, length.counter()));
        let most_commits = most_commits(durability, page_bytes, copier.is_some());
        let longest = BYTES / page_bytes * if copier.is_some() { LONGER_BESIDE } else { 1 };
        let frame_bytes = FRAME_HEADER + u64::from(page_bytes);
        Ok(Log {
            length,
            copied: 0,
            frame_bytes,
            longest,
            most_commits,
            commits: 0,
            seen: 0,
            syncs,
            begins_anew: true,
            began,
            copier,
            copying: false,
        })
    }

    /// Becomes `true` when a commit starts to write, whether or not it succeeds.
    pub(crate) fn commits(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.began)
    }

    /// Length of the log.
    pub(crate) fn pages(&self) -> Pages {
        self.length.pages()
    }

    /// Place of a header in the log that is not of the last commit, unless that has begun the log
    /// anew; `None` if nothing was written since the last [count](Self::count).
    ///
    /// SQLite writes behind the frames that it knows of, so where the log was truncated meanwhile,
    /// there is a hole before the last commit, and the next open finds none of it.
    pub(crate) fn earlier_header(&self) -> Option<u64> {
        let pages = self.length.pages();
        let last = self.seen.checked_sub(1).filter(|_| pages > self.seen);
        (pages != self.seen).then(|| last.map_or(0, |last| LOG_HEADER + u64::from(last) * self.frame_bytes))
    }

    /// Whether the next commit neither syncs nor is followed by a copy of the log.
    pub(crate) fn commits_without_sync(&self) -> bool {
        !self.syncs && !self.begins_anew && !self.is_due()
    }

    fn is_long(&self) -> bool {
        self.commits >= self.most_commits || self.seen.saturating_sub(self.copied) >= self.longest
    }

    /// Whether the writer has to copy now: all of it, or the rest.
    fn is_due(&self) -> bool {
        match &self.copier {
            Some(copier) => self.copying && (copier.is_done() || self.seen.saturating_sub(self.copied) >= OVERLONG * self.longest),
            None => self.is_long(),
        }
    }

    /// Counts the last commit, if there was one since the last call.
    pub(crate) fn count(&mut self) {
        let pages = self.length.pages();
        if pages == self.seen {
            return;
        }
        if pages < self.seen {
            self.copied = 0;
        }
        self.seen = pages;
        self.commits += 1;
        self.begins_anew = false;
        if !self.copying && self.is_long() {
            self.copying = self.copier.as_mut().is_some_and(Copier::ask);
            if !self.copying {
                self.copier = None;
            }
        }
    }

    /// Waits until no copy of the log is under way: SQLite makes one at a time.
    pub(crate) fn settle(&self) {
        if let Some(copier) = &self.copier {
            copier.wait();
        }
    }

    /// Copies the log if it has become long, or what its copier has left of it.
    pub(crate) fn tidy(&mut self, conn: &Connection) {
        self.count();
        if !self.is_due() {
            return;
        }
        self.settle();
        self.copying = false;
        // A reader may keep part of the log from being copied. The next try is after as many
        // further commits.
        self.commits = 0;
        self.copied = self.seen;
        self.begins_anew = true;
        if let Err(error) = copier::copy(conn) {
            warn!(%error, "the write-ahead log could not be copied into the database");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::open;

    /// The length of the log in bytes after each of `commits` updates of a row to `bytes` bytes.
    fn lengths(commits: usize, bytes: usize, durability: Durability, beside: bool) -> Vec<u64> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let mut conn = open::writer(&path, Durability::Process, false).unwrap();
        let beside = beside.then(|| open::copier(&path, durability).unwrap());
        let mut log = Log::watch(&mut conn, &path, durability, beside).unwrap();
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
            let path = folder.path().join("a.db");
            let mut conn = open::writer(&path, Durability::Process, false).unwrap();
            let mut log = Log::watch(&mut conn, &path, durability, None).unwrap();
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
        let lengths = lengths(2000, 100, Durability::Power, false);
        // A new file begins with its tables.
        let (first, longest) = (lengths[0], *lengths.iter().max().unwrap());
        assert!(longest < first + 300 * 2072, "{first} {longest}");
    }

    #[test]
    fn the_log_of_large_commits_stays_at_four_megabytes() {
        let longest = *lengths(300, 60_000, Durability::Process, false).iter().max().unwrap();
        assert!((900 * 4120..1100 * 4120).contains(&longest), "{longest}");
    }

    /// Where SQLite is too old, no log is copied beside the commits.
    fn is_copied_beside() -> bool {
        rusqlite::version_number() >= copier::FIRST_SAFE
    }

    /// However fast the commits are, and although none of them waits for the copy.
    #[test]
    fn the_log_that_is_copied_beside_the_commits_stays_short() {
        if !is_copied_beside() {
            return;
        }
        for (commits, bytes, durability, limit) in
            [(6000, 100, Durability::Power, 1024 * 2072), (40_000, 100, Durability::Process, 0), (600, 60_000, Durability::Process, 0)]
        {
            let longest = *lengths(commits, bytes, durability, true).iter().max().unwrap();
            // Behind the limit is what is committed while the copy is made.
            let most = u64::from(OVERLONG * LONGER_BESIDE + 1) * 4_200_000;
            assert!(longest > limit && longest < most, "{durability:?} {longest}");
        }
    }

    #[test]
    fn what_is_committed_while_the_log_is_copied_is_there_at_the_next_open() {
        if !is_copied_beside() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let mut conn = open::writer(&path, Durability::Process, true).unwrap();
        let beside = open::copier(&path, Durability::Process).unwrap();
        let mut log = Log::watch(&mut conn, &path, Durability::Process, Some(beside)).unwrap();
        (log.longest, log.most_commits) = (20, 20);
        conn.execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, data INTEGER)").unwrap();
        let (mut anew, mut copied) = (0, 0);
        for n in 0..5000 {
            let before = log.pages();
            conn.execute("INSERT INTO t (data) VALUES (?1)", [n]).unwrap();
            log.count();
            copied += u32::from(log.copying && log.commits == 20);
            if !log.commits_without_sync() {
                log.tidy(&conn);
            }
            anew += u32::from(log.pages() < before);
        }
        assert!(copied > 10 && anew > 10, "{copied} {anew}");
        drop((log, conn));
        let conn = open::writer(&path, Durability::Process, false).unwrap();
        let all: (i64, i64) = conn.query_row("SELECT count(*), sum(data) FROM t", (), |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        assert_eq!(all, (5000, 4999 * 2500));
        let whole: String = conn.query_row("PRAGMA integrity_check", (), |row| row.get(0)).unwrap();
        assert_eq!(whole, "ok");
    }
}
