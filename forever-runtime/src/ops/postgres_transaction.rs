//! Transactions in the program's own tables on Postgres:
//! `ctx.postgres_transaction("name", async |tx| ..)`.
//!
//! Position, record and outcome are those of [`transaction`](super::transaction). What differs is
//! the closure, which is async and runs in the task of its caller, so it may borrow.
use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use forever_postgres::{PostgresTx, PostgresTxFn, PostgresWork};
use serde::Serialize;

use crate::error::{Error, Result};
use crate::frame::context::FiberContext;
use crate::frame::fiber::Value;
use crate::frame::run::Run;
use crate::future::BoxFuture;
use crate::ops::effect::key;
use crate::ops::transaction::{Came, begin, carry_out, locked, returned, text_of, without_record};
use crate::runtime::link::Link;
use crate::runtime::state::Runtime;
use crate::store::TransactionResult;

/// Builder of a transaction on Postgres; made by [`FiberContext::postgres_transaction`]. `.await`
/// runs it, or returns its stored result.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::BoxError;
/// use forever::fiber::FiberContext;
///
/// // step!(book(ctx, &rooms).await?)
/// async fn book(ctx: &FiberContext, rooms: &[String]) -> Result<(), BoxError> {
///     for room in rooms {
///         // Several of one name in a step: the key tells them apart.
///         ctx.postgres_transaction("book", async |tx| {
///             tx.execute("INSERT INTO bookings (room) VALUES ($1)", &[room]).await?;
///             Ok::<_, BoxError>(())
///         })
///         .key(room)
///         .await?;
///     }
///     Ok(())
/// }
/// ```
#[must_use = "a transaction is carried out when this is awaited"]
pub struct PostgresTransactionCall<'a, F, T, E> {
    run: Arc<Run>,
    /// The stored name of the fiber's function.
    function: &'a str,
    name: String,
    work: F,
    key: Option<Result<String, String>>,
    gives: PhantomData<fn() -> (T, E)>,
}

impl FiberContext {
    /// Reads and writes the program's own tables, in the Postgres database of the fiber, in one
    /// transaction.
    ///
    /// What the closure did is committed when it returns `Ok`, and rolled back when it returns
    /// `Err` or panics, or when the future is dropped before the commit is under way.
    ///
    /// In a `#[fiber]` function it takes effect **exactly once**, as
    /// [`transaction`](Self::transaction) does on SQLite: its result is stored in the same commit as
    /// the program's rows, and the next checkpoint deletes it. The commit succeeds only while this
    /// worker has the claim of the fiber. A worker that has lost it commits nothing, and its
    /// activation stops.
    ///
    /// ```
    /// # use forever_runtime as forever;
    /// use forever::BoxError;
    /// use forever::fiber::FiberContext;
    ///
    /// // step!(book(ctx, &order, 4200).await?)
    /// async fn book(ctx: &FiberContext, order: &str, cents: i64) -> Result<i64, BoxError> {
    ///     ctx.postgres_transaction("book", async |tx| {
    ///         let insert = "INSERT INTO bookings (id, cents) VALUES ($1, $2) RETURNING n";
    ///         Ok(tx.query_one(insert, &[&order, &cents]).await?.get("n"))
    ///     })
    ///     .await
    /// }
    /// # let _ = book;
    /// ```
    ///
    /// A transaction is identified as on SQLite: by its step and `name`, and where a step makes
    /// several of one name, by a [`key`](PostgresTransactionCall::key) as well.
    ///
    /// The closure runs in the task of the fiber, on a connection of its own
    /// (`PostgresBuilder::transactions`). It may run more than once until one of its runs is
    /// committed; earlier runs are rolled back by then. It runs again after a conflict with another
    /// transaction, after a wait that a time limit of the server ended, and after a lost
    /// connection. It does so for as long as `PostgresBuilder::patience` says, and not while the
    /// runtime closes. It borrows what it needs: `async move`, or a change of what it has captured,
    /// does not compile. [`PostgresTx`] lists what it must not do. Where it waits for something
    /// else than the database, its locks are held meanwhile. The server ends the transaction when
    /// it hears nothing for the length of a lease, 30 seconds at most.
    ///
    /// A closure fiber does not run again, so each call is a new transaction there. Only one with a
    /// key has a record, until the fiber ends. The program creates its tables with its own tools:
    /// [`Builder::migration`](crate::Builder::migration) is for SQLite.
    ///
    /// # Errors
    /// The closure's, unchanged. Errors of Postgres are returned to the closure, which has to pass
    /// them on. Those of the library, converted to an `E`: of kind
    /// [`Setup`](crate::ErrorKind::Setup) when the closure ended the transaction, the step has
    /// done one of that name without a key, or the runtime was not opened with Postgres; of kind
    /// [`Value`](crate::ErrorKind::Value) when the key or the result cannot be saved, a deferred
    /// constraint is violated at the end, or the closure returned `Ok` although a statement had
    /// failed. When the store fails, a `#[fiber]` function is interrupted, and a closure fiber
    /// gets the error, of kind [`Store`](crate::ErrorKind::Store),
    /// [`Closed`](crate::ErrorKind::Closed), or
    /// [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown) where it may be committed: with a
    /// [`key`](PostgresTransactionCall::key) it is safe to repeat.
    ///
    /// A transaction in the closure of another one would wait for a connection under the one that
    /// this holds, so it is an error of kind [`Setup`](crate::ErrorKind::Setup) at once.
    ///
    /// A `#[fiber]` function is parked when its code has changed so that the stored result has
    /// another type now.
    ///
    /// # Panics
    /// When the closure does.
    #[cfg_attr(docsrs, doc(cfg(feature = "postgres")))]
    pub fn postgres_transaction<F, T, E>(&self, name: impl Into<String>, work: F) -> PostgresTransactionCall<'_, F, T, E>
    where
        F: for<'t> PostgresTxFn<'t, T, E>,
        T: Value,
        E: From<Error> + Send + 'static,
    {
        PostgresTransactionCall { run: Arc::clone(&self.run), function: &self.name, name: name.into(), work, key: None, gives: PhantomData }
    }
}

