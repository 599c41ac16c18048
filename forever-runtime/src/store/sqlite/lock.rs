//! Who owns a database: an advisory lock of the operating system on `<database>.lock`, which holds the owner's process id.
//!
//! The kernel frees the lock when its owner dies, however it dies. The file itself stays: removing it would let two owners
//! hold locks on two files of one name. Somebody may remove it all the same; an owner to whom that has happened, and who finds that another
//! has written, does not write any more ([`Kept::is_ours`]).
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::worker::Kept;
use crate::error::{Error, ErrorKind, Result};

/// A held lock, freed on drop.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Takes the lock for the database at `path`.
    ///
    /// # Errors
    /// Kind `Busy` when somebody holds it, naming the process; kind `Store` when the lock file cannot be used.
    pub(crate) fn take(path: &Path) -> Result<Self> {
        let beside = lock_path(path);
        let failed = |e: std::io::Error| {
            Error::new(ErrorKind::Store, format!("failed to open database `{}`: cannot lock `{}`", path.display(), beside.display()))
                .because(e)
        };
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&beside).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(busy(path, &mut file)),
            Err(TryLockError::Error(e)) => return Err(failed(e)),
        }
        file.set_len(0).and_then(|()| write!(file, "{}", std::process::id())).map_err(failed)?;
        Ok(Lock { file, path: beside })
    }
}

/// Result of [`look`].
#[derive(Debug)]
pub(crate) enum Look {
    /// A live process owns the database, which may be this one.
    Owned,
    /// It is free, and stays so until this is dropped, if there is a lock file.
    Free(Option<File>),
}

impl Drop for Look {
    fn drop(&mut self) {
        if let Look::Free(Some(file)) = self {
            // As for the lock itself, closing the file would not do.
            let _ = file.unlock();
        }
    }
}

/// Looks whether the database at `path` has an owner, without taking it.
///
/// To read the file of a database that this process owns is no way to find out: closing it would drop the locks that SQLite has on it
/// (<https://sqlite.org/howtocorrupt.html>, section 2.2).
pub(super) fn look(path: &Path) -> Look {
    let file = OpenOptions::new().read(true).write(true).open(lock_path(path)).ok();
    match file.as_ref().map(File::try_lock) {
        Some(Err(TryLockError::WouldBlock)) => Look::Owned,
        _ => Look::Free(file),
    }
}

impl Kept for Lock {
    /// Whether the locked file is still the one at its path: if not, it was removed or replaced, and another process may own the database.
    fn is_ours(&self) -> bool {
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            let of = |found: std::io::Result<std::fs::Metadata>| found.map(|there| (there.dev(), there.ino())).ok();
            let ours = of(self.file.metadata());
            ours.is_some() && ours == of(std::fs::metadata(&self.path))
        }
        // Elsewhere an open file cannot be removed.
        #[cfg(not(unix))]
        self.path.exists()
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // So that nobody is told of an owner that has let go.
        let _ = self.file.set_len(0);
        // Closing the file would not do: a process that another thread is starting has its own copy of it for a moment.
        let _ = self.file.unlock();
    }
}

fn busy(path: &Path, file: &mut File) -> Error {
    let mut pid = String::new();
    let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_string(&mut pid));
    let owner = match read.ok().and_then(|_| pid.trim().parse::<u32>().ok()) {
        Some(pid) if pid == std::process::id() => format!("owned by this process ({pid})"),
        Some(pid) => format!("owned by process {pid}"),
        None => "owned by another process".to_owned(),
    };
    Error::new(ErrorKind::Busy, format!("failed to open database `{}`: {owner}", path.display()))
}

/// The file with the lock of a database.
pub(super) fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}
