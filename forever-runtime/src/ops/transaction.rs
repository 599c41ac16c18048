//! Transactions in the program's own tables: `ctx.transaction(|tx| ..)`.
//!
//! A transaction of a `#[fiber]` function is committed together with a record of its result. The
//! next checkpoint deletes the record. When the code between two checkpoints runs again, because
//! the process died or the step is retried, it comes to the same transactions, finds their records
//! by step and name, and gets their results without running them.
use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::error::{Error, ErrorKind, Result};
use crate::frame::context::FiberContext;
use crate::frame::fiber::Value;
use crate::frame::run::Run;
use crate::frame::saved::{Saved, checked, unreadable};
use crate::future::BoxFuture;
use crate::guard::guarded;
use crate::ops::effect::key;
use crate::ops::ledger::Ledger;
use crate::ops::op::interrupt;
use crate::ops::tx_position::Name;
use crate::runtime::exit::Exit;
use crate::runtime::state::Runtime;
use crate::store::sqlite::user::TransactionFn;
use crate::store::{OpRecord, OpState, TransactionResult, Tx};

/// Builder of a transaction; made by [`FiberContext::transaction`]. `.await` runs it, or returns
/// its stored result.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::BoxError;
/// use forever::fiber::FiberContext;
///
/// // step!(book(ctx, rooms).await?)
/// async fn book(ctx: &FiberContext, rooms: Vec<String>) -> Result<(), BoxError> {
///     for room in rooms {
///         let of = room.clone();
///         let insert = ctx.transaction("book", move |tx| {
///             tx.execute("INSERT INTO bookings (room) VALUES (?1)", [&room])?;
///             Ok::<_, BoxError>(())
///         });
///         // Several of one name in a step: the key tells them apart.
///         insert.key(of).await?;
///     }
///     Ok(())
/// }
/// ```
#[must_use = "a transaction is carried out when this is awaited"]
pub struct TransactionCall<F, T, E> {
    run: Arc<Run>,
    /// The stored name of the fiber's function.
    function: Arc<str>,
    name: String,
    work: F,
    key: Option<Result<String, String>>,
    gives: PhantomData<fn() -> (T, E)>,
}

impl FiberContext {
    /// Reads and writes the program's own tables, in the database of the fiber, in one transaction.
    ///
    /// What the closure did is committed when it returns `Ok`, and rolled back when it returns
    /// `Err` or panics.
    ///
    /// In a `#[fiber]` function it takes effect **exactly once**: its result is stored in the same
    /// commit as the program's rows. When the process dies before the step's checkpoint, or an
    /// attempt of a step with `retry` fails later on, the step that runs again gets that result,
    /// and the closure does not run. The next checkpoint deletes the record of the result.
    ///
    /// ```
    /// # use forever_runtime as forever;
    /// use forever::BoxError;
    /// use forever::fiber::FiberContext;
    /// use forever::ops::Tx;
    ///
    /// // step!(book(ctx, &order).await?)
    /// async fn book(ctx: &FiberContext, order: &str) -> Result<i64, BoxError> {
    ///     let order = order.to_owned();
    ///     ctx.transaction("book", move |tx| insert(tx, &order)).await
    /// }
    ///
    /// fn insert(tx: &Tx<'_>, order: &str) -> Result<i64, BoxError> {
    ///     tx.execute("INSERT INTO bookings (id) VALUES (?1)", [order])?;
    ///     Ok(tx.last_insert_rowid())
    /// }
    /// # let _ = book;
    /// ```
    ///
    /// A transaction is identified by its step, or its branch of a `steps!`, and by its `name`
    /// there; one between two steps by its name. A change of the closure changes nothing about
    /// that. Where a step makes several of one name, each needs a [`key`](TransactionCall::key),
    /// so that the result of one is never taken for that of another.
    ///
    /// When a process died between a commit and the next checkpoint, and new code comes to a
    /// transaction of another name in that step, the fiber is parked, because that may or may not
    /// be the committed one. So give keys as well where the order may vary, as in a `join!` of
    /// futures that wait for something else first.
    ///
    /// The closure runs on the thread that writes the database, and all other writes wait for it.
    /// Slow work, and work outside the database, belongs before it. The closure may run more than
    /// once until one of its runs is committed; earlier runs are rolled back by then. [`Tx`] lists
    /// what it must not do. A future that is dropped may leave the transaction committed.
    ///
    /// On Postgres the method is `postgres_transaction`.
    ///
    /// A closure fiber does not run again, so each call is a new transaction there. Only one with a
    /// key has a record, until the fiber ends. [`Builder::migration`](crate::Builder::migration)
    /// creates the tables.
    ///
    /// # Errors
    /// The closure's, unchanged. Errors of SQLite, a full disk too, are returned to the closure,
    /// which has to pass them on. Those of the library, converted to an `E`: of kind
    /// [`Setup`](ErrorKind::Setup) when the closure did what it must not, the step has done a
    /// transaction of that name without a key, or there is no database (on a `testing::Stage`); of
    /// kind [`Value`](ErrorKind::Value) when the key or the result cannot be saved, or a deferred
    /// constraint is violated at the end. When the store fails, a `#[fiber]` function is
    /// interrupted, and a closure fiber gets the error, of kind [`Store`](ErrorKind::Store),
    /// [`Closed`](ErrorKind::Closed), or [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) where the
    /// next open may find the commit stored: with a [`key`](TransactionCall::key) it is safe to
    /// repeat.
    ///
    /// A `#[fiber]` function is parked when its code has changed so that the stored result has
    /// another type now.
    ///
    /// # Panics
    /// When the closure does.
    pub fn transaction<F, T, E>(&self, name: impl Into<String>, work: F) -> TransactionCall<F, T, E>
    where
        F: FnMut(&Tx<'_>) -> Result<T, E> + Send + 'static,
        T: Value,
        E: From<Error> + Send + 'static,
    {
        let (run, function) = (Arc::clone(&self.run), Arc::clone(&self.name));
        TransactionCall { run, function, name: name.into(), work, key: None, gives: PhantomData }
    }
}

impl<F, T, E> TransactionCall<F, T, E> {
    /// Sets the key, which tells transactions of one name apart: one with an equal name and key in
    /// the same step, or in the same branch of a `steps!`, is the same transaction.
    pub fn key(mut self, by: impl Serialize) -> Self {
        self.key = Some(key(&by));
        self
    }
}

impl<F, T, E> IntoFuture for TransactionCall<F, T, E>
where
    F: FnMut(&Tx<'_>) -> Result<T, E> + Send + 'static,
    T: Value,
    E: From<Error> + Send + 'static,
{
    type Output = Result<T, E>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let TransactionCall { run, function, name, work, key, gives: _ } = self;
        // Before the future is polled, while the current branch is known.
        let begun = begin(&run, &function, &name, key);
        let (work, came) = prepared(work, text_of);
        Box::pin(async move { carry_out(&run, begun?, |ledger, record| ledger.transact(record, work), &came).await })
    }
}

impl<F, T, E> fmt::Debug for TransactionCall<F, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionCall").field("name", &self.name).field("key", &self.key).finish_non_exhaustive()
    }
}

