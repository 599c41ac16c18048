//! Ownership of a database by locks of the operating system, which the kernel frees however their
//! holder dies.
//!
//! There are two locks. One is on the database file itself, so it holds under every name of the
//! file. The other is on `<database>.lock` beside it, which contains the owner's process id. It is
//! the only one where a lock on the database would block SQLite's own. Within a process, a table
//! records the owner of each file.
//!
//! **Invariant:** no descriptor of a database is closed while SQLite may have the file open in this
//! process. Closing any of them would free all locks that SQLite holds on the file:
//! <https://sqlite.org/howtocorrupt.html>, section 2.2.
use std::collections::BTreeMap;
use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use tracing::{error, warn};

use super::file_guard::{Files, Kept};
use super::private;
use crate::error::{Error, ErrorKind, Result};

/// How many descriptors of databases without an owner stay open. The program may have connections
/// of its own to such a database.
const KEPT: usize = 64;

/// Identity of a file, whatever its name.
#[cfg(unix)]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct FileId(u64, u64);
/// The standard library gives no identity of a file here. An open file can be neither renamed nor
/// removed on these systems, so its path will do.
#[cfg(not(unix))]
type FileId = PathBuf;

#[cfg(unix)]
fn file_id(found: &Metadata, _: &Path) -> FileId {
    use std::os::unix::fs::MetadataExt;
    FileId(found.dev(), found.ino())
}

#[cfg(not(unix))]
fn file_id(_: &Metadata, path: &Path) -> FileId {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Number of names (hard links) of a file.
fn names(found: &Metadata) -> u64 {
    #[cfg(unix)]
    return std::os::unix::fs::MetadataExt::nlink(found);
    #[cfg(not(unix))]
    {
        let _ = found;
        1
    }
}

/// The databases that this process owns or has owned.
static OPEN: Mutex<Table> = Mutex::new(Table { files: BTreeMap::new(), freed: 0 });

struct Table {
    files: BTreeMap<FileId, Entry>,
    /// Number of owners that are gone.
    freed: u64,
}

struct Entry {
    file: Arc<File>,
    owner: Weak<Ownership>,
    /// Value of `Table::freed` when its last owner went.
    freed: u64,
    /// Descriptors that were opened although there was one already.
    spare: Vec<File>,
}

/// What an owner leaves for the next process or runtime that tries to open the file.
#[derive(Debug, Default)]
struct Ownership {
    /// Whether its runtime was closed.
    closed: AtomicBool,
}

fn table() -> MutexGuard<'static, Table> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Table {
    fn keep(&mut self, id: FileId, file: File) -> &mut Entry {
        match self.files.entry(id) {
            std::collections::btree_map::Entry::Vacant(free) => {
                free.insert(Entry { file: Arc::new(file), owner: Weak::new(), freed: 0, spare: Vec::new() })
            }
            std::collections::btree_map::Entry::Occupied(there) => {
                let entry = there.into_mut();
                entry.spare.push(file);
                entry
            }
        }
    }

    /// Closes the descriptors of deleted files, and the oldest ones where there are too many.
    fn tidy(&mut self) {
        let is_free = |entry: &Entry| entry.owner.strong_count() == 0;
        self.files.retain(|_, entry| !is_free(entry) || entry.file.metadata().is_ok_and(|found| names(&found) > 0));
        let mut free: Vec<_> = self.files.iter().filter(|(_, entry)| is_free(entry)).map(|(id, entry)| (entry.freed, id.clone())).collect();
        free.sort_unstable();
        for (_, id) in free.iter().rev().skip(KEPT) {
            self.files.remove(id);
        }
    }
}

/// A database file that this process has locked.
#[derive(Debug)]
pub(crate) struct DatabaseFile {
    /// The path that the user gave.
    given: PathBuf,
    path: PathBuf,
    id: FileId,
    file: Arc<File>,
    ownership: Arc<Ownership>,
    is_locked: bool,
}

