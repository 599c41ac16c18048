//! Topics of a `recv!`, `try_recv!` or `close!`: one or several, literal or computed when the wait
//! begins.
//!
//! Computed topics are saved in the snapshot, so that they are computed once. With one topic, a
//! message is received as it is. With several, each message comes with its topic, the oldest
//! message first across all topics.
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::frame::codec::Codec;
use crate::frame::run::Run;
use crate::frame::saved::unreadable;
use crate::frame::waits::Deadline;
use crate::runtime::exit::Exit;
use crate::store::{PendingMessage, TopicPage, Wait};

/// Most messages that are read at once.
const PAGE: u32 = 500;

/// What was there when a message was to be taken.
pub(super) enum Taken<T> {
    /// A message, with its topic.
    Message(String, T),
    /// No message yet.
    Nothing,
    /// No message, and none can arrive: the topics are closed.
    Closed,
}

/// One topic that is a literal.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct FixedTopic(pub &'static str);

/// Several topics that are literals.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct FixedTopics(pub &'static [&'static str]);

/// One computed topic.
#[doc(hidden)]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OneTopic(String);

/// Several computed topics.
#[doc(hidden)]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ManyTopics(Vec<String>);

/// The topics of a wait.
#[doc(hidden)]
pub trait Topics: Clone + Send + Sync + 'static {
    /// Type as which a message of type `T` is received.
    type Received<T>;

    fn names(&self) -> Vec<&str>;

    fn received<T>(topic: &str, message: T) -> Self::Received<T>;

    /// Topics whose message type senders can check. Computed ones are excluded, since their number
    /// is unbounded.
    fn fixed(&self) -> Vec<&'static str> {
        Vec::new()
    }
}

impl Topics for FixedTopic {
    type Received<T> = T;

    fn fixed(&self) -> Vec<&'static str> {
        vec![self.0]
    }

    fn names(&self) -> Vec<&str> {
        vec![self.0]
    }

    fn received<T>(_: &str, message: T) -> T {
        message
    }
}

/// One topic, literal or computed.
#[doc(hidden)]
pub trait SingleTopic: Topics {
    fn name(&self) -> &str;
}

impl SingleTopic for FixedTopic {
    fn name(&self) -> &str {
        self.0
    }
}

impl SingleTopic for OneTopic {
    fn name(&self) -> &str {
        &self.0
    }
}

impl Topics for FixedTopics {
    type Received<T> = (String, T);

    fn names(&self) -> Vec<&str> {
        self.0.to_vec()
    }

    fn received<T>(topic: &str, message: T) -> (String, T) {
        (topic.to_owned(), message)
    }

    fn fixed(&self) -> Vec<&'static str> {
        self.0.to_vec()
    }
}

impl Topics for OneTopic {
    type Received<T> = T;

    fn names(&self) -> Vec<&str> {
        vec![&self.0]
    }

    fn received<T>(_: &str, message: T) -> T {
        message
    }
}

impl Topics for ManyTopics {
    type Received<T> = (String, T);

    fn names(&self) -> Vec<&str> {
        self.0.iter().map(String::as_str).collect()
    }

    fn received<T>(topic: &str, message: T) -> (String, T) {
        (topic.to_owned(), message)
    }
}

/// Argument types of `recv!` and `try_recv!`: a topic, or a list of topics. `close!` takes one.
///
/// See [`bounds`](crate::bounds) for when a program names it.
#[diagnostic::on_unimplemented(
    message = "`recv!` takes a topic or a list of topics, not `{Self}`: make it text, `recv!(format!(\"answer-{{n}}\"))`",
    label = "neither text nor a list of texts",
    note = "a topic is a `&str` or a `String`; several are an array, a slice or a `Vec` of those"
)]
pub trait IntoTopics<K: Topics + Serialize + DeserializeOwned> {
    #[doc(hidden)]
    fn into_topics(self) -> K;
}

#[diagnostic::do_not_recommend]
impl IntoTopics<OneTopic> for &str {
    fn into_topics(self) -> OneTopic {
        OneTopic(self.to_owned())
    }
}

#[diagnostic::do_not_recommend]
impl IntoTopics<OneTopic> for &String {
    fn into_topics(self) -> OneTopic {
        OneTopic(self.clone())
    }
}

#[diagnostic::do_not_recommend]
impl IntoTopics<OneTopic> for String {
    fn into_topics(self) -> OneTopic {
        OneTopic(self)
    }
}

fn many<S: AsRef<str>>(topics: impl IntoIterator<Item = S>) -> ManyTopics {
    ManyTopics(topics.into_iter().map(|topic| topic.as_ref().to_owned()).collect())
}

#[diagnostic::do_not_recommend]
impl<S: AsRef<str>> IntoTopics<ManyTopics> for Vec<S> {
    fn into_topics(self) -> ManyTopics {
        many(self)
    }
}

