//! What is wrong, for people: short rows of many fibers, to be grouped by reason. Data types.
use super::Seq;

/// How much of a reason or an error these rows hold, in characters.
pub const REASON: u32 = 300;

/// Fiber of one function that stopped in one state.
///
/// Listed by [`AdminStore::stops`](super::AdminStore::stops).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopRow {
    /// Sequence number.
    pub seq: Seq,
    /// The first [`REASON`] characters of why it stopped.
    pub reason: Option<String>,
    /// Time at which it stopped.
    pub changed_ms: i64,
}

/// Step of a fiber that has failed and is tried again.
///
/// Listed by [`AdminStore::retries`](super::AdminStore::retries).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryRow {
    /// Sequence number of the fiber.
    pub seq: Seq,
    /// Stored name of its function.
    pub name: String,
    /// Stored name of the step.
    pub step: String,
    /// The first [`REASON`] characters of the last error.
    pub error: String,
    /// Time at which its first failed attempt was stored, or the operation began.
    pub started_ms: i64,
    /// Time of the last failed attempt.
    pub changed_ms: i64,
}

/// Messages that one fiber has not received.
///
/// Listed by [`AdminStore::queues`](super::AdminStore::queues).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueRow {
    /// Sequence number of the fiber.
    pub seq: Seq,
    /// Number of messages, at most [`LONGEST_QUEUE`].
    pub messages: u64,
    /// Time of the first of them.
    pub first_ms: i64,
    /// Time of the last of them.
    pub last_ms: i64,
}

/// How many messages of one fiber are counted.
pub const LONGEST_QUEUE: u32 = 1_001;
