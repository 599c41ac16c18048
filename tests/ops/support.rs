//! A bank, fibers that have it charge, and databases that outlive their runtimes.
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use forever::ops::OpStatus;
use forever::{Builder, Durability, Forever, Retention};
use forever_testkit::database::{self, Database};
use forever_testkit::waiting;
use tokio::sync::watch;

/// The other side: takes charges, knows them by their ids, and answers questions about them. It outlives every process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bank(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    books: Mutex<Books>,
    calls: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Books {
    /// The charges that were made, by id.
    charges: Vec<(String, u64)>,
    /// What comes instead of an answer, once each.
    plans: Vec<Plan>,
    /// How often it was asked about a charge.
    asked: usize,
}

/// What a call of the bank comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// All is well.
    Answers,
    /// The request never arrives, and no answer comes.
    Lost,
    /// The charge is made, but the answer never comes.
    Silent,
    /// The charge is made, and the client hears that the connection is gone.
    Broken,
    /// It says no.
    Declined,
    /// It cannot be reached, and the client hears of it.
    Down,
}

impl Bank {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.books.lock().unwrap()
    }

    /// What the next calls come to.
    pub(crate) fn plan(&self, plans: impl IntoIterator<Item = Plan>) {
        let mut plans: Vec<_> = plans.into_iter().collect();
        plans.reverse();
        self.books().plans = plans;
    }

    /// A visit without a charge.
    pub(crate) fn knock(&self) {
        self.0.calls.send_modify(|n| *n += 1);
    }

    /// Charges, once for each id; gives the number of the receipt.
    pub(crate) async fn charge(&self, id: &str, cents: u64) -> anyhow::Result<u64> {
        let plan = self.books().plans.pop();
        if !matches!(plan, Some(Plan::Lost | Plan::Declined | Plan::Down)) {
            let mut books = self.books();
            if !books.charges.iter().any(|(there, _)| there == id) {
                books.charges.push((id.to_owned(), cents));
            }
        }
        self.0.calls.send_modify(|n| *n += 1);
        match plan {
            Some(Plan::Lost | Plan::Silent) => std::future::pending().await,
            Some(Plan::Broken) => anyhow::bail!("the connection broke"),
            Some(Plan::Declined) => anyhow::bail!("card declined"),
            Some(Plan::Down) => anyhow::bail!("no route to the bank"),
            None | Some(Plan::Answers) => Ok(self.receipt(id).unwrap()),
        }
    }

    /// How often it was asked about a charge.
    pub(crate) fn asked(&self) -> usize {
        self.books().asked
    }

    /// Answers a question: the receipt of a charge, if there is one.
    pub(crate) fn find(&self, id: &str) -> Option<u64> {
        self.books().asked += 1;
        self.receipt(id)
    }

    fn receipt(&self, id: &str) -> Option<u64> {
        let books = self.books();
        books.charges.iter().position(|(there, _)| there == id).map(|n| 1000 + n as u64)
    }

    pub(crate) fn charges(&self) -> Vec<(String, u64)> {
        self.books().charges.clone()
    }

    /// How often it was called.
    pub(crate) fn calls(&self) -> usize {
        *self.0.calls.borrow()
    }

    /// Ready when it was called so often.
    pub(crate) async fn called(&self, times: usize) {
        self.0.calls.subscribe().wait_for(|n| *n >= times).await.unwrap();
    }
}

/// What comes of `future`, which must not take long.
pub(crate) async fn soon<T>(future: impl IntoFuture<Output = T>) -> T {
    waiting::soon("an end", future).await
}

/// The number of writes of a runtime that opens.
pub(crate) fn opening() -> u64 {
    if database::is_in_postgres() { 3 } else { 2 }
}

/// A database file in a folder of its own.
pub(crate) struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Place { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("ops.db")
    }

    /// A runtime over the file, without fibers so far.
    pub(crate) fn builder(&self, bank: &Bank) -> Builder {
        Forever::builder().sqlite(self.path()).durability(Durability::Process).retention(Retention::forever()).resource(bank.clone())
    }

    /// A second pair of eyes on the database.
    pub(crate) fn database(&self) -> Database {
        Database::open(self.path())
    }

    /// The file itself, for what only SQLite has.
    pub(crate) fn sql(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.path()).unwrap()
    }

    pub(crate) fn text(&self, query: &str) -> String {
        self.database().text(query)
    }

    pub(crate) fn number(&self, query: &str) -> i64 {
        self.database().number(query)
    }
}

/// The ledger in words: step, state, and what came of it.
pub(crate) fn words(ops: &[OpStatus]) -> Vec<String> {
    let came =
        |op: &OpStatus| op.result.as_ref().map(ToString::to_string).or_else(|| op.error.clone()).map_or(String::new(), |c| format!(" {c}"));
    ops.iter().map(|op| format!("{} {}{}", op.step, op.state, came(op))).collect()
}

/// Operations of one millisecond have no order.
pub(crate) fn sorted(mut words: Vec<String>) -> Vec<String> {
    words.sort();
    words
}
