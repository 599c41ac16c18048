//! Transactions of the program in its own tables, in the database of the store.
//!
//! The program's closure runs in the task of its caller. Its connection is from a pool of its own,
//! so settings that it leaves in the session reach other transactions of the program at most, and
//! no statement of the store. [`seal`] is the last statement before the commit: it checks that the
//! transaction is still the one that was begun, checks the claim, and stores the record. From then
//! on the row of the claim is locked, so the claim stays in force until the commit.
//!
//! No commit is sent before the row of the claim is locked. So a statement that locks that row
//! waits for a commit whose answer was lost, or whose future was dropped. [`before`] does so ahead
//! of each run of the closure, and reads what is stored.
use std::fmt;
use std::future::poll_fn;
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use forever_store::{BoxFuture, Claim, Error, ErrorKind, OpRecord, Result, TransactionResult};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{BorrowToSql, ToSql, Type};
use tokio_postgres::{Portal, Row, RowStream, SimpleQueryMessage, Statement, ToStatement, Transaction};

use crate::call::{Failed, Kind, Retries, Shared, Work, before_commit, error_of, is_conflict, is_lost, unknown};
use crate::ops::at;
use crate::pool::{Connection, Pool, as_setting, typed};
use crate::sql::{Done, Fail, Tx, args, in_schema};
use crate::{claims, nested};

/// The database inside a transaction, as `FiberContext::postgres_transaction` and
/// `Forever::postgres_transaction` give it to their closures.
///
/// It dereferences to a [`tokio_postgres::Transaction`], which has all ways to run SQL; pass
/// `&**tx` where a [`GenericClient`](tokio_postgres::GenericClient) is asked for. The methods of
/// its own do the same as those of that name there. In addition they record a conflict with another
/// transaction, after which the closure runs again when it returns an error: SQL states 40001 and
/// 40P01, and the ends of waits by a time limit or a cancel, 55P03 and 57014. After a conflict that
/// another method meets, it does not.
///
/// The transaction is begun with the isolation level that is the default of the database.
/// `SET TRANSACTION ISOLATION LEVEL ..` as the first statement changes it. Savepoints are allowed.
/// A transaction that ends itself, by `COMMIT` or `ROLLBACK`, gets an error of kind
/// [`Setup`](ErrorKind::Setup), and what it committed by itself stays. `RESET ALL` counts as that
/// too. Settings are to be changed by `SET LOCAL`: those of the session stay for later
/// transactions. A transaction that is begun in the closure of another one gets that error at once.
///
/// Time limits for statements and locks are those of the server, the database and the role. Where
/// they have none, a statement waits for a lock until it is released.
///
/// All tables can be read. Never write to Forever's own: nothing checks that.
///
/// ```
/// use forever::BoxError;
/// use forever::ops::PostgresTx;
///
/// /// Called by the closure of a transaction: `async |tx| book(tx, "a-1").await`.
/// async fn book(tx: &PostgresTx<'_>, room: &str) -> Result<i64, BoxError> {
///     tx.execute("INSERT INTO bookings (room) VALUES ($1)", &[&room]).await?;
///     let row = tx.query_one("SELECT count(*) FROM bookings WHERE room = $1", &[&room]).await?;
///     Ok(row.get(0))
/// }
/// ```
pub struct PostgresTx<'a> {
    transaction: Transaction<'a>,
    /// Whether a statement met a conflict with another transaction.
    has_conflict: AtomicBool,
}

/// Methods that record a conflict.
macro_rules! recorded {
    ($($(#[$doc:meta])* $name:ident $([$($generics:tt)*])? ($($arg:ident: $of:ty),*) -> $gives:ty $(where [$($bounds:tt)*])?;)*) => {
        impl PostgresTx<'_> {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// When Postgres fails.
                pub async fn $name$(<$($generics)*>)?(&self, $($arg: $of),*) -> std::result::Result<$gives, tokio_postgres::Error>
                $(where $($bounds)*)?
                {
                    self.recorded(self.transaction.$name($($arg),*).await)
                }
            )*
        }
    };
}

