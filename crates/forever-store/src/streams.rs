//! Streams: append-only lists of items, which never change. Data types and [`StreamStore`].
use std::borrow::Cow;

use super::Seq;
use crate::error::Result;
use crate::future::BoxFuture;

/// Items of a stream that are stored together.
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

/// Items to append to a stream of a fiber, which is created with its first item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamAppend {
    /// Name of the stream among those of the fiber.
    pub name: Cow<'static, str>,
    /// Number of items, at least 1.
    pub count: u64,
    /// Items, JSON texts, one a line.
    pub data: String,
    /// Number of newest items to keep. Older ones may be deleted, from the oldest on.
    pub keep: Option<u64>,
}

/// Streams of fibers.
///
/// Items are appended with a checkpoint ([`NewSnapshot::appended`](crate::NewSnapshot::appended)).
/// A stream is deleted with its fiber.
pub trait StreamStore {
    /// Returns up to `limit` batches of a stream, from the one that contains item `from`, or from
    /// the first that was not deleted.
    ///
    /// Items are numbered from 0 in the order in which they were appended. A batch follows the one
    /// before without a gap. A stream that has no items is empty.
    fn stream(&self, fiber: Seq, name: String, from: u64, limit: u32) -> BoxFuture<'_, Result<Vec<StreamBatch>>>;
}