impl DatabaseFile {
    /// Opens the file at `given`, creates it if it does not exist, and takes its lock. Its content
    /// is not checked.
    ///
    /// # Errors
    /// Kind `Busy` when a runtime has it; kind `Format` when it is a directory; kind `Store` when
    /// it cannot be used.
    pub(crate) fn open(given: &Path) -> Result<Self> {
        let refused = |kind, why: String| Error::new(kind, format!("failed to open database `{}`: {why}", given.display()));
        let unreadable = |e: io::Error| refused(ErrorKind::Store, "it cannot be read".into()).with_source(e);
        // The working directory may change later.
        let at = std::path::absolute(given).map_err(unreadable)?;
        let mut table = table();
        table.tidy();
        let (found, made) = match std::fs::metadata(&at) {
            Ok(found) => (found, None),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let made = make(given, &at)?;
                (made.metadata().map_err(unreadable)?, Some(made))
            }
            Err(e) => return Err(unreadable(e)),
        };
        if found.is_dir() {
            return Err(refused(ErrorKind::Format, "it is a directory".into()));
        }
        let id = file_id(&found, &at);
        if let Some(file) = made {
            table.keep(id.clone(), file);
        }
        let path = at.canonicalize().map_err(unreadable)?;
        if let Some(owner) = table.files.get(&id).and_then(|entry| entry.owner.upgrade()) {
            let why = if owner.closed.load(Ordering::Acquire) { ": a task of a runtime that was closed still runs" } else { "" };
            return Err(refused(ErrorKind::Busy, format!("owned by this process ({}){why}", std::process::id())));
        }
        if found.permissions().readonly() {
            return Err(refused(ErrorKind::Store, "it is read-only".into()));
        }
        if names(&found) > 1 {
            let why =
                "it has several names (hard links), and SQLite would keep a log beside each: remove all but one, whose `-wal` is kept";
            return Err(refused(ErrorKind::Store, why.into()));
        }
        let on_mount = OnMount::of(&path);
        if on_mount.by_itself {
            let why = "the file is mounted by itself, and SQLite's log beside it would not be: mount its folder";
            return Err(refused(ErrorKind::Store, why.into()));
        }
        if !table.files.contains_key(&id) {
            let file = OpenOptions::new().read(true).write(true).open(&path).map_err(unreadable)?;
            let opened = file_id(&file.metadata().map_err(unreadable)?, &path);
            table.keep(opened, file);
        }
        let Some(entry) = table.files.get_mut(&id) else {
            return Err(refused(ErrorKind::Store, "it was replaced while it was opened".into()));
        };
        let is_locked = on_mount.has_own_locks;
        match if is_locked { entry.file.try_lock() } else { Ok(()) } {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(refused(ErrorKind::Busy, owner(&lock_path(&path)))),
            Err(TryLockError::Error(e)) => return Err(refused(ErrorKind::Store, "it cannot be locked".into()).with_source(e)),
        }
        let ownership = Arc::new(Ownership::default());
        entry.owner = Arc::downgrade(&ownership);
        let taken = DatabaseFile { given: given.to_owned(), path, id, file: Arc::clone(&entry.file), ownership, is_locked };
        drop(table);
        // Once freed, it waits for the table.
        match std::fs::metadata(&taken.path) {
            Ok(found) if file_id(&found, &taken.path) == taken.id => Ok(taken),
            _ => Err(refused(ErrorKind::Store, "it was replaced while it was opened".into())),
        }
    }

    pub(crate) fn given(&self) -> &Path {
        &self.given
    }

    /// Its path, without symbolic links.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its first hundred bytes, or fewer if it is shorter.
    pub(crate) fn header(&self) -> io::Result<Vec<u8>> {
        let (mut file, mut header) = (&*self.file, Vec::new());
        file.seek(SeekFrom::Start(0))?;
        file.take(100).read_to_end(&mut header)?;
        Ok(header)
    }
}

