//! Conversations as JSON: read and written once for all clients that are sent one at a time.
use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use axum::body::Bytes;
use axum::extract::ws::Utf8Bytes;
use forever_chat::message::UiMessage;
use forever_runtime::{Error, ErrorKind, Result};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use serde_json::value::RawValue;

use super::protocol::ToClient;

/// The conversation of an agent at one moment.
pub(super) struct Conversation {
    /// The messages as JSON, with commas between.
    items: String,
    messages: Vec<Item>,
    /// Number of messages before those that a connection is sent at a time.
    left_out: usize,
    whole: OnceLock<Bytes>,
    /// The frames, without and with `connect`.
    frames: [OnceLock<Utf8Bytes>; 2],
}

/// One message.
struct Item {
    id: String,
    /// Where its JSON ends.
    end: usize,
    /// The frame with it alone.
    frame: OnceLock<Utf8Bytes>,
}

impl Conversation {
    /// A conversation of which connections are sent the last messages that together have at most
    /// `most` bytes; at least the last one.
    pub(super) fn of(messages: &[UiMessage], most: usize) -> Result<Self> {
        let (mut items, mut all) = (String::new(), Vec::with_capacity(messages.len()));
        for message in messages {
            if !items.is_empty() {
                items.push(',');
            }
            items.push_str(&serde_json::to_string(message).map_err(failed)?);
            all.push(Item { id: message.id.clone(), end: items.len(), frame: OnceLock::new() });
        }
        let mut conversation = Conversation { items, messages: all, left_out: 0, whole: OnceLock::new(), frames: Default::default() };
        let fits = |n: &usize| conversation.items.len() - conversation.begin(*n) < most;
        conversation.left_out = (0..messages.len()).find(fits).unwrap_or(messages.len().saturating_sub(1));
        Ok(conversation)
    }

    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    /// How many messages a connection is sent.
    pub(super) fn sent(&self) -> usize {
        self.len() - self.left_out
    }

    /// Id of the first message that a connection is sent.
    pub(super) fn first_sent(&self) -> Option<&str> {
        self.messages.get(self.left_out).map(|first| &*first.id)
    }

    /// Number of the message with this id.
    pub(super) fn number_of(&self, id: &str) -> Option<usize> {
        self.messages.iter().position(|item| item.id == id)
    }

    /// The frame with one message.
    pub(super) fn updated(&self, n: usize) -> Result<Utf8Bytes> {
        let item = &self.messages[n];
        let json = || self.items.get(self.begin(n)..item.end).unwrap_or_default().to_owned();
        written(&item.frame, json, |message| ToClient::Updated { message })
    }

    /// All messages, as a list.
    pub(super) fn whole(&self) -> Bytes {
        self.whole.get_or_init(|| format!("[{}]", self.items).into()).clone()
    }

    /// The frame with the messages that a connection is sent.
    pub(super) fn frame(&self, connect: bool) -> Result<Utf8Bytes> {
        let list = || format!("[{}]", self.items.get(self.begin(self.left_out)..).unwrap_or_default());
        written(&self.frames[usize::from(connect)], list, |messages| ToClient::Messages { messages, connect })
    }

    fn begin(&self, n: usize) -> usize {
        n.checked_sub(1).map_or(0, |before| self.messages[before].end + 1)
    }
}

/// A frame with what is JSON already, which is written for the first who is sent it.
fn written(
    frame: &OnceLock<Utf8Bytes>,
    json: impl FnOnce() -> String,
    of: impl for<'a> FnOnce(&'a RawValue) -> ToClient<'a>,
) -> Result<Utf8Bytes> {
    if let Some(frame) = frame.get() {
        return Ok(frame.clone());
    }
    let json = RawValue::from_string(json()).map_err(failed)?;
    let text = serde_json::to_string(&of(&json)).map_err(failed)?;
    Ok(frame.get_or_init(|| text.into()).clone())
}

fn failed(why: serde_json::Error) -> Error {
    Error::new(ErrorKind::Value, "a conversation cannot be written").with_source(why)
}

