//! Counts of messages that a fiber has not received.
use serde::Serialize;

use crate::store::TopicRow;

/// Number of messages on one topic that a fiber has not received.
///
/// ```
/// # use forever_runtime as forever;
/// # async fn show(forever: &forever::Forever) -> forever::Result<()> {
/// for topic in forever.status("order-17").await?.unread {
///     println!("{} messages on `{}` wait to be received", topic.messages, topic.topic);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct UnreadTopic {
    /// Topic.
    pub topic: String,
    /// Number of messages.
    pub messages: u64,
}

impl UnreadTopic {
    /// Those of the topics of a fiber that have messages.
    pub(crate) fn all_of(topics: Vec<TopicRow>) -> Vec<Self> {
        let unread = topics.into_iter().filter(|row| row.unread > 0);
        unread.map(|TopicRow { topic, unread, closed: _ }| UnreadTopic { topic, messages: unread }).collect()
    }
}
