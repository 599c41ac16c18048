//! Runs operations: connection, transaction, commit, and retries.
//!
//! Each call runs in a task of its own, so that dropping the caller's future changes nothing. A
//! call is retried only while its commit was not sent: until then nothing of it is stored.
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use forever_store::{Asks, BoxFuture, CommitNotices, Error, ErrorKind, ReadySender, Result, SeenBy, UnreadSender, WorkerId};
use tokio::time::Instant;
use tokio_postgres::error::SqlState;

use crate::notify::Notices;
use crate::pool::{LOCKED, Pool, as_setting, backoff};
use crate::sql::{Done, Fail, Tx};

/// How a call uses the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Reads with one statement.
    Read,
    /// Reads with several statements that see one snapshot of the database.
    Snapshot,
    /// Writes with one statement, which is its own transaction.
    Single,
    /// Writes in a transaction.
    Write,
}

impl Kind {
    fn begin(self, idle_limit: Duration, lock_limit: Duration) -> Option<String> {
        let lock_limit = format!("SET LOCAL lock_timeout = {}", as_setting(lock_limit));
        match self {
            Kind::Read | Kind::Single => None,
            Kind::Snapshot => Some(format!("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {lock_limit}")),
            Kind::Write => {
                let limit = idle_limit.as_millis();
                Some(format!(
                    "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL idle_in_transaction_session_timeout = {limit}; {lock_limit}"
                ))
            }
        }
    }

    fn writes(self) -> bool {
        matches!(self, Kind::Single | Kind::Write)
    }
}

/// The work of a call, with its arguments. A retry runs it again with the same arguments.
pub(crate) type Work<A, T> = for<'a> fn(&'a Tx, &'a A) -> BoxFuture<'a, Done<T>>;

/// What all calls share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) pool: Pool,
    pub(crate) ready: Arc<OnceLock<ReadySender>>,
    pub(crate) unread: Arc<OnceLock<UnreadSender>>,
    /// Id of the worker that joined last; 0 before the first.
    pub(crate) worker: Arc<AtomicI64>,
    pub(crate) closed: Arc<AtomicBool>,
    /// Notifications to and from other workers.
    pub(crate) notices: Arc<Notices>,
    /// Time for which a call is retried.
    pub(crate) patience: Duration,
    /// Time that one attempt may take.
    pub(crate) limit: Duration,
    /// Time for which the server keeps a transaction whose client says nothing. A client that is
    /// cut off keeps its locks for that long, which others need to take over from it.
    pub(crate) idle_limit: Duration,
    /// Time for which a transaction waits for a lock. The server ends the wait, because a client
    /// that gives up leaves its statement waiting there, with its connection.
    pub(crate) lock_limit: Duration,
    /// Witness of the calls of the runtime, in tests.
    pub(crate) seen_by: SeenBy,
}

/// How an attempt failed.
#[derive(Debug)]
pub(crate) enum Failed {
    /// Nothing is stored, and a retry may succeed.
    Retryable(tokio_postgres::Error),
    /// Nothing is stored, and a retry would fail as well.
    Final(Fail),
    /// The outcome is unknown: the commit may have happened.
    Unknown(Option<tokio_postgres::Error>),
    /// The attempt took too long, and nothing is stored.
    Late,
}

/// The pauses between the attempts of a call.
#[derive(Debug)]
pub(crate) struct Retries {
    begun: Instant,
    attempt: u32,
}

impl Retries {
    pub(crate) fn begin() -> Self {
        Retries { begun: Instant::now(), attempt: 0 }
    }

    /// Waits before the next attempt. Returns `false` at once where the time for retries is over.
    pub(crate) async fn pause(&mut self, shared: &Shared, what: &str, why: &(impl Display + ?Sized)) -> Result<bool> {
        if shared.is_closed() {
            return Err(Error::closed());
        }
        let pause = backoff(self.attempt);
        if self.begun.elapsed() + pause > shared.patience {
            return Ok(false);
        }
        tracing::debug!(what, self.attempt, error = %why, "a call to Postgres is repeated");
        tokio::time::sleep(pause).await;
        self.attempt += 1;
        Ok(true)
    }
}

