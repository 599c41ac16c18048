//! From one owner of a database to the next.
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, ErrorKind};
use crate::store::sqlite::job::Scope;
use crate::store::sqlite::lock::{DatabaseFile, Lock};
use crate::store::sqlite::log::Log;
use crate::store::sqlite::sync::{Handle, meet, thread};
use crate::store::sqlite::worker::{Held, Worker};
use crate::support::{Book, caller, in_any_order};

fn take(path: &Path) -> Result<Lock, Error> {
    DatabaseFile::open(path).and_then(Lock::take)
}

/// Opens as the store does: the lock is taken first, and goes with the thread.
fn open(book: &Book, path: &Path) -> Result<Worker, Error> {
    let lock = take(path)?;
    assert!(!book.is_open(), "two have the database open");
    let book = book.clone();
    let (worker, opened) = Worker::start("writer", None, move || {
        meet();
        Ok(Held { conn: book.connect(), log: Some(Log), kept: lock, answers_on: Some(Handle) })
    })?;
    shuttle::future::block_on(opened).unwrap_or_else(|_| Err(Error::closed()))?;
    Ok(worker.with_inline_jobs())
}

/// Tries again for as long as somebody owns it.
fn wait_for(book: &Book, path: &Path) -> Worker {
    loop {
        match open(book, path) {
            Err(error) if error.is_busy() => thread::yield_now(),
            opened => return opened.unwrap(),
        }
    }
}

fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("owned.db");
    (folder, path)
}

#[test]
fn a_second_owner_opens_when_the_first_has_closed_and_not_before() {
    in_any_order(|| {
        let (_folder, path) = place();
        let book = Book::default();
        let first = Arc::new(wait_for(&book, &path));
        let (of_caller, written) = (Arc::clone(&first), book.clone());
        let writes = caller(async move { written.write(&of_caller, 1, Scope::Many).await });
        let (second, at) = (book.clone(), path.clone());
        let next = thread::spawn(move || {
            let worker = wait_for(&second, &at);
            shuttle::future::block_on(second.write(&worker, 2, Scope::One)).unwrap();
            worker.stop();
        });
        first.stop();
        next.join().unwrap();
        let _ = writes.join().unwrap();
        assert!(!book.is_open());
    });
}

#[test]
fn of_three_who_open_together_one_at_a_time_owns_it() {
    in_any_order(|| {
        let (_folder, path) = place();
        let book = Book::default();
        let owners = [1, 2, 3].map(|n| {
            let (book, path) = (book.clone(), path.clone());
            thread::spawn(move || {
                let worker = wait_for(&book, &path);
                let told = shuttle::future::block_on(book.write(&worker, n, Scope::One));
                // Dropped, and not told to stop.
                drop(worker);
                told.unwrap();
            })
        });
        for owner in owners {
            owner.join().unwrap();
        }
        let mut committed = book.committed();
        committed.sort_unstable();
        assert_eq!(committed, [1, 2, 3]);
    });
}

#[test]
fn a_lock_is_free_when_opening_has_failed() {
    in_any_order(|| {
        let (_folder, path) = place();
        let lock = take(&path).unwrap();
        let failed = Worker::start("writer", None, move || {
            let _lock = lock;
            meet();
            Err::<Held<()>, _>(Error::new(ErrorKind::Format, "not ours"))
        });
        let (worker, opened) = failed.unwrap();
        assert!(shuttle::future::block_on(opened).unwrap().is_err());
        drop(worker);
        take(&path).unwrap();
    });
}
