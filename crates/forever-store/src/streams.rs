//! Streams: append-only lists of items, which never change. Data types and [`StreamStore`].
//!
//! The items of a `Log` and of the log of an operation are streams of their fiber, and so is its
//! history. Names with a slash are those of this library.
use std::borrow::Cow;

use super::{Claim, Seq};
use crate::error::Result;
use crate::future::BoxFuture;

/// Items of a stream that are stored together.
///
/// See [`StreamStore`] for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamBatch {
    /// Number of its first item, from 0.
    pub first: u64,
    /// Number of items.
    pub count: u64,
    /// Items, as JSON texts, one per line.
    pub data: String,
    /// Time at which it was stored.
    pub stored_ms: i64,
}

/// Name of the stream of a fiber to which most checkpoints append: its history.
pub const HISTORY: &str = "history";

/// Start of the names of the streams that the code of a fiber writes to.
pub const OUTPUTS: &str = "out/";

/// Name of the stream that a function calls `name`.
pub fn output_stream(name: &str) -> String {
    format!("{OUTPUTS}{name}")
}

/// Name of the stream whose last item is the progress of a fiber.
pub const PROGRESS: &str = "progress";

/// Name of the stream whose only item is the step in which a fiber has failed, if it was stored
/// with the end of the fiber.
pub const FAILED_IN: &str = "failed";

/// Start of the names of the streams that [`SnapshotRows::logs`](crate::SnapshotRows::logs) has.
pub const LOGS: &str = "log/";

/// Name of the stream of log number `log` of a snapshot.
pub fn log_stream(log: u64) -> String {
    format!("{LOGS}{log}")
}

/// Number of the log whose stream has this name.
pub fn log_number(stream: &str) -> Option<u64> {
    // Digits alone: `+1` would parse, too.
    stream.strip_prefix(LOGS).filter(|number| number.bytes().all(|b| b.is_ascii_digit()))?.parse().ok()
}

/// Name of the stream of the log of an operation, by [`OpRecord::number`](crate::OpRecord::number)
/// and id.
pub fn op_stream(number: Option<u64>, id: &str) -> String {
    match number {
        Some(number) => format!("op/{number}/{id}"),
        None => format!("op/{id}"),
    }
}

/// Items to append to a stream of a fiber, which is created with its first item.
///
/// See [`StreamStore`] for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamAppend {
    /// Name of the stream among those of the fiber.
    pub name: Cow<'static, str>,
    /// Number of the first of the items, where the caller knows it. Items that are stored from
    /// there on are replaced; only a person can have written them. Otherwise the items follow the
    /// last one.
    pub first: Option<u64>,
    /// Number of items, at least 1.
    pub count: u64,
    /// Items, JSON texts, one a line.
    pub data: String,
    /// Number of newest items to keep. Older ones may be deleted, from the oldest on.
    pub keep: Option<u64>,
}

/// Changes of the streams of a fiber, stored with the checkpoint that they belong to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamsDelta {
    /// Names of streams to delete with all their items. A name that is not stored is no error.
    pub removed: Vec<String>,
    /// Items to append, at most once to each stream.
    pub appended: Vec<StreamAppend>,
}

impl StreamsDelta {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        let StreamsDelta { removed, appended } = self;
        removed.is_empty() && appended.is_empty()
    }

    /// Total length of the items to append, in bytes.
    // For the event of a checkpoint.
    #[doc(hidden)]
    pub fn bytes(&self) -> usize {
        self.appended.iter().map(|append| append.data.len()).sum()
    }
}

/// Streams of fibers.
///
/// Items are appended with a checkpoint ([`NewSnapshot::streams`](crate::NewSnapshot::streams)),
/// with an operation ([`append_op_log`](crate::OpStore::append_op_log)), with the result of a branch
/// or the end of the fiber, or by [`append`](StreamStore::append). A stream is deleted with its
/// fiber; those of logs are deleted when the fiber completes or starts again.
///
/// ```
/// # mod forever { pub use forever_store as store; pub use forever_store::Result; }
/// # use forever::store::{AcceptResult, FiberStore, NewFiber};
/// use forever::store::{Sqlite, StreamAppend, StreamStore, output_stream};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// let store = Sqlite::in_memory().await?;
/// # let worker = store.join(0).await?;
/// # let fiber = NewFiber {
/// #     id: "order-17".to_owned(),
/// #     name: "order".to_owned(),
/// #     args: "{}".to_owned(),
/// #     worker: Some(worker),
/// #     now_ms: 1_000,
/// #     key: None,
/// #     id_given: false,
/// #     closure: false,
/// #     metadata: None,
/// #     agent: None,
/// #     parent: None,
/// # };
/// # let AcceptResult::Created(claim) = store.accept(fiber).await? else { panic!() };
/// let (name, data) = (output_stream("found"), "\"a page\"\n\"a book\"".to_owned());
/// let items = StreamAppend { name: name.clone().into(), first: None, count: 2, data, keep: None };
/// store.append(claim, vec![items], 2_000).await?;
///
/// let batches = store.stream(claim.fiber, name, 0, 10).await?;
/// assert_eq!(batches[0].data.lines().nth(1), Some("\"a book\""));
/// # Ok(())
/// # }
/// ```
pub trait StreamStore {
    /// Appends to streams of a running fiber, between two checkpoints.
    fn append(&self, claim: Claim, appended: Vec<StreamAppend>, now_ms: i64) -> BoxFuture<'_, Result<()>>;

    /// Names of the streams of a fiber, in the order of their bytes.
    fn stream_names(&self, fiber: Seq) -> BoxFuture<'_, Result<Vec<String>>>;

    /// Returns up to `limit` batches of a stream, from the one that contains item `from`, or from
    /// the first that was not deleted. If `from`, which is no larger than an `i64`, is behind the
    /// last item, it is the last one.
    ///
    /// Items are numbered from 0 in the order in which they were appended. A batch follows the one
    /// before without a gap. A stream that has no items is empty.
    fn stream(&self, fiber: Seq, name: String, from: u64, limit: u32) -> BoxFuture<'_, Result<Vec<StreamBatch>>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_log_is_read_from_the_name_that_it_gives_its_stream() {
        for log in [0, 7, u64::MAX] {
            assert_eq!(log_number(&log_stream(log)), Some(log));
        }
        for name in ["log", "log/", "log/-1", "log/+1", "log/1/2", "op/1/a", "history", "log/18446744073709551616"] {
            assert_eq!(log_number(name), None, "{name}");
        }
    }
}