impl<F, T, E> PostgresTransactionCall<'_, F, T, E> {
    /// Sets the key, which tells transactions of one name apart: one with an equal name and key in
    /// the same step, or in the same branch of a `steps!`, is the same transaction.
    pub fn key(mut self, by: impl Serialize) -> Self {
        self.key = Some(key(&by));
        self
    }
}

impl<'a, F, T, E> IntoFuture for PostgresTransactionCall<'a, F, T, E>
where
    F: for<'t> PostgresTxFn<'t, T, E> + 'a,
    T: Value,
    E: From<Error> + Send + 'static,
{
    type Output = Result<T, E>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        let PostgresTransactionCall { run, function, name, work, key, gives: _ } = self;
        // Before the future is polled, while the current branch is known.
        let begun = begin(&run, function, &name, key);
        Box::pin(async move {
            let came = Came::default();
            let mut work = Prepared { work, text: text_of, came: Arc::clone(&came), runtime: run.backend.link() };
            carry_out(&run, begun?, |ledger, record| Box::pin(store_wins(ledger.transact_on_postgres(record, &mut work), &came)), &came)
                .await
        })
    }
}

impl<F, T, E> fmt::Debug for PostgresTransactionCall<'_, F, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresTransactionCall").field("name", &self.name).field("key", &self.key).finish_non_exhaustive()
    }
}

/// Runs a transaction outside of any fiber.
pub(crate) async fn outside<F, T, E>(runtime: &Arc<Runtime>, work: F) -> Result<T, E>
where
    F: for<'t> PostgresTxFn<'t, T, E>,
    T: Send + 'static,
    E: From<Error> + Send + 'static,
{
    let came = Came::default();
    let mut work = Prepared { work, text: |_| Ok(String::new()), came: Arc::clone(&came), runtime: runtime.into() };
    let transacted = match runtime.database.postgres("`Forever::postgres_transaction`") {
        Ok(postgres) => store_wins(postgres.transact(None, &mut work, runtime.now_ms()), &came).await,
        Err(why) => Err(why),
    };
    without_record(transacted, &came)
}

/// Drops the error of an earlier run of the closure where the store has failed after it.
async fn store_wins<T, E>(
    transact: impl Future<Output = Result<TransactionResult>>,
    came: &Mutex<Option<Result<T, E>>>,
) -> Result<TransactionResult> {
    let transacted = transact.await;
    if transacted.is_err() {
        locked(came).take();
    }
    transacted
}

/// A closure with the slot of its result.
struct Prepared<F, T, E> {
    work: F,
    text: fn(&T) -> Result<String, String>,
    came: Came<T, E>,
    runtime: Link<Runtime>,
}

impl<F, T, E> PostgresWork for Prepared<F, T, E>
where
    F: for<'t> PostgresTxFn<'t, T, E>,
    T: Send + 'static,
    E: From<Error> + Send + 'static,
{
    fn run<'s>(&'s mut self, tx: &'s PostgresTx<'s>) -> BoxFuture<'s, Option<String>> {
        Box::pin(async move {
            locked(&self.came).take();
            returned(self.work.run(tx).await, self.text, &self.came)
        })
    }

    fn closing(&self) -> BoxFuture<'static, ()> {
        let runtime = self.runtime.get();
        Box::pin(async move {
            match runtime {
                Ok(runtime) => runtime.closing().await,
                Err(why) if why.is_closed() => {}
                // A test of the frame, which has no runtime.
                Err(_) => std::future::pending().await,
            }
        })
    }
}