impl Drop for DatabaseFile {
    fn drop(&mut self) {
        let mut table = table();
        if self.is_locked {
            // A process that another thread is spawning has a copy of the descriptor for a moment.
            let _ = self.file.unlock();
        }
        table.freed += 1;
        let freed = table.freed;
        if let Some(entry) = table.files.get_mut(&self.id)
            && entry.owner.ptr_eq(&Arc::downgrade(&self.ownership))
        {
            (entry.owner, entry.freed) = (Weak::new(), freed);
        }
    }
}

/// What the mount of a file says about it.
struct OnMount {
    /// The file itself is mounted, and not its folder.
    by_itself: bool,
    /// A lock on the file does not interfere with SQLite's own.
    has_own_locks: bool,
}

impl OnMount {
    #[cfg(target_os = "linux")]
    fn of(path: &Path) -> Self {
        let mount = super::mounts::Mount::of(path);
        let by_itself = mount.as_ref().is_some_and(|mount| mount.is_of_one_file(path));
        OnMount { by_itself, has_own_locks: mount.is_none_or(|mount| mount.has_own_locks()) }
    }

    /// BSD has one kind of lock, however it is taken, and Windows lets no other handle read a
    /// locked range.
    #[cfg(not(target_os = "linux"))]
    fn of(_: &Path) -> Self {
        OnMount { by_itself: false, has_own_locks: false }
    }
}

/// Creates an empty file; for a symbolic link that leads to no file, at its target.
fn make(given: &Path, at: &Path) -> Result<File> {
    let refused = |why: String| Error::new(ErrorKind::Store, format!("failed to open database `{}`: {why}", given.display()));
    if given.file_name().is_none() {
        return Err(refused("it is not the path of a file".into()));
    }
    let folder = at.parent().unwrap_or(at);
    folder.canonicalize().map_err(|e| refused(format!("the folder `{}` cannot be used", folder.display())).with_source(e))?;
    private::open(at).map_err(|e| refused("it cannot be made".into()).with_source(e))
}

/// Ownership of a database, released on drop.
#[derive(Debug)]
pub(crate) struct Lock {
    beside: Mutex<File>,
    watch: OnceLock<Watch>,
    lost: OnceLock<Arc<str>>,
    /// Released last.
    database: DatabaseFile,
}

impl Lock {
    /// Takes the lock beside a database.
    ///
    /// # Errors
    /// Kind `Busy` when another process holds it, naming that; kind `Store` when the lock file
    /// cannot be used.
    pub(crate) fn take(database: DatabaseFile) -> Result<Self> {
        let beside = lock_path(&database.path);
        let why = |why: &str| format!("failed to open database `{}`: {why}", database.given.display());
        let file = match lock_beside(&beside) {
            Ok(file) => file,
            Err(TryLockError::WouldBlock) => return Err(Error::new(ErrorKind::Busy, why(&owner(&beside)))),
            Err(TryLockError::Error(e)) => {
                return Err(Error::new(ErrorKind::Store, why(&format!("cannot lock `{}`", beside.display()))).with_source(e));
            }
        };
        Ok(Lock { beside: Mutex::new(file), watch: OnceLock::new(), lost: OnceLock::new(), database })
    }

    /// Path of the database, without symbolic links.
    pub(crate) fn path(&self) -> &Path {
        &self.database.path
    }

    /// Marks the runtime as closed: from now on only what is left of it has the lock.
    pub(crate) fn close(&self) {
        self.database.ownership.closed.store(true, Ordering::Release);
    }

