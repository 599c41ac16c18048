//! One error type for the whole library.
use std::fmt;
use std::sync::{Arc, OnceLock};

/// Result with an [`Error`] of this library, unless another type is given.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Kind of an [`Error`]: what went wrong, and so what the caller can do.
///
/// | kinds | what to do |
/// |---|---|
/// | `NotFound`, `Conflict`, `InvalidState`, `TopicClosed`, `Value` | report it to the author of the call: nothing was changed |
/// | `Store`, `Busy` | call again later: nothing was stored |
/// | `OutcomeUnknown` | call again if the call has an id or a key, otherwise look at what is stored |
/// | `Timeout`, `Agent`, `AgentElsewhere` | decide as for any call of a service |
/// | `OpUnknown`, `OpFailed` | resolve the operation, or handle its failure as that of the effect |
/// | `Setup`, `NotRegistered`, `Incompatible`, `Format` | change the program, its builder or its file |
/// | `DatabaseLost`, `Closed`, `ClaimLost` | stop: another open, or another worker, continues |
///
/// Kinds may be added in any version, so a `match` needs a `_` arm.
///
/// ```
/// # use forever_store as forever;
/// use forever::{Error, ErrorKind};
///
/// /// What the program does about an error at its start.
/// fn advice(error: &Error) -> &'static str {
///     match error.kind() {
///         ErrorKind::Busy => "wait for the process that owns the database",
///         ErrorKind::Format => "look at the path",
///         ErrorKind::Incompatible => "roll back the deploy",
///         _ if error.is_retryable() => "try again",
///         _ => "report it",
///     }
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The store could not be read or written.
    Store,
    /// The commit of a write failed, so the write may or may not be stored when the database is
    /// opened again. A call that names an id or a key is safe to repeat: see
    /// [`Error::is_outcome_unknown`]. Or a call of an agent has begun, and its outcome did not
    /// arrive.
    OutcomeUnknown,
    /// A file of the database was removed or replaced while the runtime had it open. Nothing more
    /// is read or stored. Close the runtime, put the files back, and open the database again.
    /// Commits may be in the write-ahead log (`-wal`) alone, so move that file together with the
    /// database.
    DatabaseLost,
    /// A value could not be saved or restored exactly.
    Value,
    /// A step took longer than its `timeout`, or a call of an agent has not begun within its time
    /// limit, and never will.
    Timeout,
    /// The database is owned by a live process, or a chat accepts no further turn at the moment.
    Busy,
    /// The file is not a database of this library, or of a newer version, or its write-ahead log is
    /// there without the database.
    Format,
    /// The builder was configured wrongly: no database, a missing resource, two fibers of one name.
    Setup,
    /// A fiber, a class of agents or a method of this name was not registered with the builder.
    NotRegistered,
    /// The id or key belongs to a fiber with another function or other arguments, or to one that
    /// cannot do what was requested, such as a closure that is sent a message; or another message
    /// was sent with the message id.
    Conflict,
    /// There is no fiber, operation or turn with this id or key.
    NotFound,
    /// The fiber is in a state that does not allow the command: it has ended, runs, or waits.
    /// Nothing was changed.
    InvalidState,
    /// The fiber has closed the topic of the message. Nothing was stored, and later messages to it
    /// are refused too.
    TopicClosed,
    /// The activation may no longer write: the fiber was claimed again or changed by a command
    /// since. Nothing was changed, and the activation stops.
    ClaimLost,
    /// The runtime was closed.
    Closed,
    /// The body of a step has ended early because its process ends: `Op::interrupted`.
    Interrupted,
    /// The code cannot resume all stored fibers, and the builder was configured to refuse to open
    /// then.
    Incompatible,
    /// An agent could not be woken, or a method of it failed.
    Agent,
    /// An agent is in the memory of another worker: its methods can be called by name, and it
    /// cannot be woken here.
    AgentElsewhere,
    /// An operation is in doubt: it was started, and its outcome is unknown.
    OpUnknown,
    /// A person resolved an operation as failed.
    OpFailed,
}

