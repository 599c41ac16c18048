//! One error type for the whole library.
use std::fmt;

/// A result of this library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kind of thing went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The store could not be read or written.
    Store,
    /// The commit of a write failed, so that it may or may not be found stored when the database is
    /// opened again. A call that names an id or a key is safe to repeat: see
    /// [`Error::is_outcome_unknown`].
    OutcomeUnknown,
    /// A file of the database was removed or replaced while the runtime had it open. Nothing is
    /// read or stored any more: close the runtime, put the files back in their places, and open the
    /// database again. Commits may be in the write-ahead log alone (`-wal`), so it goes where the
    /// database goes.
    DatabaseLost,
    /// A value could not be saved or restored exactly.
    Value,
    /// A step took longer than its `timeout`.
    Timeout,
    /// The database is owned by a live process.
    Busy,
    /// The file is not a database of ours, or not one that this version can read, or its
    /// write-ahead log is there without it.
    Format,
    /// The builder was given something it cannot work with: no database, a missing resource, two
    /// fibers of one name.
    Setup,
    /// A fiber of this name was not registered with the builder.
    NotRegistered,
    /// The id or key belongs to a fiber with another function or other arguments.
    Conflict,
    /// There is no fiber with this id or key.
    NotFound,
    /// A command was decided on a state in which the fiber no longer is: it has ended, runs, or
    /// waits. Nothing was changed.
    InvalidState,
    /// An activation of a fiber is no longer the one that may write: the fiber was claimed by
    /// another since, or a command has changed it. Nothing was changed, and the activation stops.
    ClaimLost,
    /// The runtime was closed.
    Closed,
    /// The code cannot resume all stored fibers, and the builder was told to refuse then.
    Incompatible,
    /// An agent could not be woken.
    Agent,
    /// An agent is in the memory of another worker, where it can be called.
    AgentElsewhere,
    /// An operation was begun, and nobody knows whether it was carried out.
    OpUnknown,
    /// Somebody has said that an operation has failed.
    OpFailed,
}

/// An error of the library, with its kind and the errors that caused it.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// Error of a kind, for implementers of a [`Store`](crate::Store).
    ///
    /// The message is lower-case, without a full stop, and names what failed:
    ///
    /// ```
    /// # use forever_store as forever;
    /// use forever::{Error, ErrorKind};
    ///
    /// # fn commit() -> std::io::Result<()> { Err(std::io::ErrorKind::TimedOut.into()) }
    /// let error = Error::new(ErrorKind::OutcomeUnknown, "failed to store a checkpoint").with_source(commit().unwrap_err());
    /// assert!(error.is_outcome_unknown());
    /// ```
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error { kind, message: message.into(), source: None }
    }

    /// Adds the error that caused this one, in place of the last one.
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Error of kind [`Closed`](ErrorKind::Closed), for everything that is asked of a closed store.
    pub fn closed() -> Self {
        Error::new(ErrorKind::Closed, "the runtime is closed")
    }

    /// What kind of thing went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether a live process owns the database; it can be opened once that process is gone.
    pub fn is_busy(&self) -> bool {
        self.kind == ErrorKind::Busy
    }

    /// Whether the same call may succeed later, with nothing changed in the program.
    ///
    /// After [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) it may do twice what it asks for, unless it is safe to repeat.
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind, ErrorKind::Busy | ErrorKind::Store | ErrorKind::OutcomeUnknown)
    }

    /// Whether a write may be stored although its call has failed, because its commit failed (a
    /// disk that is full or does not answer, a sync that failed). Every other error of a write says
    /// that it is not stored and will not be.
    ///
    /// In this process the write is not seen. It can only be found by the next one that opens the
    /// database, and only if nothing else was stored before: the next commit that succeeds is
    /// written over it.
    pub fn is_outcome_unknown(&self) -> bool {
        self.kind == ErrorKind::OutcomeUnknown
    }

    /// Whether a file of the database was removed or replaced while the runtime had it open.
    pub fn is_database_lost(&self) -> bool {
        self.kind == ErrorKind::DatabaseLost
    }

    /// Whether the store failed, in whatever way, or is closed.
    // For the runtime, which tells errors of the store from those of the program.
    #[doc(hidden)]
    pub fn is_of_store(&self) -> bool {
        matches!(self.kind, ErrorKind::Store | ErrorKind::OutcomeUnknown | ErrorKind::DatabaseLost | ErrorKind::Closed)
    }

    /// Whether an id or key belongs to a fiber with another function or other arguments.
    pub fn is_conflict(&self) -> bool {
        self.kind == ErrorKind::Conflict
    }

    /// Whether a fiber was in a state in which the command is refused.
    pub fn is_invalid_state(&self) -> bool {
        self.kind == ErrorKind::InvalidState
    }

    /// Whether the claim that a write is conditional on was not in force.
    pub fn is_claim_lost(&self) -> bool {
        self.kind == ErrorKind::ClaimLost
    }

    /// Whether there is no fiber with the id or key.
    pub fn is_not_found(&self) -> bool {
        self.kind == ErrorKind::NotFound
    }

    /// Whether an operation was begun of which nobody knows whether it was carried out.
    pub fn is_op_unknown(&self) -> bool {
        self.kind == ErrorKind::OpUnknown
    }

    /// Whether the runtime was closed.
    pub fn is_closed(&self) -> bool {
        self.kind == ErrorKind::Closed
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|e| e as _)
    }
}