    fn beside(&self) -> MutexGuard<'_, File> {
        self.beside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept for Lock {
    fn is_ours(&self) -> bool {
        let path = lock_path(self.path());
        let id = |found: io::Result<Metadata>| found.ok().map(|found| file_id(&found, &path));
        let ours = id(self.beside().metadata());
        ours.is_some() && ours == id(std::fs::metadata(&path))
    }

    fn look(&self) -> Files {
        self.watch.get().map_or(Files::Same, |watch| watch.look(self))
    }

    fn is_unmoved(&self) -> bool {
        self.watch.get().is_some_and(Watch::is_unmoved)
    }

    fn log_has_header(&self, at: u64) -> bool {
        self.watch.get().is_none_or(|watch| watch.log_has_header(at))
    }

    fn take_again(&self) -> bool {
        let path = lock_path(self.path());
        let Ok(file) = lock_beside(&path) else { return false };
        let _ = std::mem::replace(&mut *self.beside(), file).unlock();
        warn!(lock = %path.display(), "the lock file of a database that is in use was removed or replaced, and is put back");
        true
    }

    fn lost(&self) -> Option<Arc<str>> {
        self.lost.get().cloned()
    }

    fn lose(&self, why: String) -> Arc<str> {
        let first = self.lost.get().is_none();
        let lost = self.lost.get_or_init(|| format!("the database `{}` is lost to this runtime: {why}", self.path().display()).into());
        if first {
            error!(database = %self.path().display(), "{lost}; nothing is stored any more, close the runtime and open the database again");
        }
        Arc::clone(lost)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let beside = self.beside();
        // So that no error names an owner that has released the database.
        let _ = beside.set_len(0);
        // Closing the file would not be enough: a process that another thread is spawning has a
        // copy of the descriptor for a moment.
        let _ = beside.unlock();
    }
}

/// The files of a database that SQLite has open, and what is needed to check that they are still in
/// their places.
#[derive(Debug)]
struct Watch {
    log: PathBuf,
    log_id: FileId,
    /// A descriptor of the log, on which SQLite takes no locks.
    #[cfg(unix)]
    log_file: File,
    #[cfg(unix)]
    folder: File,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Modification time of the folder, if all files have been in their places since.
    folder: Option<[i64; 4]>,
    /// Number of checks in a row that looked at the folder alone.
    looks: u8,
}

impl Lock {
    /// Starts to watch the files of the database, which SQLite has open.
    ///
    /// # Errors
    /// When one of them is not in its place now.
    pub(crate) fn watch(&self) -> Result<()> {
        let unreadable =
            |e| Error::new(ErrorKind::Store, format!("failed to watch the files of `{}`", self.path().display())).with_source(e);
        let log = beside(self.path(), "-wal");
        let log_id = file_id(&std::fs::metadata(&log).map_err(unreadable)?, &log);
        let watch = Watch {
            #[cfg(unix)]
            log_file: File::open(&log).map_err(unreadable)?,
            log,
            log_id,
            #[cfg(unix)]
            folder: File::open(self.path().parent().unwrap_or(self.path())).map_err(unreadable)?,
            seen: Mutex::default(),
        };
        self.watch.get_or_init(|| watch);
        Ok(())
    }
}

impl Watch {
    /// The times of a folder change when a file in it is added, removed or renamed, so one system
    /// call is enough for most commits.
    #[cfg(unix)]
    fn look(&self, lock: &Lock) -> Files {
        use std::os::unix::fs::MetadataExt;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = self.folder_times();
        seen.looks = seen.looks.wrapping_add(1);
        // A parent folder may have been renamed, which this one does not show.
        if changed.is_some() && changed == seen.folder && !seen.looks.is_multiple_of(LOOKS) {
            return Files::Same;
        }
        seen.folder = None;
        let log = std::fs::metadata(&self.log);
        let files = self.look_at_all(lock, &log);
        // Within the resolution of the file system's clock, the folder may change again and keep
        // its times.
        if let (Files::Same, Ok(log), Some([modified, modified_ns, inode, inode_ns])) = (&files, &log, changed) {
            let folder = (modified, modified_ns).max((inode, inode_ns));
            if is_later_by_a_grain((log.mtime(), log.mtime_nsec()), folder) {
                seen.folder = changed;
            }
        }
        files
    }

    #[cfg(unix)]
    fn is_unmoved(&self) -> bool {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.folder.is_some() && !seen.looks.is_multiple_of(LOOKS) && self.folder_times() == seen.folder
    }

    /// Headers begin with a number that is not 0. What cannot be read may be there.
    #[cfg(unix)]
    fn log_has_header(&self, at: u64) -> bool {
        use std::os::unix::fs::FileExt;
        let mut first = [0; 4];
        match self.log_file.read_exact_at(&mut first, at) {
            Ok(()) => first != [0; 4],
            Err(why) => why.kind() != io::ErrorKind::UnexpectedEof,
        }
    }