recorded! {
    /// Prepares a statement.
    prepare(query: &str) -> Statement;
    /// Prepares a statement whose parameters have these types.
    prepare_typed(query: &str, parameter_types: &[Type]) -> Statement;
    /// Runs a query and returns its rows.
    query[T](statement: &T, params: &[&(dyn ToSql + Sync)]) -> Vec<Row> where [T: ?Sized + ToStatement];
    /// Runs a query that returns one row.
    query_one[T](statement: &T, params: &[&(dyn ToSql + Sync)]) -> Row where [T: ?Sized + ToStatement];
    /// Runs a query that returns one row or none.
    query_opt[T](statement: &T, params: &[&(dyn ToSql + Sync)]) -> Option<Row> where [T: ?Sized + ToStatement];
    /// Runs a query and returns its rows as a stream, whose own errors are not recorded.
    query_raw[T, P, I](statement: &T, params: I) -> RowStream
        where [T: ?Sized + ToStatement, P: BorrowToSql, I: IntoIterator<Item = P>, I::IntoIter: ExactSizeIterator];
    /// Runs a query whose parameters have these types, without preparing it.
    query_typed(query: &str, params: &[(&(dyn ToSql + Sync), Type)]) -> Vec<Row>;
    /// Runs a statement and returns how many rows it changed.
    execute[T](statement: &T, params: &[&(dyn ToSql + Sync)]) -> u64 where [T: ?Sized + ToStatement];
    /// Runs a statement whose parameters have these types, without preparing it, and returns how
    /// many rows it changed.
    execute_typed(query: &str, params: &[(&(dyn ToSql + Sync), Type)]) -> u64;
    /// Runs a statement with an iterator of parameters and returns how many rows it changed.
    execute_raw[T, P, I](statement: &T, params: I) -> u64
        where [T: ?Sized + ToStatement, P: BorrowToSql, I: IntoIterator<Item = P>, I::IntoIter: ExactSizeIterator];
    /// Returns more rows of a portal.
    query_portal(portal: &Portal, max_rows: i32) -> Vec<Row>;
    /// Runs statements without parameters, divided by semicolons, and returns their rows as text.
    simple_query(query: &str) -> Vec<SimpleQueryMessage>;
    /// Runs statements without parameters, divided by semicolons.
    batch_execute(query: &str) -> ();
}

impl PostgresTx<'_> {
    fn recorded<T>(&self, result: std::result::Result<T, tokio_postgres::Error>) -> std::result::Result<T, tokio_postgres::Error> {
        if result.as_ref().is_err_and(is_conflict) {
            self.has_conflict.store(true, Ordering::Relaxed);
        }
        result
    }
}

impl<'a> Deref for PostgresTx<'a> {
    type Target = Transaction<'a>;

    fn deref(&self) -> &Transaction<'a> {
        &self.transaction
    }
}

impl fmt::Debug for PostgresTx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresTx").finish_non_exhaustive()
    }
}

/// Async closure that works in a transaction, `async |tx| ..`, or function that takes a
/// [`PostgresTx`].
///
/// Implemented for all of them whose future is `Send`. The closure may run more than once, so it
/// borrows what it needs: one that is `async move`, or that changes what it has captured, is not
/// such a closure.
///
/// ```
/// use forever::BoxError;
/// use forever::ops::{PostgresTx, PostgresTxFn};
///
/// /// Repeats work of the program in a transaction, outside of fibers.
/// async fn write<W>(forever: &forever::Forever, work: W) -> Result<(), BoxError>
/// where
///     W: for<'t> PostgresTxFn<'t, (), BoxError>,
/// {
///     forever.postgres_transaction(work).await
/// }
/// ```
// The bound of a future as `Send` cannot be written with `AsyncFnMut` alone in stable Rust. That
// bound is here for the type of `tx`, which the compiler takes from it.
pub trait PostgresTxFn<'t, T, E>: AsyncFnMut(&'t PostgresTx<'t>) -> Result<T, E> + Send {
    /// Runs it once.
    #[doc(hidden)]
    fn run(&mut self, tx: &'t PostgresTx<'t>) -> impl Future<Output = Result<T, E>> + Send;
}

