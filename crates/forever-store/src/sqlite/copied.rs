//! A copy of a database file for inspection, also while a process owns the file.
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use crate::error::{Error, ErrorKind, Result};

/// A copy in a temporary folder, removed on drop.
#[derive(Debug)]
pub struct Copied {
    folder: PathBuf,
}

impl Copied {
    /// Copies one moment of the database at `path`.
    pub async fn of(path: &Path) -> Result<Self> {
        let from = path.to_owned();
        let folder = std::env::temp_dir().join(format!("forever-check-{}", uuid::Uuid::now_v7().simple()));
        let copied = tokio::task::spawn_blocking(move || {
            let failed = |why: &str| Error::new(ErrorKind::Store, format!("failed to check database `{}`: {why}", from.display()));
            if !from.is_file() {
                return Err(failed("there is no such file"));
            }
            super::private::folder(&folder).map_err(|e| failed("a folder for the copy cannot be made").with_source(e))?;
            let copied = Copied { folder };
            copy(&from, &copied.path()).map_err(|e| failed("it cannot be copied").with_source(e))?;
            Ok(copied)
        });
        copied.await.unwrap_or_else(|_| Err(Error::closed()))
    }

    /// Where the copy is.
    pub fn path(&self) -> PathBuf {
        self.folder.join("copy.db")
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn copy(from: &Path, to: &Path) -> rusqlite::Result<()> {
    let to = to.to_str().ok_or_else(|| rusqlite::Error::InvalidPath(to.to_owned()))?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(from, flags)?;
    conn.busy_timeout(super::pace::BUSY_TIMEOUT)?;
    conn.execute("VACUUM INTO ?1", [to]).map(drop)
}
