//! Backup of a database that is in use: a copy of one moment, complete and synced before the call
//! returns.
//!
//! `VACUUM INTO` reads in a transaction of its own, and for a file on a connection of its own, so
//! commits do not wait for it. The copy is written beside its target and gets its name at the end.
//! An existing file is never replaced.
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, InterruptHandle};

use super::file_guard::Kept;
use super::job::Scope;
use super::open;
use super::private;
use super::store::Sqlite;
use crate::error::{Error, ErrorKind, Result};

impl Sqlite {
    /// Copies the database to a new file at `path`, as `Forever::backup` does.
    ///
    /// Until the copy is complete and on the disk, its file is `path` with `.{part}.part` behind
    /// it. So `part` has to be different for copies that are made at the same time.
    ///
    /// # Errors
    /// Of kind [`Store`](ErrorKind::Store) when there is a file at `path`, or it cannot be written;
    /// when the database cannot be read, or the store is closed.
    pub async fn back_up(&self, path: impl AsRef<Path>, part: &str) -> Result<()> {
        let made = Made::begin(path.as_ref(), part)?;
        let part = made.part.clone();
        // SQLite fills an empty file.
        private::open(&part).map_err(|e| failed(&made.path, "it cannot be made").with_source(e))?;
        if self.is_in_memory {
            // The one connection is the only way to a database in memory.
            self.writer.call("copy the database", Scope::Alone, move |conn| copy(conn, &part)).await?;
            return finished(made).await;
        }
        let lock = self.lock.upgrade().ok_or_else(Error::closed)?;
        if let Some(why) = lock.lost() {
            return Err(Error::new(ErrorKind::DatabaseLost, format!("failed to copy the database: {why}")));
        }
        let conn = open::reader(lock.path())?;
        // A caller that stops waiting interrupts the copy.
        let given_up = GivenUp(conn.get_interrupt_handle());
        let copied = tokio::task::spawn_blocking(move || {
            let copied = copy(&conn, &part);
            drop(conn);
            // The database is in use until here.
            drop(lock);
            copied.map(|()| made)
        });
        let made = match copied.await {
            Ok(copied) => copied.map_err(|e| Error::new(ErrorKind::Store, "failed to copy the database").with_source(e))?,
            Err(_) => return Err(Error::closed()),
        };
        drop(given_up);
        finished(made).await
    }
}

fn copy(conn: &Connection, part: &Path) -> rusqlite::Result<()> {
    let part = part.to_str().ok_or_else(|| rusqlite::Error::InvalidPath(part.to_owned()))?;
    conn.execute("VACUUM INTO ?1", [part]).map(drop)
}

async fn finished(made: Made) -> Result<()> {
    match tokio::task::spawn_blocking(move || made.finish()).await {
        Ok(finished) => finished,
        Err(_) => Err(Error::closed()),
    }
}

struct GivenUp(InterruptHandle);

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.interrupt();
    }
}

/// A copy under a temporary name, removed unless it is finished.
struct Made {
    path: PathBuf,
    part: PathBuf,
}

impl Made {
    fn begin(path: &Path, part: &str) -> Result<Self> {
        let path = std::path::absolute(path).map_err(|e| failed(path, "it is not the path of a file").with_source(e))?;
        if path.symlink_metadata().is_ok() {
            return Err(failed(&path, THERE));
        }
        let Some(name) = path.file_name() else { return Err(failed(&path, "it is not the path of a file")) };
        let mut name = name.to_owned();
        name.push(format!(".{part}.part"));
        let part = path.with_file_name(name);
        Ok(Made { path, part })
    }

    /// Renames the copy once all of it is on the disk.
    fn finish(self) -> Result<()> {
        let because = |why: &'static str| {
            let path = &self.path;
            move |e: io::Error| failed(path, why).with_source(e)
        };
        File::options().write(true).open(&self.part).and_then(|file| file.sync_all()).map_err(because("it cannot be synced"))?;
        match std::fs::hard_link(&self.part, &self.path) {
            Ok(()) => std::fs::remove_file(&self.part).map_err(because("its first name cannot be removed"))?,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Err(failed(&self.path, THERE)),
            // Some file systems have no links. There, a file that is created in this very moment is
            // replaced.
            Err(_) if self.path.symlink_metadata().is_ok() => return Err(failed(&self.path, THERE)),
            Err(_) => std::fs::rename(&self.part, &self.path).map_err(because("it cannot be given its name"))?,
        }
        open::sync_folder(&self.path).map_err(because("its folder cannot be synced"))
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // Gone already, once the copy has its name.
        let _ = std::fs::remove_file(&self.part);
        let mut journal = self.part.clone().into_os_string();
        journal.push("-journal");
        let _ = std::fs::remove_file(journal);
    }
}

const THERE: &str = "there is a file already";

fn failed(path: &Path, why: &str) -> Error {
    Error::new(ErrorKind::Store, format!("failed to copy the database to `{}`: {why}", path.display()))
}