impl<'t, F, Fut, T, E> PostgresTxFn<'t, T, E> for F
where
    F: AsyncFnMut(&'t PostgresTx<'t>) -> Result<T, E> + FnMut(&'t PostgresTx<'t>) -> Fut + Send,
    Fut: Future<Output = Result<T, E>> + Send,
{
    fn run(&mut self, tx: &'t PostgresTx<'t>) -> impl Future<Output = Result<T, E>> + Send {
        self(tx)
    }
}

/// Code of the program in a transaction.
// For the runtime, which makes it of the program's closure.
#[doc(hidden)]
pub trait PostgresWork: Send {
    /// Runs it once; returns the text of its result, or `None` to roll back.
    fn run<'s>(&'s mut self, tx: &'s PostgresTx<'s>) -> BoxFuture<'s, Option<String>>;

    /// A future that is ready when the program begins to close, after which no run is repeated.
    fn closing(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

/// The value of `first`, unless `second` is ready before it.
async fn race<T>(first: impl Future<Output = T>, second: impl Future<Output = ()>) -> Option<T> {
    let (mut first, mut second) = (pin!(first), pin!(second));
    poll_fn(|cx| match first.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => second.as_mut().poll(cx).map(|()| None),
    })
    .await
}

/// Claim and record of a transaction in a fiber.
pub(crate) type OfFiber = (Claim, Option<OpRecord>);

/// What runs transactions of the program.
#[derive(Debug)]
pub(crate) struct Transactions {
    shared: Arc<Shared>,
    pool: Pool,
}

/// How an attempt has ended that was neither interrupted nor cut off.
enum Attempt {
    Ended(TransactionResult),
    /// A conflict, or a connection that was lost, made the closure fail. The result is for when it
    /// is not run again.
    Repeat(TransactionResult),
    /// The record was stored meanwhile.
    Stored,
}

const WHAT: &str = "carry out a transaction";

impl Transactions {
    pub(crate) fn new(shared: Arc<Shared>, pool: Pool) -> Self {
        Transactions { shared, pool }
    }

    pub(crate) fn close(&self) {
        self.pool.close();
    }

    /// What tells these transactions from those of other stores.
    fn id(&self) -> usize {
        std::ptr::from_ref(&self.pool).addr()
    }

    /// Runs a transaction, and repeats it while nothing of it can be stored.
    pub(crate) async fn run(&self, of: Option<&OfFiber>, work: &mut dyn PostgresWork, now_ms: i64) -> Result<TransactionResult> {
        if self.shared.is_closed() {
            return Err(Error::closed());
        }
        if nested::is_within(self.id()) {
            let why =
                "a transaction cannot be begun inside of another one's closure: run its statements in that one, or begin it afterwards";
            return Ok(TransactionResult::Refused(Error::new(ErrorKind::Setup, why)));
        }
        // The closure takes the time that it takes. The patience is for what comes after a failure.
        let (mut retries, mut in_doubt) = (None, false);
        loop {
            if let Some((claim, Some(record))) = of {
                match self.before(*claim, record).await {
                    Ok(Some(text)) => return Ok(TransactionResult::Before(text)),
                    Ok(None) => in_doubt = false,
                    Err(error) if in_doubt && !error.is_claim_lost() => return Err(unknown(WHAT).with_source(error)),
                    Err(error) => return Err(error),
                }
            }
            let (result, why) = match self.attempt(of, work, now_ms).await {
                Ok(Attempt::Ended(result)) => return Ok(result),
                Ok(Attempt::Repeat(result)) => (Ok(result), "the closure met a conflict, or its connection was lost".to_owned()),
                Ok(Attempt::Stored) => {
                    let text = "failed to carry out a transaction: its record is stored and cannot be read";
                    (Err(Error::new(ErrorKind::Store, text)), "its record was stored meanwhile".to_owned())
                }
                Err(Failed::Unknown(_)) if of.is_some_and(|(_, record)| record.is_some()) => {
                    in_doubt = true;
                    (Err(unknown(WHAT)), "the connection was lost at the commit".to_owned())
                }
                Err(failed) => {
                    let why = self.shared.retryable(WHAT, failed)?;
                    let text = why.to_string();
                    (Err(error_of(WHAT, why)), text)
                }
            };
            // What is repeated now would be left undone by a program that ends.
            let pause = race(retries.get_or_insert_with(Retries::begin).pause(&self.shared, WHAT, &why), work.closing());
            match pause.await.transpose()? {
                Some(true) => {}
                None if !in_doubt => return Err(Error::closed()),
                _ => return result,
            }
        }
    }

