//! The logs that one connection is shown: each from its first chunk, or from a later one, to its
//! end.
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::stream::{self, BoxStream, SelectAll, StreamExt};

use crate::chat::{Entry, Follow, StoredChunk, TurnEnd, TurnHandle, TurnStatus};
use crate::error::{Error, Result};

/// No log has so many chunks.
const BEHIND_ALL: u64 = u64::MAX >> 1;

/// Batch read from a log: at most so many entries, and no more when they have so many bytes.
const BATCH: (usize, usize) = (64, 256 << 10);

/// One log that is shown.
pub(super) struct Watched {
    pub(super) status: TurnStatus,
    /// Whether the client sent its question on this connection: it has the messages.
    pub(super) own: bool,
    /// Whether the client was sent the first chunk.
    begun: AtomicBool,
    stopped: AtomicBool,
}

impl Watched {
    pub(super) fn begin(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }
}

/// What comes next of a log.
pub(super) enum Shown {
    /// A chunk, with its number, and whether it was there before it was asked for.
    Chunk { number: u64, chunk: StoredChunk, replay: bool },
    /// Everything that was there has been shown.
    CaughtUp,
    /// The end, and whether it was there before it was asked for.
    End { end: TurnEnd, replay: bool },
    /// It cannot be read any further.
    Failed(Error),
}

/// News of one log.
type News = (Arc<Watched>, Vec<Shown>);

/// The logs that are shown at the moment.
#[derive(Default)]
pub(super) struct Watching {
    /// By the id of their turns, which of the watches counts.
    current: HashMap<String, Arc<Watched>>,
    /// Whether there have been several at a time since the client was last sent the conversation
    /// behind them.
    overlapped: bool,
    news: SelectAll<BoxStream<'static, News>>,
}

impl Watching {
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

    /// Shows a log from a chunk on, in place of an earlier watch of it.
    pub(super) async fn start(&mut self, turn: &TurnHandle, from: u64, replays: bool, own: bool) -> Result<()> {
        let (status, follow) = (turn.status().await?, turn.follow(from).await?);
        self.stop(turn.id());
        let watched = Arc::new(Watched { status, own, begun: AtomicBool::new(false), stopped: AtomicBool::new(false) });
        self.current.insert(turn.id().to_owned(), Arc::clone(&watched));
        self.overlapped |= self.current.len() > 1;
        let reader = Reader { watched, follow, replays, begun: false, over: false };
        self.news.push(stream::unfold(reader, Reader::read).boxed());
        Ok(())
    }

    /// Shows it no more.
    pub(super) fn stop(&mut self, turn: &str) {
        if let Some(watched) = self.current.remove(turn) {
            watched.stopped.store(true, Ordering::Relaxed);
        }
    }

    /// What comes next of any of them.
    pub(super) fn poll_news(&mut self, context: &mut Context<'_>) -> Poll<News> {
        loop {
            match self.news.poll_next_unpin(context) {
                Poll::Ready(Some((watched, _))) if watched.stopped.load(Ordering::Relaxed) => {}
                Poll::Ready(Some(news)) => return Poll::Ready(news),
                // There is none, or nothing of any.
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }
}

/// Reads one log.
struct Reader {
    watched: Arc<Watched>,
    follow: Follow,
    /// Whether what comes was there before it was asked for.
    replays: bool,
    /// Whether a chunk of it has been read.
    begun: bool,
    over: bool,
}

impl Reader {
    /// Waits for something, and takes what else is there.
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
                    shown.push(Shown::Chunk { number, chunk, replay });
                }
                Ok(Some(Entry::End(end))) => {
                    self.over = true;
                    shown.push(Shown::End { end, replay });
                }
                Ok(None) if self.tells_what_is_there() => {
                    self.replays = false;
                    shown.push(Shown::CaughtUp);
                }
                Ok(None) => {
                    // Behind the end, if it was waited for.
                    self.over = waits;
                    break;
                }
                Err(error) => {
                    self.over = true;
                    shown.push(Shown::Failed(error));
                }
            }
        }
        (!shown.is_empty()).then(|| ((Arc::clone(&self.watched), shown), self))
    }

    /// Whether the client is to hear when it has all that was there before it asked.
    ///
    /// Not yet if the turn adds to an answer and nothing was shown: a replayed first chunk is what
    /// makes a client add to its last message.
    fn tells_what_is_there(&self) -> bool {
        self.replays && (self.begun || !self.watched.status.is_continuation())
    }
}