impl Shared {
    pub(crate) fn worker(&self) -> WorkerId {
        self.worker.load(Ordering::Relaxed)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Closes the store to all calls.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.pool.close();
    }

    /// Runs a call in a task of its own.
    pub(crate) async fn call<A, T>(self: &Arc<Self>, what: &'static str, kind: Kind, args: A, work: Work<A, T>) -> Result<T>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
    {
        if self.is_closed() {
            return Err(Error::closed());
        }
        let _asks = self.asks();
        let shared = Arc::clone(self);
        let task = tokio::spawn(async move { shared.carry_out(what, kind, &args, work).await });
        let done = task.await;
        self.hears().await;
        match done {
            Ok(done) => done,
            Err(stopped) => {
                let text = format!("failed to {what}: its task was stopped, and it may be stored");
                Err(Error::new(ErrorKind::OutcomeUnknown, text).with_source(stopped))
            }
        }
    }

    /// Says to the witness that a call has begun, and at the drop of this that it is over.
    pub(crate) fn asks(&self) -> Option<Asks<'_>> {
        self.seen_by.as_deref().map(Asks::new)
    }

    /// Waits until the witness lets a caller have its answer.
    pub(crate) async fn hears(&self) {
        if let Some(witness) = &self.seen_by {
            witness.hears().await;
        }
    }

    /// Waits until the witness lets a write be carried out.
    pub(crate) async fn begins(&self, what: &'static str) {
        if let Some(witness) = &self.seen_by
            && witness.begins(&[what]) == 0
        {
            std::future::pending::<()>().await;
        }
    }

    /// Says to the witness that a write is stored.
    pub(crate) fn stored(&self) {
        if let Some(witness) = &self.seen_by {
            witness.stored(0);
        }
    }