#[diagnostic::do_not_recommend]
impl<S: AsRef<str>> IntoTopics<ManyTopics> for &Vec<S> {
    fn into_topics(self) -> ManyTopics {
        many(self)
    }
}

#[diagnostic::do_not_recommend]
impl<S: AsRef<str>> IntoTopics<ManyTopics> for &[S] {
    fn into_topics(self) -> ManyTopics {
        many(self)
    }
}

#[diagnostic::do_not_recommend]
impl<S: AsRef<str>, const N: usize> IntoTopics<ManyTopics> for [S; N] {
    fn into_topics(self) -> ManyTopics {
        many(self)
    }
}

#[diagnostic::do_not_recommend]
impl<S: AsRef<str>, const N: usize> IntoTopics<ManyTopics> for &[S; N] {
    fn into_topics(self) -> ManyTopics {
        many(self)
    }
}

impl Run {
    /// Registers the type that a function receives on its literal topics.
    pub(super) fn takes<T>(&self, topics: Vec<&'static str>, codec: Codec<T>) {
        for topic in topics {
            self.backend.takes(topic, codec.check());
        }
    }

    /// The oldest message of some topics, with its topic. Its consumption is part of the next
    /// checkpoint.
    pub(super) async fn take_message<K: Topics, T>(&self, name: &str, topics: &K, codec: Codec<T>) -> Taken<T> {
        let mut oldest: Option<PendingMessage> = None;
        let mut open = topics.names().is_empty();
        for topic in topics.names() {
            let TopicPage { messages, closed } = self.messages(topic, i64::MIN, 1).await;
            open |= !closed;
            for message in messages {
                if oldest.as_ref().is_none_or(|oldest| message.seq < oldest.seq) {
                    oldest = Some(message);
                }
            }
        }
        match oldest {
            Some(message) => {
                let value = self.read_message(name, &message, codec).await;
                self.outbox().received.push(message.seq);
                Taken::Message(message.topic, value)
            }
            None if open => Taken::Nothing,
            None => Taken::Closed,
        }
    }

    /// All messages of a topic that is closed. Their consumption is part of the next checkpoint.
    pub(super) async fn take_all<T>(&self, name: &str, topic: &str, codec: Codec<T>) -> Vec<T> {
        let (mut values, mut seqs) = (Vec::new(), Vec::new());
        loop {
            let after = seqs.last().copied().unwrap_or(i64::MIN);
            let TopicPage { messages, closed } = self.messages(topic, after, PAGE).await;
            if !closed {
                // Code that waited for a message here has been changed.
                let why = format!("`{name}` stands at a wait for a message on topic `{topic}`, where its code closes the topic now");
                self.halt::<()>(Exit::parked(why)).await;
            }
            let is_last = u32::try_from(messages.len()).is_ok_and(|messages| messages < PAGE);
            for message in messages {
                values.push(self.read_message(name, &message, codec).await);
                seqs.push(message.seq);
            }
            if is_last {
                self.outbox().received.append(&mut seqs);
                return values;
            }
        }
    }

    async fn messages(&self, topic: &str, after: i64, limit: u32) -> TopicPage {
        match self.backend.topic(topic, after, limit).await {
            Ok(page) => page,
            Err(error) => self.halt(Exit::interrupted(error)).await,
        }
    }

    /// The value of a message. One that cannot be read parks the fiber, and is kept.
    async fn read_message<T>(&self, name: &str, message: &PendingMessage, codec: Codec<T>) -> T {
        match codec.restore(&message.data) {
            Ok(value) => value,
            Err(why) => {
                let (topic, why) = (&message.topic, unreadable::<T>(why));
                let why = format!("a message to `{name}` on topic `{topic}` {why}; it is kept");
                self.halt(Exit::parked(self.secrets.text(why))).await
            }
        }
    }

    /// Ends the fiber: no message can arrive any more that it waits for without a limit.
    pub(super) async fn receives_on_closed<K: Topics, T>(&self, name: &str, topics: &K) -> T {
        let topics = topics.names().iter().map(|topic| format!("`{topic}`")).collect::<Vec<_>>().join(" or ");
        self.halt(Exit::failed(format!("`{name}` waits for a message on topic {topics}, which it has closed"))).await
    }

    /// The wait for messages of some topics; fails where none could ever arrive.
    pub(super) async fn wait_for_topics<K: Topics>(&self, name: &str, topics: &K, deadline: Deadline) -> Wait {
        let topics: Vec<String> = topics.names().into_iter().map(str::to_owned).collect();
        if topics.is_empty() && deadline.at_ms().is_none() {
            let why = format!("`{name}` was given no topic to receive on, and would wait for ever");
            self.halt::<()>(Exit::failed(why)).await;
        }
        Wait { due_ms: deadline.at_ms(), topics, ..Wait::default() }
    }
}
