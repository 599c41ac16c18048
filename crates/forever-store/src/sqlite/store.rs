//! [`Sqlite`]: the connections with their threads, and how work gets to them.
use std::any::Any;
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use rusqlite::Connection;
use tokio::runtime::{Handle, RuntimeFlavor};

use super::conn::Conn;
use super::job::Scope;
use super::open::{self, Durability};
use super::recent_items::Lengths;
use super::sync::heard;
use super::worker::{Held, Opened, Worker};
use super::{lock, log, schema};
#[cfg(doc)]
use crate::FiberStore;
use crate::error::{Error, ErrorKind, Result};
use crate::witness::SeenBy;
use crate::{CommitNotices, ReadySender, UnreadSender};

/// Interval between attempts to open an owned database: it is free the moment its owner dies.
const LOCK_POLL: Duration = Duration::from_millis(5);

/// Store in an SQLite file, or in memory.
///
/// `Builder::sqlite` opens one by itself, and gives its runtime what only SQLite can do:
/// `FiberContext::transaction`, `Builder::migration` and `Forever::backup`. This type is for stores
/// that wrap it, which are given to `Builder::store`.
///
/// One thread writes, with one commit for all operations that are queued together. A file has a
/// second thread that reads. The file is owned, by a lock of the operating system, until the store
/// is [closed](FiberStore::close), [abandoned](FiberStore::abandon) or dropped. So a store has one
/// worker at a time: [`join`](FiberStore::join) and [`take_over`](FiberStore::take_over) count
/// every other one as gone.
///
/// ```
/// # mod forever { pub use forever_store as store; pub use forever_store::Result; }
/// use forever::store::{AdminStore, Sqlite};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// // `Builder::store` gives it to a runtime. A test can look at what is stored.
/// let store = Sqlite::in_memory().await?;
/// assert!(store.counts(Vec::new()).await?.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Sqlite {
    /// Stopped first, so that the writer's connection is the last and tidies up the log.
    pub(super) reader: Option<Worker>,
    pub(super) writer: Worker,
    /// Notified of the fibers that a commit has made ready.
    pub(super) ready: OnceLock<ReadySender>,
    pub(super) unread: OnceLock<UnreadSender>,
    /// Held by both threads, and by tasks that run.
    pub(super) lock: Weak<lock::Lock>,
    pub(super) is_in_memory: bool,
    pub(super) ownership: Ownership,
    /// Lengths of the histories in snapshot rows.
    pub(super) lengths: Lengths,
}

/// Ownership of a database, as the tasks of the runtime that has it open see it.
#[derive(Debug, Clone)]
pub struct Ownership(Weak<dyn Any + Send + Sync>);

impl Ownership {
    /// Ownership of a database that is freed when `lock` is dropped.
    pub(super) fn of<T: Any + Send + Sync>(lock: &Arc<T>) -> Self {
        let lock: Arc<dyn Any + Send + Sync> = Arc::<T>::clone(lock);
        Ownership(Arc::downgrade(&lock))
    }

    /// Keeps the database owned until the result is dropped; `None` if another process may own it
    /// by now.
    pub fn hold(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.0.upgrade()
    }
}

/// The version of the schema that this code reads and writes, for a tool that must not raise that
/// of a file.
#[doc(hidden)]
pub fn schema_version() -> i32 {
    schema::version()
}

impl Sqlite {
    /// Opens the file at `path`, and makes it if it does not exist.
    ///
    /// Where another process owns the file, waits up to `wait` for it; zero fails at once.
    ///
    /// ```
    /// # mod forever { pub use forever_store as store; pub use forever_store::Result; }
    /// use std::time::Duration;
    ///
    /// use forever::store::{Durability, Sqlite};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> forever::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("fibers.db");
    /// let store = Sqlite::open(path, Durability::Power, Duration::ZERO).await?;
    /// # drop(store);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Of kind [`Busy`](crate::ErrorKind::Busy) when another process owns the file; of kind
    /// [`Format`](crate::ErrorKind::Format) when it is not a database of this library, or of a
    /// newer version; of kind [`Store`](crate::ErrorKind::Store) when it cannot be used.
    pub async fn open(path: impl AsRef<Path>, durability: Durability, wait: Duration) -> Result<Self> {
        Sqlite::open_seen(path.as_ref(), durability, wait, None).await
    }