    /// Runs a call, and retries it while it fails with a retryable error.
    pub(crate) async fn carry_out<A, T>(&self, what: &'static str, kind: Kind, args: &A, work: Work<A, T>) -> Result<T>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
    {
        self.repeat(what, kind, args, work, false).await
    }

    /// As [`carry_out`](Self::carry_out), for the rows of many fibers. Where another program has locked
    /// one of them it fails soon, so that the others do not wait.
    pub(crate) async fn carry_out_batch<A, T>(&self, what: &'static str, kind: Kind, args: &A, work: Work<A, T>) -> Result<T>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
    {
        self.repeat(what, kind, args, work, true).await
    }

    async fn repeat<A, T>(&self, what: &'static str, kind: Kind, args: &A, work: Work<A, T>, is_batch: bool) -> Result<T>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
    {
        let mut retries = Retries::begin();
        let _permit = self.pool.permit().await?;
        let lock_limit = if is_batch { LOCKED.min(self.lock_limit) } else { self.lock_limit };
        loop {
            let why = match self.attempt(what, kind, lock_limit, args, work).await {
                Ok(done) => return Ok(done),
                Err(failed) => self.retryable(what, failed)?,
            };
            // Whose row is locked is found out by splitting the batch.
            if is_batch && is_timed_out(&why) || !retries.pause(self, what, &why).await? {
                return Err(error_of(what, why));
            }
        }
    }

    /// The cause of a failure after which a call may be repeated; the error of any other.
    pub(crate) fn retryable(&self, what: &str, failed: Failed) -> Result<tokio_postgres::Error> {
        match failed {
            Failed::Retryable(why) => Ok(why),
            Failed::Final(Fail::Refused(error)) => Err(error),
            Failed::Final(Fail::Postgres(why)) => Err(error_of(what, why)),
            Failed::Unknown(Some(why)) => Err(unknown(what).with_source(why)),
            Failed::Unknown(None) => Err(unknown(what)),
            Failed::Late => Err(Error::new(ErrorKind::Store, format!("failed to {what}: Postgres gave no answer for {:?}", self.limit))),
        }
    }

    async fn attempt<A, T>(&self, what: &'static str, kind: Kind, lock_limit: Duration, args: &A, work: Work<A, T>) -> Result<T, Failed> {
        let may_be_stored = AtomicBool::new(false);
        let attempt = self.attempt_untimed(what, kind, lock_limit, args, work, &may_be_stored);
        match tokio::time::timeout(self.limit, attempt).await {
            Ok(done) => done,
            // The timeout drops the connection with the attempt.
            Err(_) if may_be_stored.load(Ordering::Relaxed) => Err(Failed::Unknown(None)),
            Err(_) => Err(Failed::Late),
        }
    }

    async fn attempt_untimed<A, T>(
        &self,
        what: &'static str,
        kind: Kind,
        lock_limit: Duration,
        args: &A,
        work: Work<A, T>,
        may_be_stored: &AtomicBool,
    ) -> Result<T, Failed> {
        // A wrong URL, password or certificate stays wrong.
        let connection = self.pool.connection().await.map_err(|why| before_commit(why.into()))?;
        if kind.writes() {
            // On a session that a test can end.
            self.begins(what).await;
        }
        let tx = Tx::new(connection);
        let begin = kind.begin(self.idle_limit, lock_limit);
        if let Some(begin) = &begin {
            tx.batch(begin).await.map_err(before_commit)?;
        }
        may_be_stored.store(kind == Kind::Single, Ordering::Relaxed);
        let done = match work(&tx, args).await {
            Ok(done) => done,
            Err(Fail::Postgres(why)) if kind == Kind::Single && is_lost(&why) => return Err(Failed::Unknown(Some(why))),
            Err(why) => {
                // The transaction, or its connection, ends before the caller gets the error.
                if !matches!(&why, Fail::Postgres(why) if is_lost(why))
                    && (begin.is_none() || tx.batch("ROLLBACK").await.is_ok())
                    && !spoils_connection(&why)
                {
                    self.pool.put(tx.into_parts().0);
                }
                return Err(before_commit(why));
            }
        };
        if begin.is_some() {
            let end = if tx.is_undone() || !kind.writes() { "ROLLBACK" } else { "COMMIT" };
            may_be_stored.store(end == "COMMIT", Ordering::Relaxed);
            match tx.batch(end).await {
                Ok(()) => {}
                Err(Fail::Postgres(why)) if end == "COMMIT" && is_lost(&why) => return Err(Failed::Unknown(Some(why))),
                Err(why) => return Err(before_commit(why)),
            }
        }
        if kind.writes() {
            self.stored();
        }
        self.notices.raise(tx.notices());
        let (connection, notices) = tx.into_parts();
        self.pool.put(connection);
        self.tell(notices);
        Ok(done)
    }

    /// Hands ready fibers to the dispatcher, and reports unread messages.
    pub(crate) fn tell(&self, notices: CommitNotices) {
        if let Some(ready) = self.ready.get() {
            notices.ready.into_iter().for_each(|fiber| ready.send(fiber));
        }
        if let Some(unread) = self.unread.get() {
            notices.unread.into_iter().for_each(|left| unread.send(left));
        }
    }
}

/// Classifies a failure before the commit was sent: nothing is stored.
pub(crate) fn before_commit(why: Fail) -> Failed {
    match why {
        Fail::Postgres(why) if is_transient(&why) => Failed::Retryable(why),
        why => Failed::Final(why),
    }
}

/// Whether a connection is unusable after a failure that did not close it.
fn spoils_connection(why: &Fail) -> bool {
    match why {
        // The server became a standby, or the prepared statements are not this session's or do not
        // fit the tables any more.
        Fail::Postgres(why) => why.code().is_some_and(|code| *code == SqlState::READ_ONLY_SQL_TRANSACTION || is_of_statement(code)),
        Fail::Refused(_) => false,
    }
}

fn is_of_statement(code: &SqlState) -> bool {
    // Postgres reports "cached plan must not change result type" as an unsupported feature.
    [SqlState::INVALID_SQL_STATEMENT_NAME, SqlState::DUPLICATE_PSTATEMENT, SqlState::FEATURE_NOT_SUPPORTED].contains(code)
}

/// Whether a transaction failed by a conflict with another one, and may succeed the next time. A
/// wait that a time limit has ended is one, too.
pub(crate) fn is_conflict(why: &tokio_postgres::Error) -> bool {
    why.code().is_some_and(|code| [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED].contains(code))
        || is_timed_out(why)
}

/// Whether the connection was lost, so that it is unknown what the server did.
pub(crate) fn is_lost(why: &tokio_postgres::Error) -> bool {
    match why.as_db_error() {
        Some(error) => error.code().code().starts_with("08") || is_shutdown(error.code()),
        None => true,
    }
}

fn is_shutdown(code: &SqlState) -> bool {
    [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN, SqlState::CANNOT_CONNECT_NOW, SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT]
        .contains(code)
        // The session was idle for too long, or its transaction took too long.
        || ["57P05", "25P04"].contains(&code.code())
}

/// Whether a retry of the call may succeed.
fn is_transient(why: &tokio_postgres::Error) -> bool {
    let Some(code) = why.code() else {
        // Without an SQL state: the connection was closed or refused, or could not be made. An
        // argument that cannot be sent is none of these.
        return why.is_closed() || is_io(why);
    };
    is_lost(why)
        || is_of_statement(code)
        || is_conflict(why)
        || [SqlState::TOO_MANY_CONNECTIONS, SqlState::READ_ONLY_SQL_TRANSACTION].contains(code)
}

/// Whether a statement ended because it took or waited for too long, or was cancelled. Nothing of
/// it is stored.
fn is_timed_out(why: &tokio_postgres::Error) -> bool {
    why.code().is_some_and(|code| [SqlState::LOCK_NOT_AVAILABLE, SqlState::QUERY_CANCELED].contains(code))
}

fn is_io(why: &tokio_postgres::Error) -> bool {
    let mut source = std::error::Error::source(why);
    while let Some(cause) = source {
        if cause.is::<std::io::Error>() {
            return true;
        }
        source = cause.source();
    }
    // A connect that timed out has no source.
    why.to_string().contains("timeout") || why.to_string().contains("connect")
}

/// Whether an error of a statement is about one of its rows: what is in it, or that another program
/// has locked it. Then nothing is stored, and the other rows may be valid.
pub(crate) fn is_of_row(error: &Error) -> bool {
    let Some(why) = std::error::Error::source(error).and_then(|why| why.downcast_ref::<tokio_postgres::Error>()) else {
        return false;
    };
    // Class 53: the server has no disk, memory or connection left, for any row.
    let is_of_server = |code: &SqlState| code.code().starts_with("53");
    !error.is_outcome_unknown() && (is_timed_out(why) || why.code().is_some_and(|code| !is_of_server(code)) && !is_transient(why))
}

/// The error of a call whose commit may have happened.
pub(crate) fn unknown(what: &str) -> Error {
    let text = format!("failed to {what}: the connection was lost at the commit, which may have happened");
    Error::new(ErrorKind::OutcomeUnknown, text)
}

pub(crate) fn error_of(what: &str, why: tokio_postgres::Error) -> Error {
    let kind = match why.code() {
        // A key that is too long for an index stays too long.
        Some(code) if *code == SqlState::PROGRAM_LIMIT_EXCEEDED => ErrorKind::Value,
        _ => ErrorKind::Store,
    };
    Error::new(kind, format!("failed to {what}")).with_source(why)
}
