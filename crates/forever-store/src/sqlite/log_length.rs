//! Length of the write-ahead log after each commit.
//!
//! SQLite reports it to a hook. Older versions of rusqlite have no hook that can tell connections
//! apart (see [`compat`]). With these, the length is read from the log.
use std::cell::RefCell;
use std::error::Error;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rusqlite::Connection;

use super::compat;
use super::lock::beside;
use crate::witness::Pages;

/// Length of the log of one connection that writes.
#[derive(Debug)]
pub(super) struct LogLength {
    /// Number of pages in the log since it restarted, at the last commit.
    pages: Arc<AtomicU32>,
    /// The log itself, if SQLite does not report its length.
    log: Option<RefCell<LogFile>>,
}

impl LogLength {
    /// Takes over from SQLite's own rule for copying the log of the database at `path`, a path
    /// without symbolic links.
    pub(super) fn watch(conn: &mut Connection, path: &Path, page_bytes: u32) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let pages = Arc::new(AtomicU32::new(0));
        let told = Arc::clone(&pages);
        if compat::wal_hook(conn, move |pages| told.store(u32::try_from(pages).unwrap_or(0), Ordering::Relaxed))? {
            return Ok(LogLength { pages, log: None });
        }
        conn.pragma_update(None, "wal_autocheckpoint", 0)?;
        Ok(LogLength { pages, log: Some(RefCell::new(LogFile::open(path, page_bytes)?)) })
    }

    /// The length.
    pub(super) fn pages(&self) -> Pages {
        if let Some(log) = &self.log {
            self.pages.store(log.borrow_mut().pages(), Ordering::Relaxed);
        }
        self.pages.load(Ordering::Relaxed)
    }

    /// The length at the last commit, or at the last call of [`pages`](Self::pages) after it.
    pub(super) fn counter(&self) -> &Arc<AtomicU32> {
        &self.pages
    }
}

/// Length of the log's own header.
pub(super) const LOG_HEADER: u64 = 32;

/// Length of a frame's header.
pub(super) const FRAME_HEADER: u64 = 24;

/// A write-ahead log in the format of <https://sqlite.org/fileformat2.html#the_write_ahead_log>.
///
/// SQLite takes no locks on this file, so a further descriptor of it may be closed at any time. One
/// of the database or of its `-shm` file may not: that would release the locks of this process.
#[derive(Debug)]
struct LogFile {
    file: File,
    frame_bytes: u64,
    /// Changes when the log restarts. Frames with another salt are left from before.
    salt: [u8; 8],
    /// Number of pages until the end of the last commit.
    pages: u32,
}

impl LogFile {
    /// Opens the log of a database that a connection has open: one file for as long as it lives.
    fn open(database: &Path, page_bytes: u32) -> io::Result<Self> {
        let file = File::open(beside(database, "-wal"))?;
        Ok(LogFile { file, frame_bytes: FRAME_HEADER + u64::from(page_bytes), salt: [0; 8], pages: 0 })
    }

    fn read<const N: usize>(&mut self, at: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.file.seek(SeekFrom::Start(at)).and_then(|_| self.file.read_exact(&mut bytes)).ok().map(|()| bytes)
    }

    /// Number of pages until the end of the last commit. Reads on from where the last call ended.
    fn pages(&mut self) -> u32 {
        // The log's header, with the salt at its byte 16.
        let Some([_, _, salt, _]) = self.read::<32>(0).map(eights) else { return self.pages };
        let mut at = if salt == self.salt { self.pages } else { 0 };
        while let Some([[_, _, _, _, size @ ..], of, _]) = self.read::<24>(LOG_HEADER + u64::from(at) * self.frame_bytes).map(eights)
            && of == salt
        {
            at += 1;
            // The size of the database, in the last frame of a commit only.
            if size != [0; 4] {
                (self.salt, self.pages) = (salt, at);
            }
        }
        self.pages
    }
}

/// Divides bytes into groups of eight.
fn eights<const N: usize, const M: usize>(bytes: [u8; N]) -> [[u8; 8]; M] {
    let mut groups = bytes.as_chunks().0.iter();
    std::array::from_fn(|_| groups.next().copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::{copier, open};

    fn pages(length: &LogLength, log: &mut LogFile) -> u32 {
        let pages = length.pages();
        assert_eq!(log.pages(), pages);
        pages
    }

    #[test]
    fn log_has_the_length_that_sqlite_reports() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let mut conn = open::writer(&path, open::Durability::Process, false).unwrap();
        let page_bytes = conn.pragma_query_value(None, "page_size", |r| r.get(0)).unwrap();
        let length = LogLength::watch(&mut conn, &path, page_bytes).unwrap();
        conn.execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, data TEXT)").unwrap();
        let mut log = LogFile::open(&path, page_bytes).unwrap();
        let (mut before, mut restarts) = (pages(&length, &mut log), 0);
        for n in 0..300_usize {
            conn.execute("INSERT INTO t (data) VALUES (?1)", ["x".repeat(n * 97 % 20_000)]).unwrap();
            let after = pages(&length, &mut log);
            restarts += u32::from(after < before);
            before = after;
            if n % 7 == 0 {
                copier::copy(&conn).unwrap();
            }
            if n % 11 == 0 {
                // So large that its pages are in the log before its end.
                conn.pragma_update(None, "cache_size", 10).unwrap();
                conn.execute_batch("BEGIN; INSERT INTO t (data) SELECT printf('%9000d', id) FROM t; ROLLBACK").unwrap();
                assert_eq!(log.pages(), after);
            }
        }
        assert!(restarts > 20, "{restarts}");
    }
}
