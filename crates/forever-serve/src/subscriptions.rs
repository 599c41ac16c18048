//! The logs that one connection shows: each from a chunk on to its end.
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use forever_chat::{Entry, Follow, StoredChunk, TurnEnd, TurnHandle, TurnStatus};
use forever_runtime::{Error, Result};
use futures_util::stream::{self, BoxStream, SelectAll, StreamExt};

/// A number greater than that of any chunk.
const BEHIND_ALL: u64 = u64::MAX >> 1;

/// Limits of a batch read from a log: entries, and bytes.
const BATCH: (usize, usize) = (64, 256 << 10);

/// One log that is shown.
pub(super) struct Subscription {
    pub(super) status: TurnStatus,
    /// Whether the client sent its question on this connection, and so has the messages.
    pub(super) own: bool,
    /// Whether the client was sent the first chunk.
    begun: AtomicBool,
    stopped: AtomicBool,
}

impl Subscription {
    pub(super) fn begin(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }
}

/// Next item of a log.
pub(super) enum SubscriptionItem {
    /// A chunk with its number, and whether it existed before the client requested the log.
    Chunk { number: u64, chunk: StoredChunk, replay: bool },
    /// All earlier chunks have been shown.
    CaughtUp,
    /// The end, and whether it existed before the client requested the log.
    End { end: TurnEnd, replay: bool },
    /// The log cannot be read any further.
    Failed(Error),
}

/// New items of one log.
type News = (Arc<Subscription>, Vec<SubscriptionItem>);

/// The logs that are shown at the moment.
#[derive(Default)]
pub(super) struct Subscriptions {
    /// The current watch of each turn, by the turn's id.
    current: HashMap<String, Arc<Subscription>>,
    /// Whether several turns have overlapped since the client was last sent the conversation after
    /// them.
    overlapped: bool,
    news: SelectAll<BoxStream<'static, News>>,
}

impl Subscriptions {
    pub(super) fn watches(&self, turn: &str) -> bool {
        self.current.contains_key(turn)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.current.is_empty()
    }

    /// Whether turns have overlapped: then clients put questions before the answers to earlier
    /// ones.
    pub(super) fn overlapped(&self) -> bool {
        self.overlapped
    }

    pub(super) fn set_overlapped(&mut self, overlapped: bool) {
        self.overlapped = overlapped;
    }

    /// Waits for the end of a turn that is offered.
    pub(super) async fn offer(&mut self, turn: &TurnHandle) -> Result<()> {
        self.start(turn, BEHIND_ALL, false, false).await
    }

    /// Shows a log from a chunk on, replacing an earlier watch of it.
    pub(super) async fn start(&mut self, turn: &TurnHandle, from: u64, replays: bool, own: bool) -> Result<()> {
        let (status, follow) = (turn.status().await?, turn.follow(from).await?);
        self.stop(turn.id());
        let watched = Arc::new(Subscription { status, own, begun: AtomicBool::new(false), stopped: AtomicBool::new(false) });
        self.current.insert(turn.id().to_owned(), Arc::clone(&watched));
        self.overlapped |= self.current.len() > 1;
        let reader = Reader { watched, follow, replays, begun: false, over: false };
        self.news.push(stream::unfold(reader, Reader::read).boxed());
        Ok(())
    }

    /// Stops showing a log.
    pub(super) fn stop(&mut self, turn: &str) {
        if let Some(watched) = self.current.remove(turn) {
            watched.stopped.store(true, Ordering::Relaxed);
        }
    }

    /// New items of any of the logs.
    pub(super) fn poll_news(&mut self, context: &mut Context<'_>) -> Poll<News> {
        loop {
            match self.news.poll_next_unpin(context) {
                Poll::Ready(Some((watched, _))) if watched.stopped.load(Ordering::Relaxed) => {}
                Poll::Ready(Some(news)) => return Poll::Ready(news),
                // There are no logs, or no new items.
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }
}

/// Reader of one log.
struct Reader {
    watched: Arc<Subscription>,
    follow: Follow,
    /// Whether the next items existed before the client requested the log.
    replays: bool,
    /// Whether a chunk of it has been read.
    begun: bool,
    over: bool,
}

impl Reader {
    /// Waits for an item, and takes all others that are there.
    async fn read(mut self) -> Option<(News, Self)> {
        let (mut shown, mut bytes) = (Vec::new(), 0);
        while !self.over && shown.len() < BATCH.0 && bytes < BATCH.1 {
            if self.watched.stopped.load(Ordering::Relaxed) {
                return None;
            }
            let waits = shown.is_empty() && !self.tells_what_is_there();
            let entry = if waits { self.follow.next().await } else { self.follow.try_next().await };
            let replay = self.replays;
            match entry {
                Ok(Some(Entry::Chunk(number, chunk))) => {
                    self.begun = true;
                    bytes += chunk.json().len();
                    shown.push(SubscriptionItem::Chunk { number, chunk, replay });
                }
                Ok(Some(Entry::End(end))) => {
                    self.over = true;
                    shown.push(SubscriptionItem::End { end, replay });
                }
                // An entry that clients have no frame for.
                Ok(Some(_)) => {}
                Ok(None) if self.tells_what_is_there() => {
                    self.replays = false;
                    shown.push(SubscriptionItem::CaughtUp);
                }
                Ok(None) => {
                    // After the end, if it was waited for.
                    self.over = waits;
                    break;
                }
                Err(error) => {
                    self.over = true;
                    shown.push(SubscriptionItem::Failed(error));
                }
            }
        }
        (!shown.is_empty()).then(|| ((Arc::clone(&self.watched), shown), self))
    }

    /// Whether to report that the client has all earlier chunks.
    ///
    /// Not yet if the turn is a continuation and no chunk was shown: a replayed first chunk is what
    /// makes a client add to its last message.
    fn tells_what_is_there(&self) -> bool {
        self.replays && (self.begun || !self.watched.status.is_continuation())
    }
}