    /// The result of a transaction that is committed. Fails unless the claim is in force.
    async fn before(&self, claim: Claim, record: &OpRecord) -> Result<Option<String>> {
        let work: Work<(Claim, i64, String), Option<String>> = |tx, args| Box::pin(before(tx, args.0, args.1, &args.2));
        let args = (claim, at(record.number), record.id.clone());
        self.shared.carry_out("look for the record of a transaction", Kind::Read, &args, work).await
    }

    async fn attempt(&self, of: Option<&OfFiber>, work: &mut dyn PostgresWork, now_ms: i64) -> Result<Attempt, Failed> {
        let _permit = self.pool.permit().await.map_err(|closed| Failed::Final(closed.into()))?;
        let mut connection = self.in_time(self.pool.connection()).await?;
        let (attempt, is_as_before) = self.attempt_on(&mut connection, of, work, now_ms).await?;
        if is_as_before {
            self.pool.put(connection);
        }
        Ok(attempt)
    }

    /// Runs an attempt. Says as well whether the connection is as it was before.
    async fn attempt_on(
        &self,
        connection: &mut Connection,
        of: Option<&OfFiber>,
        work: &mut dyn PostgresWork,
        now_ms: i64,
    ) -> Result<(Attempt, bool), Failed> {
        let schema = Arc::clone(connection.schema());
        let mark = uuid::Uuid::new_v4().simple().to_string();
        let tx = self.in_time(begin(connection, self.shared.idle_limit, &mark)).await?;
        let text = nested::within(self.id(), work.run(&tx)).await;
        let ended = if tx.has_conflict.load(Ordering::Relaxed) { Attempt::Repeat } else { Attempt::Ended };
        let Some(text) = text else {
            return Ok(match self.in_time(is_same(&tx, &mark)).await {
                Ok(false) => (Attempt::Ended(ended_itself()), false),
                // The connection was lost, and so the closure failed.
                Err(Failed::Retryable(_)) => (Attempt::Repeat(TransactionResult::Back), false),
                // In a transaction that has failed, all statements do.
                Ok(true) | Err(_) => (ended(TransactionResult::Back), self.rolled_back(tx).await),
            });
        };
        match self.in_time(seal(&tx, &schema, of, &mark, &text, (now_ms, self.shared.lock_limit))).await {
            Ok(Sealed::Yes) => {}
            Ok(Sealed::EndedItself) => return Ok((Attempt::Ended(ended_itself()), false)),
            Ok(Sealed::ClaimLost(claim)) => {
                self.rolled_back(tx).await;
                return Err(Failed::Final(claims::lost(claim)));
            }
            Ok(Sealed::Stored) => return Ok((Attempt::Stored, self.rolled_back(tx).await)),
            Err(Failed::Final(Fail::Postgres(why))) if has_code(&why, &SqlState::IN_FAILED_SQL_TRANSACTION) => {
                return Ok((ended(taken_back(why)), self.rolled_back(tx).await));
            }
            // A transaction that was begun for writing is read-only because the program has made it
            // so.
            Err(Failed::Retryable(why)) if has_code(&why, &SqlState::READ_ONLY_SQL_TRANSACTION) => {
                let text = "a transaction was taken back: it made itself read-only, so its result cannot be stored";
                let refused = Error::new(ErrorKind::Setup, text).with_source(why);
                return Ok((Attempt::Ended(TransactionResult::Refused(refused)), self.rolled_back(tx).await));
            }
            Err(failed) => return Err(failed),
        }
        self.shared.begins(WHAT).await;
        match tokio::time::timeout(self.shared.limit, tx.transaction.commit()).await {
            Ok(Ok(())) => {
                self.shared.stored();
                Ok((Attempt::Ended(TransactionResult::Done), true))
            }
            Ok(Err(why)) if is_lost(&why) => Err(Failed::Unknown(Some(why))),
            Ok(Err(why)) if is_conflict(&why) => Err(Failed::Retryable(why)),
            // A deferred constraint, or a trigger.
            Ok(Err(why)) => Ok((Attempt::Ended(taken_back(why)), true)),
            Err(_) => Err(Failed::Unknown(None)),
        }
    }