    /// Opens a database in memory, which lives as long as the store.
    ///
    /// # Errors
    /// Of kind [`Store`](crate::ErrorKind::Store) when SQLite fails.
    pub async fn in_memory() -> Result<Self> {
        Sqlite::in_memory_seen(None, None).await
    }

    /// Opens the file at `path`, with a witness of its commits.
    #[doc(hidden)]
    pub async fn open_seen(path: &Path, durability: Durability, wait: Duration, seen_by: SeenBy) -> Result<Self> {
        let (lock, checked) = take_lock(path, wait).await?;
        let lock = Arc::new(lock);
        let (of_writer, of_reader) = (Arc::clone(&lock), Arc::clone(&lock));
        let (ownership, of_store) = (Ownership::of(&lock), Arc::downgrade(&lock));
        let (witness, seen) = (seen_by.clone(), seen_by.is_some());
        // While a commit syncs, callers gather, and to answer them would delay the next sync.
        // Without syncs it makes no difference.
        let answers_on = if durability == Durability::Power { threads_of_runtime() } else { None };
        let (ready, writer_is_ready) = std::sync::mpsc::channel();
        let writer = Worker::start("forever-writer", seen_by, move || {
            let mut conn = open::writer(lock.path(), durability, seen)?;
            drop(checked);
            let _ = ready.send(());
            // A witness needs the log copied at the same commits each time.
            let beside = if seen { None } else { Some(open::copier(lock.path(), durability)?) };
            let log = Some(log::Log::watch(&mut conn, lock.path(), durability, beside)?);
            lock.watch()?;
            Ok(Held { log, conn: read_with_histories(conn)?, kept: of_writer, answers_on })
        })?;
        let reader = Worker::start("forever-reader", witness, move || {
            // Its error is that of the writer.
            writer_is_ready.recv().map_err(|_| Error::closed())?;
            Ok(Held { conn: Conn::of_reader(open::reader(of_reader.path())?), log: None, kept: of_reader, answers_on: None })
        })?;
        let writer = opened(writer).await?;
        let writer = if durability == Durability::Process { writer.with_inline_jobs() } else { writer };
        let reader = Some(opened(reader).await?);
        Ok(Sqlite {
            reader,
            writer,
            ready: OnceLock::new(),
            unread: OnceLock::new(),
            lock: of_store,
            is_in_memory: false,
            ownership,
            lengths: Lengths::default(),
        })
    }

    /// Opens a database in memory. One with a name lives as long as any connection to it.
    #[doc(hidden)]
    pub async fn in_memory_seen(name: Option<String>, seen_by: SeenBy) -> Result<Self> {
        let kept = Arc::new(());
        let ownership = Ownership::of(&kept);
        let open = move || Ok(Held { conn: read_with_histories(open::in_memory(name.as_deref())?)?, log: None, kept, answers_on: None });
        let writer = Worker::start("forever-writer", seen_by, open)?;
        let writer = opened(writer).await?;
        Ok(Sqlite {
            reader: None,
            writer,
            ready: OnceLock::new(),
            unread: OnceLock::new(),
            lock: Weak::new(),
            is_in_memory: true,
            ownership,
            lengths: Lengths::default(),
        })
    }

    /// Opens the database in memory with this name, for the callers of one thread: a call has been
    /// carried out when its future is first polled.
    #[doc(hidden)]
    pub async fn in_memory_on_callers_thread(name: String) -> Result<Self> {
        let store = Sqlite::in_memory_seen(Some(name), None).await?;
        Ok(Sqlite { writer: store.writer.with_all_jobs_inline(), ..store })
    }