/// The mark of a transaction without a key. It is taken away if it is dropped before the
/// transaction is done.
pub(super) struct Met {
    run: Arc<Run>,
    name: Option<Name>,
}

impl Met {
    fn new(run: &Arc<Run>, name: &str) -> Result<Self> {
        if let Some(name) = run.tx_position.meets(name) {
            return Ok(Met { run: Arc::clone(run), name: Some(name) });
        }
        let why = format!("two transactions of one step are named `{name}`: give each a key, `.key(..)`, or another name");
        Err(Error::new(ErrorKind::Setup, why))
    }

    fn done(mut self) {
        self.name = None;
    }
}

impl Drop for Met {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            self.run.tx_position.may_meet_again(name);
        }
    }
}

pub(super) enum Begun {
    /// The record to store with the transaction, or none; and its mark if it has no key.
    Record(Option<Box<OpRecord>>, Option<Met>),
    /// A committed transaction may or may not be this one.
    Unclear(String),
}

pub(super) fn begin(run: &Arc<Run>, function: &str, name: &str, key: Option<Result<String, String>>) -> Result<Begun> {
    let key = key.transpose().map_err(|why| Error::new(ErrorKind::Value, format!("key of a transaction cannot be saved: {why}")))?;
    let wanted = key.is_some() || run.backend.resumes();
    if !wanted {
        return Ok(Begun::Record(None, None));
    }
    let met = match &key {
        Some(_) => None,
        None => Some(Met::new(run, name)?),
    };
    let record = run.ops.of_transaction(run.tx_position.place(function, name, key), run.checkpoints.load(Ordering::Relaxed));
    Ok(record.map_or_else(Begun::Unclear, |record| Begun::Record(Some(Box::new(record)), met)))
}

/// Carries out a transaction. The program's closure leaves its results in `came`.
pub(super) async fn carry_out<'r, T, E>(
    run: &'r Run,
    begun: Begun,
    transact: impl FnOnce(&'r dyn Ledger, Option<OpRecord>) -> BoxFuture<'r, Result<TransactionResult>> + Send,
    came: &Mutex<Option<Result<T, E>>>,
) -> Result<T, E>
where
    T: Value,
    E: From<Error> + Send + 'static,
{
    let (record, met) = match begun {
        Begun::Record(record, met) => (record, met),
        Begun::Unclear(why) => return run.halt(Exit::parked(run.secrets.text(why))).await,
    };
    let done = || met.map_or((), Met::done);
    if let Some(text) = record.as_ref().filter(|record| record.state == OpState::Completed).and_then(|record| record.outcome.as_deref()) {
        done();
        return read(run, text).await;
    }
    if let Some(record) = &record {
        // Before it is stored, because this future may be dropped meanwhile, and the checkpoint has
        // to delete the record.
        run.ops.remember(record);
    }
    let transacted = transact(run.backend.ledger(), record.as_deref().cloned()).await;
    match outcome(transacted, came) {
        Outcome::Value(value) => {
            run.backend.progressed();
            done();
            Ok(value)
        }
        Outcome::Before(text) => {
            done();
            read(run, &text).await
        }
        Outcome::Error(error) => {
            if let Some(record) = &record {
                run.ops.forget(&record.id);
            }
            Err(error)
        }
        Outcome::Failed(error) if run.backend.resumes() => interrupt(run, error).await,
        Outcome::Failed(error) => Err(error.into()),
    }
}