    /// Rolls a transaction back; returns whether its connection can be used again.
    async fn rolled_back(&self, tx: PostgresTx<'_>) -> bool {
        self.in_time(tx.transaction.rollback()).await.is_ok()
    }

    /// Waits for a statement of this module.
    async fn in_time<T>(&self, statement: impl Future<Output = std::result::Result<T, tokio_postgres::Error>>) -> Result<T, Failed> {
        match tokio::time::timeout(self.shared.limit, statement).await {
            Ok(done) => done.map_err(|why| before_commit(why.into())),
            Err(_) => Err(Failed::Late),
        }
    }
}

/// Setting that is local to a transaction and has its random mark.
const MARK: &str = "forever.transaction";

async fn begin<'c>(
    connection: &'c mut Connection,
    idle_limit: Duration,
    mark: &str,
) -> std::result::Result<PostgresTx<'c>, tokio_postgres::Error> {
    let transaction = connection.begin().await?;
    // No query, so that the closure may still choose the isolation level.
    let limit = idle_limit.as_millis();
    transaction.batch_execute(&format!("SET LOCAL idle_in_transaction_session_timeout = {limit}; SET LOCAL {MARK} = '{mark}'")).await?;
    Ok(PostgresTx { transaction, has_conflict: AtomicBool::new(false) })
}

/// Whether the transaction is still the one that has this mark.
async fn is_same(tx: &PostgresTx<'_>, mark: &str) -> std::result::Result<bool, tokio_postgres::Error> {
    let sql = format!("SELECT coalesce(current_setting('{MARK}', TRUE) = $1, FALSE)");
    let rows = tx.transaction.query_typed(&sql, &[(&mark, Type::TEXT)]).await?;
    rows.first().map_or(Ok(false), |row| row.try_get(0))
}

/// Whether a transaction may be committed.
enum Sealed {
    /// It may; its record is stored with it.
    Yes,
    /// The program ended it, and what it does is in no transaction, or in another one.
    EndedItself,
    ClaimLost(Claim),
    /// Its record was stored meanwhile.
    Stored,
}