    pub(super) fn read<T, F>(&self, what: &'static str, work: F) -> impl Future<Output = Result<T>> + Send + use<'_, T, F>
    where
        T: Send + 'static,
        F: FnMut(&Conn) -> rusqlite::Result<T> + Send + 'static,
    {
        self.reader.as_ref().unwrap_or(&self.writer).call(what, Scope::Read, work)
    }

    pub(super) fn write<T, F>(&self, what: &'static str, scope: Scope, work: F) -> impl Future<Output = Result<T>> + Send + use<'_, T, F>
    where
        T: Send + 'static,
        F: FnMut(&Conn) -> rusqlite::Result<T> + Send + 'static,
    {
        self.writer.call(what, scope, work)
    }

    /// A write that an activation waits for, of rows of its own.
    pub(super) fn write_short<T, F>(
        &self,
        what: &'static str,
        scope: Scope,
        work: F,
    ) -> impl Future<Output = Result<T>> + Send + use<'_, T, F>
    where
        T: Send + 'static,
        F: FnMut(&Conn) -> rusqlite::Result<T> + Send + 'static,
    {
        self.writer.call_short(what, scope, work)
    }

    /// A write that may make fibers ready, or end them. The notices are sent on the writer's
    /// thread, after the commit and before the answer, so they are sent even if the caller is gone.
    pub(super) fn write_ready<T, F>(&self, what: &'static str, mut work: F) -> impl Future<Output = Result<T>> + Send + use<'_, T, F>
    where
        T: Send + 'static,
        F: FnMut(&Conn, &mut CommitNotices) -> rusqlite::Result<T> + Send + 'static,
    {
        let (ready, unread) = (self.ready.get().cloned(), self.unread.get().cloned());
        let tell = move |(out, notices): (T, CommitNotices)| {
            if let Some(ready) = ready {
                notices.ready.into_iter().for_each(|fiber| ready.send(fiber));
            }
            if let Some(unread) = unread {
                notices.unread.into_iter().for_each(|left| unread.send(left));
            }
            out
        };
        let work = move |c: &Conn| {
            let mut notices = CommitNotices::default();
            work(c, &mut notices).map(|out| (out, notices))
        };
        self.writer.call_then(what, Scope::Many, work, tell)
    }

    /// The ownership of the database, to be held by tasks while they run.
    #[doc(hidden)]
    pub fn ownership(&self) -> Ownership {
        self.ownership.clone()
    }

    /// Sets how many pages the database may have, to test a full disk.
    #[doc(hidden)]
    pub async fn limit_pages(&self, pages: u32) -> Result<()> {
        self.write("limit the size of the database", Scope::Read, move |c| c.pragma_update(None, "max_page_count", pages)).await
    }

    /// Marks the lock: from now on only what is left of the closed runtime holds it.
    pub(super) fn closes(&self) {
        if let Some(lock) = self.lock.upgrade() {
            lock.close();
        }
    }

    pub(super) fn stop(&self) {
        self.closes();
        if let Some(reader) = &self.reader {
            reader.stop();
        }
        self.writer.stop();
    }
}

/// The runtime of the caller, if it has threads that run by themselves. One without makes progress
/// only while it is polled, and a caller of another runtime would wait for that.
fn threads_of_runtime() -> Option<Handle> {
    Handle::try_current().ok().filter(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
}

/// A connection that writes, with the histories that it has in memory.
fn read_with_histories(conn: Connection) -> Result<Conn> {
    Conn::of_writer(conn).map_err(|why| Error::new(ErrorKind::Store, "failed to read the newest items of histories").with_source(why))
}

pub(super) async fn opened((worker, opened): (Worker, Opened)) -> Result<Worker> {
    heard(opened).await.unwrap_or_else(|_| Err(Error::closed()))?;
    Ok(worker)
}

/// Takes the lock of a file that is one of ours, with what [`open::check`] gives.
async fn take_lock(path: &Path, wait: Duration) -> Result<(lock::Lock, Option<Connection>)> {
    let take = || {
        let file = lock::DatabaseFile::open(path)?;
        let checked = open::check(&file)?;
        Ok((lock::Lock::take(file)?, checked))
    };
    let first = take();
    if wait.is_zero() || !first.as_ref().is_err_and(Error::is_busy) {
        return first;
    }
    let again = async {
        loop {
            tokio::time::sleep(LOCK_POLL).await;
            match take() {
                Err(e) if e.is_busy() => {}
                other => return other,
            }
        }
    };
    match tokio::time::timeout(wait, again).await {
        Ok(taken) => taken,
        Err(_) => take(),
    }
}