/// Reads the result of a transaction that an earlier run committed.
async fn read<T: Value, E: From<Error>>(run: &Run, text: &str) -> Result<T, E> {
    match guarded(|| T::restore(text, None).map(|(value, _)| value)) {
        Ok(value) => Ok(value),
        Err(why) => {
            let why = format!("the stored result of a transaction {}", unreadable::<T>(why));
            if run.backend.resumes() {
                run.halt(Exit::parked(run.secrets.text(why))).await
            } else {
                Err(Error::new(ErrorKind::Value, why).into())
            }
        }
    }
}

pub(super) fn text_of<T: Value>(value: &T) -> Result<String, String> {
    guarded(|| checked(value, value.save()))
}

/// Runs a transaction outside of any fiber.
pub(crate) async fn outside<F, T, E>(runtime: &Runtime, work: F) -> Result<T, E>
where
    F: FnMut(&Tx<'_>) -> Result<T, E> + Send + 'static,
    T: Send + 'static,
    E: From<Error> + Send + 'static,
{
    let (work, came) = prepared(work, |_| Ok(String::new()));
    let transacted = match runtime.database.sqlite("`Forever::transaction`") {
        Ok(sqlite) => sqlite.transact(None, work, runtime.now_ms()).await,
        Err(why) => Err(why),
    };
    without_record(transacted, &came)
}

/// Result of a transaction outside of any fiber.
pub(super) fn without_record<T, E: From<Error>>(transacted: Result<TransactionResult>, came: &Mutex<Option<Result<T, E>>>) -> Result<T, E> {
    match outcome(transacted, came) {
        Outcome::Value(value) => Ok(value),
        Outcome::Error(error) => Err(error),
        Outcome::Failed(error) => Err(error.into()),
        Outcome::Before(_) => unreachable!("without a record nothing is known of before"),
    }
}

/// Result of the last run of a closure.
pub(super) type Came<T, E> = Arc<Mutex<Option<Result<T, E>>>>;

/// Wraps a closure for the store, and returns it with the slot of its result.
fn prepared<F, T, E>(mut work: F, text: fn(&T) -> Result<String, String>) -> (TransactionFn, Came<T, E>)
where
    F: FnMut(&Tx<'_>) -> Result<T, E> + Send + 'static,
    T: Send + 'static,
    E: From<Error> + Send + 'static,
{
    let came = Came::default();
    let there = Arc::clone(&came);
    let work = move |tx: &Tx<'_>| {
        locked(&there).take();
        returned(work(tx), text, &there)
    };
    (Box::new(work), came)
}

/// Leaves what a run of a closure returned in `came`. Returns its text for the store, or `None` to
/// roll back.
pub(super) fn returned<T, E: From<Error>>(
    result: Result<T, E>,
    text: fn(&T) -> Result<String, String>,
    came: &Mutex<Option<Result<T, E>>>,
) -> Option<String> {
    let (result, text) = match result {
        Err(error) => (Err(error), None),
        Ok(value) => match text(&value) {
            Ok(text) => (Ok(value), Some(text)),
            Err(why) => {
                let why = format!("the result of a transaction cannot be saved: {why}");
                (Err(Error::new(ErrorKind::Value, why).into()), None)
            }
        },
    };
    *locked(came) = Some(result);
    text
}

/// Outcome of a transaction.
enum Outcome<T, E> {
    Value(T),
    /// An earlier run committed it, with this result.
    Before(String),
    /// It was rolled back.
    Error(E),
    /// The store failed.
    Failed(Error),
}

fn outcome<T, E: From<Error>>(transacted: Result<TransactionResult>, came: &Mutex<Option<Result<T, E>>>) -> Outcome<T, E> {
    match (transacted, locked(came).take()) {
        (Ok(TransactionResult::Before(text)), _) => Outcome::Before(text),
        (Ok(TransactionResult::Done), Some(Ok(value))) => Outcome::Value(value),
        (Ok(TransactionResult::Panicked(payload)), _) => resume_unwind(payload),
        (Ok(TransactionResult::Refused(why)), None | Some(Ok(_))) => Outcome::Error(why.into()),
        // The refusal names the forbidden statement; the closure's error is only a consequence of
        // it.
        (Ok(TransactionResult::Refused(why)), Some(Err(_))) if why.kind() == ErrorKind::Setup => Outcome::Error(why.into()),
        (_, Some(Err(error))) => Outcome::Error(error),
        (Err(error), _) => Outcome::Failed(error),
        (Ok(TransactionResult::Done | TransactionResult::Back), _) => {
            Outcome::Failed(Error::new(ErrorKind::Store, "failed to carry out a transaction: it was not run"))
        }
    }
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
