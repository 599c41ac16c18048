//! A unit of work for the thread of a [`worker`](super::worker), and its answer.
use std::sync::Arc;

use super::conn::Conn;
use super::sync::oneshot;
use crate::error::{Error, ErrorKind, Result};

/// What a job changes, which decides the transaction that it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Nothing.
    Read,
    /// Nothing, and no transaction may be open around it.
    Alone,
    /// One statement, which SQLite rolls back by itself when it fails.
    One,
    /// Several statements, rolled back together when one fails.
    Many,
}

impl Scope {
    pub(super) fn writes(self) -> bool {
        matches!(self, Scope::One | Scope::Many)
    }
}

pub(super) type Answer<T> = oneshot::Sender<Result<T>>;

/// A unit of work on a connection. It may run twice: after a lost transaction it runs again.
pub(super) trait Job: Send {
    /// Completes "failed to ..".
    fn what(&self) -> &'static str;
    fn scope(&self) -> Scope;
    /// Runs the work and keeps the result.
    fn run(&mut self, conn: &Conn) -> rusqlite::Result<()>;
    /// Turns the result, or the reason why there is none, into the answer.
    fn settle(&mut self, ran: Result<(), Failure>);
    /// Sends the caller its answer.
    fn answer(self: Box<Self>);
}

/// Why a job failed. One lost commit may be the cause for many jobs.
pub(super) type Cause = Arc<rusqlite::Error>;

/// Failure of a job.
#[derive(Debug, Clone)]
pub(super) enum Failure {
    /// Nothing of it is stored, and nothing will be.
    Failed(Cause),
    /// Its commit failed. Its pages may be in the log, in part or as a whole. This process does not
    /// see them and overwrites them with the next commit, but another process that reads the log
    /// first may find them.
    Unknown(Cause),
    /// A file of the database is gone.
    Lost { why: Arc<str>, committed: bool },
}

impl Failure {
    pub(super) fn error(self, what: &str) -> Error {
        match self {
            Failure::Failed(why) => Error::new(kind_of(&why), format!("failed to {what}")).with_source(why),
            Failure::Unknown(why) => {
                let text = format!("failed to {what}: the commit failed, and may be found stored at the next open");
                Error::new(ErrorKind::OutcomeUnknown, text).with_source(why)
            }
            Failure::Lost { why, committed } => {
                let kind = if committed { ErrorKind::OutcomeUnknown } else { ErrorKind::DatabaseLost };
                Error::new(kind, format!("failed to {what}: {why}"))
            }
        }
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(why: rusqlite::Error) -> Self {
        Failure::Failed(Arc::new(why))
    }
}

pub(super) struct Call<T, F, A, U> {
    what: &'static str,
    scope: Scope,
    work: F,
    out: Option<T>,
    /// Runs after the commit and before the answer, also if the caller is gone.
    then: Option<A>,
    answer: Option<Result<U>>,
    caller: Answer<U>,
}

impl<T, F, A, U> Call<T, F, A, U> {
    pub(super) fn new(what: &'static str, scope: Scope, work: F, then: A, caller: Answer<U>) -> Self {
        Call { what, scope, work, out: None, then: Some(then), answer: None, caller }
    }
}

impl<T, F, A, U> Job for Call<T, F, A, U>
where
    T: Send,
    F: FnMut(&Conn) -> rusqlite::Result<T> + Send,
    A: FnOnce(T) -> U + Send,
    U: Send,
{
    fn what(&self) -> &'static str {
        self.what
    }

    fn scope(&self) -> Scope {
        self.scope
    }

    fn run(&mut self, conn: &Conn) -> rusqlite::Result<()> {
        self.out = Some((self.work)(conn)?);
        Ok(())
    }

    fn settle(&mut self, ran: Result<(), Failure>) {
        self.answer = Some(match (ran, self.out.take(), self.then.take()) {
            (Ok(()), Some(out), Some(then)) => Ok(then(out)),
            (Err(failure), ..) => Err(failure.error(self.what)),
            (Ok(()), ..) => Err(Error::new(ErrorKind::Store, format!("failed to {}: it was not run", self.what))),
        });
    }

    fn answer(self: Box<Self>) {
        let Call { work, answer, caller, .. } = unboxed(self);
        // Freed before the caller resumes: two threads that allocate and free at the same time wait
        // for each other.
        drop(work);
        if let Some(answer) = answer {
            // A caller that is gone needs no answer.
            let _ = caller.send(answer);
        }
    }
}

/// Moves a value out of its box, and frees the box.
#[allow(clippy::boxed_local, reason = "the box is to be freed here, and not where its content goes out of scope")]
fn unboxed<T>(boxed: Box<T>) -> T {
    *boxed
}

/// The kind of a job's error. A row with a damaged value is not a failure of the store: a retry
/// would not help.
fn kind_of(why: &rusqlite::Error) -> ErrorKind {
    match why {
        // A job that was refused gives the reason as an `Error` of this library.
        rusqlite::Error::ToSqlConversionFailure(why) => why.downcast_ref().map_or(ErrorKind::Store, Error::kind),
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::Utf8Error(..) => ErrorKind::Value,
        _ => ErrorKind::Store,
    }
}