/// Checks whether a transaction may be committed, locks the row of its claim, and stores its record
/// with the result `text`. Where the program has no limit for locks, it waits for the row no longer
/// than `lock_limit`.
async fn seal(
    tx: &PostgresTx<'_>,
    schema: &str,
    of: Option<&OfFiber>,
    mark: &str,
    text: &str,
    (now_ms, lock_limit): (i64, Duration),
) -> std::result::Result<Sealed, tokio_postgres::Error> {
    let claim = of.map(|(claim, _)| *claim);
    let record = of.and_then(|(_, record)| record.as_ref());
    let layout = record.and_then(|record| record.layout.as_deref());
    let lock_limit = as_setting(lock_limit).to_string();
    let sql = format!(
        "WITH begun AS MATERIALIZED (
             SELECT coalesce(current_setting('{MARK}', TRUE) = $1, FALSE) AS same,
                    set_config('lock_timeout', coalesce(nullif(current_setting('lock_timeout'), '0'), $14), TRUE)),
         held AS MATERIALIZED (
             SELECT s.fiber FROM @snapshots s, begun
             WHERE begun.same AND s.fiber = $2 AND s.epoch = $3 AND s.worker IS NOT NULL FOR NO KEY UPDATE OF s),
         laid_out AS (
             INSERT INTO @layouts (hash, fiber, layout) SELECT $4, $5, $6 FROM held
             WHERE $4 IS NOT NULL AND NOT EXISTS (SELECT 1 FROM @layouts l WHERE l.hash = $4) ON CONFLICT DO NOTHING),
         stored AS (
             INSERT INTO @ops (fiber, number, id, kind, function, step, key, state, outcome, resolved, failed, started_ms, changed_ms, layout)
             SELECT fiber, $7, $8, 'transaction', $9, $10, $11, 'completed', $12, FALSE, 0, $13, $13, $4 FROM held
             WHERE $8 IS NOT NULL ON CONFLICT DO NOTHING RETURNING fiber),
         progress AS (UPDATE @snapshots s SET deaths = 0 FROM stored WHERE s.fiber = stored.fiber AND s.deaths > 0)
         SELECT same, EXISTS (SELECT FROM held) AS held, EXISTS (SELECT FROM stored) AS stored FROM begun"
    );
    let args = args![
        mark,
        claim.map(|claim| claim.fiber),
        claim.map(|claim| claim.epoch),
        layout.map(|layout| &layout.hash),
        layout.map(|layout| &layout.fiber),
        layout.map(|layout| &layout.layout),
        record.map(|record| at(record.number)),
        record.map(|record| &record.id),
        record.map(|record| &record.function),
        record.map(|record| &record.step),
        record.and_then(|record| record.key.as_ref()),
        text,
        now_ms,
        &lock_limit,
    ];
    let rows = tx.transaction.query_typed(&in_schema(&sql, schema), &typed(args)).await?;
    let Some(row) = rows.first() else { return Ok(Sealed::EndedItself) };
    let (same, held, stored): (bool, bool, bool) = (row.try_get("same")?, row.try_get("held")?, row.try_get("stored")?);
    Ok(match claim {
        _ if !same => Sealed::EndedItself,
        Some(claim) if !held => Sealed::ClaimLost(claim),
        Some(_) if record.is_some() && !stored => Sealed::Stored,
        _ => Sealed::Yes,
    })
}

/// The result of a transaction that is committed. Fails unless the claim is in force.
async fn before(tx: &Tx, claim: Claim, number: i64, id: &str) -> Done<Option<String>> {
    // Waits until a transaction has ended that was abandoned at its commit. What that has stored is
    // there for the next statement.
    claims::check_running(tx, claim).await?;
    let sql = "SELECT outcome FROM @ops WHERE fiber = $1 AND number = $2 AND id = $3 AND kind = 'transaction' AND state = 'completed'";
    tx.row(sql, args![claim.fiber, number, id]).await?.map_or(Ok(None), |row| row.text_opt("outcome"))
}

fn ended_itself() -> TransactionResult {
    let why = "in a transaction, `COMMIT`, `ROLLBACK` and `RESET ALL` are not allowed: it is no longer the one that was begun, and what it \
               has committed stays";
    TransactionResult::Refused(Error::new(ErrorKind::Setup, why))
}

fn taken_back(why: tokio_postgres::Error) -> TransactionResult {
    let text = "a transaction was taken back: one of its statements has failed, or it left a constraint violated";
    TransactionResult::Refused(Error::new(ErrorKind::Value, text).with_source(why))
}

fn has_code(why: &tokio_postgres::Error, code: &SqlState) -> bool {
    why.code() == Some(code)
}