type Key = (&'static str, String);

/// Reads by agent. A caller gets the result of a read that begins after its call, with all callers
/// until then. Of one agent, one read is under way at a time.
pub(super) struct Reads<T> {
    lines: Mutex<HashMap<Key, Line<T>>>,
}

struct Line<T> {
    under_way: Option<Reading<T>>,
    next: Option<Reading<T>>,
}

type Reading<T> = Shared<BoxFuture<'static, T>>;

impl<T> Default for Reads<T> {
    fn default() -> Self {
        Reads { lines: Mutex::default() }
    }
}

impl<T: Clone + Send + Sync + 'static> Reads<T> {
    pub(super) fn read(self: &Arc<Self>, key: Key, read: impl Future<Output = T> + Send + 'static) -> Reading<T> {
        let mut lines = self.lines();
        let line = lines.entry(key.clone()).or_insert(Line { under_way: None, next: None });
        let before = line.under_way.clone();
        let next = line.next.get_or_insert_with(|| {
            let all = Arc::clone(self);
            let reading = async move {
                if let Some(before) = before {
                    before.await;
                }
                all.begins(&key);
                let value = read.await;
                all.is_over(&key);
                value
            };
            let reading = reading.boxed().shared();
            // It ends even when every caller has gone.
            tokio::spawn(reading.clone());
            reading
        });
        next.clone()
    }

    fn begins(&self, key: &Key) {
        if let Some(line) = self.lines().get_mut(key) {
            line.under_way = line.next.take();
        }
    }

    fn is_over(&self, key: &Key) {
        let mut lines = self.lines();
        if let Some(line) = lines.get_mut(key) {
            line.under_way = None;
            if line.next.is_none() {
                lines.remove(key);
            }
        }
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<Key, Line<T>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    fn messages(texts: &[&str]) -> Vec<UiMessage> {
        texts.iter().enumerate().map(|(n, text)| UiMessage::user(format!("m{n}"), *text)).collect()
    }

    #[test]
    fn of_a_long_conversation_the_newest_messages_that_fit_are_sent() {
        let all = messages(&["one", "", "three"]);
        let length = serde_json::to_string(&all[2]).unwrap().len();
        for (most, sent) in [(0, 1), (length, 1), (length * 2, 2), (length * 3 + 3, 3), (usize::MAX, 3)] {
            let conversation = Conversation::of(&all, most).unwrap();
            assert_eq!((conversation.len(), conversation.sent()), (3, sent), "{most}");
            let first = &all[3 - sent];
            assert_eq!(conversation.first_sent(), Some(&*first.id));
            for connect in [false, true] {
                let frame: serde_json::Value = serde_json::from_str(&conversation.frame(connect).unwrap()).unwrap();
                let connect = connect.then_some(true).map_or(serde_json::Value::Null, Into::into);
                assert_eq!((&frame["type"], &frame["connect"]), (&"cf_agent_chat_messages".into(), &connect));
                assert_eq!(frame["messages"], serde_json::to_value(&all[3 - sent..]).unwrap());
            }
            assert_eq!(conversation.whole(), serde_json::to_vec(&all).unwrap());
            assert_eq!((conversation.number_of("m1"), conversation.number_of("other")), (Some(1), None));
            let frame: serde_json::Value = serde_json::from_str(&conversation.updated(1).unwrap()).unwrap();
            assert_eq!(frame, serde_json::json!({ "type": "cf_agent_message_updated", "message": all[1] }));
        }
        let none = Conversation::of(&[], 10).unwrap();
        assert_eq!((none.len(), none.sent(), none.first_sent(), &none.whole()[..]), (0, 0, None, &b"[]"[..]));
        assert!(none.frame(false).unwrap().ends_with(r#""messages":[]}"#));
    }

    #[test]
    fn all_are_sent_the_same_bytes() {
        let conversation = Conversation::of(&messages(&["one", "two"]), usize::MAX).unwrap();
        let same = |frame: &dyn Fn() -> Utf8Bytes| assert_eq!(frame().as_ptr(), frame().as_ptr());
        same(&|| conversation.frame(true).unwrap());
        same(&|| conversation.frame(false).unwrap());
        same(&|| conversation.updated(1).unwrap());
        assert_eq!(conversation.whole().as_ptr(), conversation.whole().as_ptr());
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_asks_is_given_what_is_read_after_that_and_few_read() {
        let (reads, stored, read) = (Arc::new(Reads::default()), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut asks = Vec::new();
        for wave in 0..50_usize {
            stored.store(wave, Ordering::SeqCst);
            for _ in 0..60 {
                let (stored, read) = (Arc::clone(&stored), Arc::clone(&read));
                let one = reads.read(("Chat", "ada".to_owned()), async move {
                    read.fetch_add(1, Ordering::SeqCst);
                    let seen = stored.load(Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(30)).await;
                    seen
                });
                asks.push((wave, tokio::spawn(one)));
            }
            // Some of those who ask are gone before they are answered.
            drop(asks.iter().skip(wave).step_by(7).map(|(_, one)| one.abort()).collect::<Vec<_>>());
            tokio::time::sleep(Duration::from_millis(u64::try_from(wave % 5).unwrap() * 17)).await;
        }
        for (wave, one) in asks {
            match one.await {
                Ok(seen) => assert!(seen >= wave, "asked at {wave}, and was given {seen}"),
                Err(gone) => assert!(gone.is_cancelled()),
            }
        }
        assert!(read.load(Ordering::SeqCst) <= 60, "{read:?} reads for 3000 asks");
        assert!(reads.lines().is_empty());
    }
}