    /// A file that is open cannot be truncated by another process.
    #[cfg(not(unix))]
    fn log_has_header(&self, _: u64) -> bool {
        true
    }

    /// Modification and status times of the folder.
    #[cfg(unix)]
    fn folder_times(&self) -> Option<[i64; 4]> {
        use std::os::unix::fs::MetadataExt;
        let folder = self.folder.metadata().ok()?;
        Some([folder.mtime(), folder.mtime_nsec(), folder.ctime(), folder.ctime_nsec()])
    }

    #[cfg(not(unix))]
    fn is_unmoved(&self) -> bool {
        false
    }

    /// An open file can be neither renamed nor removed.
    #[cfg(not(unix))]
    fn look(&self, lock: &Lock) -> Files {
        self.look_at_all(lock, &std::fs::metadata(&self.log))
    }

    fn look_at_all(&self, lock: &Lock, log: &io::Result<Metadata>) -> Files {
        let path = lock.path();
        match place_of(&std::fs::metadata(path), path, &lock.database.id) {
            Place::Same => {}
            Place::Empty => return Files::Gone("its file was removed or renamed".into()),
            Place::Another => return Files::Gone("its file was replaced".into()),
        }
        match place_of(log, &self.log, &self.log_id) {
            Place::Same => {}
            Place::Empty => return Files::NoLog("its write-ahead log (`-wal`) was removed or renamed".into()),
            Place::Another => return Files::Gone("its write-ahead log (`-wal`) was replaced".into()),
        }
        if lock.is_ours() { Files::Same } else { Files::NoLock }
    }
}

/// After so many checks of the folder alone, all files are checked.
#[cfg(unix)]
const LOOKS: u8 = 64;

/// Whether a change of the folder at the time of `log`, by the file system's clock, would show in
/// the times of the folder.
///
/// Times are seconds and nanoseconds. A file system whose times have digits below a millisecond
/// takes them from the kernel's clock, which ticks at least a hundred times a second. The coarsest,
/// FAT, counts in steps of two seconds.
#[cfg(unix)]
fn is_later_by_a_grain(log: (i64, i64), folder: (i64, i64)) -> bool {
    let is_fine = |(_, ns): (i64, i64)| ns % 1_000_000 != 0;
    let grain_ns = if is_fine(log) && is_fine(folder) { 20_000_000 } else { 2_000_000_000 };
    let ns = |(s, ns): (i64, i64)| i128::from(s) * 1_000_000_000 + i128::from(ns);
    ns(log) > ns(folder) + grain_ns
}

/// What is now at the path of a file.
enum Place {
    Same,
    Empty,
    Another,
}

fn place_of(found: &io::Result<Metadata>, path: &Path, id: &FileId) -> Place {
    match found {
        Ok(found) if file_id(found, path) == *id => Place::Same,
        Ok(_) => Place::Another,
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Place::Empty,
        // It may be there, but cannot be checked now.
        Err(_) => Place::Same,
    }
}

/// Opens the file beside a database, locks it, and writes the process id into it.
fn lock_beside(path: &Path) -> Result<File, TryLockError> {
    let mut file = private::open(path).map_err(TryLockError::Error)?;
    file.try_lock()?;
    file.set_len(0).and_then(|()| write!(file, "{}", std::process::id())).map_err(TryLockError::Error)?;
    Ok(file)
}

/// Owner of a database, as the end of a sentence.
fn owner(beside: &Path) -> String {
    match std::fs::read_to_string(beside).ok().and_then(|pid| pid.trim().parse::<u32>().ok()) {
        Some(pid) if pid == std::process::id() => format!("owned by this process ({pid})"),
        Some(pid) => format!("owned by process {pid}"),
        None => "owned by another process".to_owned(),
    }
}

/// Path of the lock file of a database.
pub(super) fn lock_path(path: &Path) -> PathBuf {
    beside(path, ".lock")
}

/// Path of a file with the name of the database and an ending.
pub(super) fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}
