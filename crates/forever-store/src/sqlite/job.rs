//! A piece of work for the thread of a [`worker`](super::worker), and its answer.
use std::sync::Arc;

use rusqlite::Connection;

use super::sync::oneshot;
use crate::error::{Error, ErrorKind, Result};

/// What a job changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Nothing.
    Read,
    /// Nothing, and it is run by itself: no transaction may be open around it.
    Alone,
    /// One statement, which SQLite takes back by itself when it fails.
    One,
    /// Several statements, taken back together when one fails.
    Many,
}

impl Scope {
    pub(super) fn writes(self) -> bool {
        matches!(self, Scope::One | Scope::Many)
    }
}

pub(super) type Answer<T> = oneshot::Sender<Result<T>>;

/// Something to do on a connection, possibly twice: a transaction that is lost is run again.
pub(super) trait Job: Send {
    /// Completes "failed to ..".
    fn what(&self) -> &'static str;
    fn scope(&self) -> Scope;
    /// Runs it and keeps what came out.
    fn run(&mut self, conn: &Connection) -> rusqlite::Result<()>;
    /// Tells the caller: what came out, or why not.
    fn answer(self: Box<Self>, ran: Result<(), Failure>);
}

/// Why a job failed; a lost commit is the reason of many.
pub(super) type Cause = Arc<rusqlite::Error>;

/// What became of a job that has no result.
#[derive(Debug, Clone)]
pub(super) enum Failure {
    /// Nothing of it is stored, and nothing will be.
    Failed(Cause),
    /// Its commit failed. What it wrote is in the log in part or as a whole, and whoever reads the
    /// log next may find it there; whoever has it open does not, and writes over it with the next
    /// commit.
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
    pub(super) what: &'static str,
    pub(super) scope: Scope,
    pub(super) work: F,
    pub(super) out: Option<T>,
    /// Runs behind the commit, before the caller is answered, also if the caller is gone.
    pub(super) then: A,
    pub(super) answer: Answer<U>,
}

impl<T, F, A, U> Job for Call<T, F, A, U>
where
    T: Send,
    F: FnMut(&Connection) -> rusqlite::Result<T> + Send,
    A: FnOnce(T) -> U + Send,
    U: Send,
{
    fn what(&self) -> &'static str {
        self.what
    }

    fn scope(&self) -> Scope {
        self.scope
    }

    fn run(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        self.out = Some((self.work)(conn)?);
        Ok(())
    }

    fn answer(self: Box<Self>, ran: Result<(), Failure>) {
        let Call { what, work, out, then, answer, .. } = unboxed(self);
        // Freed before the caller goes on: two threads that allocate and free at the same time wait
        // for each other.
        drop(work);
        let result = match (ran, out) {
            (Ok(()), Some(out)) => Ok(then(out)),
            (Err(failure), _) => Err(failure.error(what)),
            (Ok(()), None) => Err(Error::new(ErrorKind::Store, format!("failed to {what}: it was not run"))),
        };
        // A caller that is gone needs no answer.
        let _ = answer.send(result);
    }
}

/// What was in a box, which is freed.
#[allow(clippy::boxed_local, reason = "the box is to be freed here, and not where its content goes out of scope")]
fn unboxed<T>(boxed: Box<T>) -> T {
    *boxed
}

/// A row that holds something else than it should is not the store's failure: to try again is no
/// help.
fn kind_of(why: &rusqlite::Error) -> ErrorKind {
    match why {
        // A job that was refused says why with an error of ours.
        rusqlite::Error::ToSqlConversionFailure(why) => why.downcast_ref().map_or(ErrorKind::Store, Error::kind),
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::Utf8Error(..) => ErrorKind::Value,
        _ => ErrorKind::Store,
    }
}
