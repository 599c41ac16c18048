//! Streams: what is appended to them is never changed.

/// Items of a stream that are stored together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamBatch {
    /// Number of its first item, from 0.
    pub first: u64,
    /// Number of items.
    pub count: u64,
    /// Items, JSON texts, one a line.
    pub data: String,
    /// Time at which it was stored.
    pub stored_ms: i64,
}