/// Error of the library: a [kind](Error::kind) for programs, a text for people, and the error that
/// caused it.
///
/// The text names what failed and for which fiber, file or agent, for a log or a terminal: programs
/// decide by [`kind`](Error::kind) or a predicate such as [`is_retryable`](Error::is_retryable). The
/// text of the cause is not in it. The cause is the [`source`](std::error::Error::source), and is an
/// error of another crate, whose type may change between versions.
///
/// ```
/// # use forever_store as forever;
/// use forever::{Error, ErrorKind};
///
/// /// The status of an HTTP response.
/// fn status(error: &Error) -> u16 {
///     match error.kind() {
///         ErrorKind::NotFound => 404,
///         ErrorKind::Conflict | ErrorKind::InvalidState => 409,
///         _ if error.is_retryable() => 503,
///         _ => 500,
///     }
/// }
///
/// let error = Error::new(ErrorKind::Busy, "failed to open database `jobs.db`: owned by process 4711");
/// assert_eq!(status(&error), 503);
/// assert_eq!(status(&Error::closed()), 500);
/// ```
///
/// A fiber without a result has an error of its own, `fiber::FiberError`.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// Observer of [`Error::on_closed`].
static ON_CLOSED: OnceLock<fn()> = OnceLock::new();

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

    /// Sets the error that caused this one.
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into().into());
        self
    }

    /// Sets an error that several calls have in common.
    #[doc(hidden)]
    pub fn with_shared_source(mut self, source: Arc<dyn std::error::Error + Send + Sync>) -> Self {
        self.source = Some(source);
        self
    }

    /// Error of kind [`Closed`](ErrorKind::Closed), for calls to a closed store.
    pub fn closed() -> Self {
        if let Some(observe) = ON_CLOSED.get() {
            observe();
        }
        Error::new(ErrorKind::Closed, "the runtime is closed")
    }

    /// Calls `observe` in every thread that makes an error by [`closed`](Self::closed), for the
    /// caller that gets it has then observed the close. The first call counts.
    // For the runtime, which does not store values of code that has.
    #[doc(hidden)]
    pub fn on_closed(observe: fn()) {
        let _ = ON_CLOSED.set(observe);
    }

    /// Kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether a live process owns the database, or a chat accepts no further turn at the moment.
    ///
    /// The database can be opened once that process is gone.
    pub fn is_busy(&self) -> bool {
        self.kind == ErrorKind::Busy
    }

    /// Whether the same call may succeed later, with nothing changed in the program.
    ///
    /// After [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) the repetition may take effect twice, unless the call is safe to
    /// repeat.
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind, ErrorKind::Busy | ErrorKind::Store | ErrorKind::OutcomeUnknown)
    }

    /// Whether a failed write may be stored all the same, because its commit failed: the disk is
    /// full or does not answer, or a sync failed. After every other error of a write it is not
    /// stored.
    ///
    /// This process does not see the write. Only the next process that opens the database can find
    /// it, and only if no later commit succeeds first: that one overwrites it.
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

    /// Whether the call contradicts what is stored under its id or key, or what its fiber can do.
    pub fn is_conflict(&self) -> bool {
        self.kind == ErrorKind::Conflict
    }

    /// Whether a fiber was in a state in which the command is refused.
    pub fn is_invalid_state(&self) -> bool {
        self.kind == ErrorKind::InvalidState
    }

    /// Whether the fiber has closed the topic of the message.
    pub fn is_topic_closed(&self) -> bool {
        self.kind == ErrorKind::TopicClosed
    }

    /// Whether the claim that a write is conditional on was not in force.
    pub fn is_claim_lost(&self) -> bool {
        self.kind == ErrorKind::ClaimLost
    }

    /// Whether there is no fiber with the id or key.
    pub fn is_not_found(&self) -> bool {
        self.kind == ErrorKind::NotFound
    }

    /// Whether an operation is in doubt: it was started, and its outcome is unknown.
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
