//! The logs that one connection is shown: each from its first chunk, or from a later one, to its end.
use std::collections::HashMap;

use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::chat::{Entry, Follow, TurnHandle, TurnStatus};
use crate::error::Result;
use crate::fiber::frame::BoxFuture;

/// No log has so many chunks.
const BEHIND_ALL: u64 = u64::MAX >> 1;

/// One log that is shown.
pub(super) struct Watched {
    pub(super) status: TurnStatus,
    follow: Follow,
    /// Whether what comes was there before it was asked for.
    pub(super) replays: bool,
    /// Whether the client sent its question on this connection: it has the messages.
    pub(super) own: bool,
    /// Whether a chunk of it has been shown.
    pub(super) begun: bool,
    generation: u64,
}

/// What comes next of a log.
pub(super) enum Shown {
    Entry(Entry),
    /// Everything that was there has been shown.
    CaughtUp,
}

type Next = BoxFuture<'static, (Watched, Result<Option<Shown>>)>;

/// The logs that are shown at the moment.
#[derive(Default)]
pub(super) struct Watching {
    /// By the id of their turns, which of the watches counts.
    current: HashMap<String, u64>,
    last: u64,
    next: FuturesUnordered<Next>,
}

impl Watching {
    pub(super) fn watches(&self, turn: &str) -> bool {
        self.current.contains_key(turn)
    }

    /// Waits for the end of a turn that is offered.
    pub(super) async fn offer(&mut self, turn: &TurnHandle) -> Result<()> {
        self.start(turn, BEHIND_ALL, false, false).await
    }

    /// Shows a log from a chunk on, in place of an earlier watch of it.
    pub(super) async fn start(&mut self, turn: &TurnHandle, from: u64, replays: bool, own: bool) -> Result<()> {
        let (status, follow) = (turn.status().await?, turn.follow(from).await?);
        self.last += 1;
        self.current.insert(turn.id().to_owned(), self.last);
        self.go_on(Watched { status, follow, replays, own, begun: false, generation: self.last });
        Ok(())
    }

    /// Shows it no more.
    pub(super) fn stop(&mut self, turn: &str) {
        self.current.remove(turn);
    }

    /// Goes on with what [`next`](Watching::next) gave.
    pub(super) fn go_on(&mut self, mut watched: Watched) {
        self.next.push(Box::pin(async move {
            // A replayed first chunk is what makes a client add to its last message, so that one is waited for.
            let awaited = watched.status.is_continuation() && !watched.begun;
            let next = if watched.replays && !awaited {
                watched.follow.try_next().await.map(|entry| Some(entry.map_or(Shown::CaughtUp, Shown::Entry)))
            } else {
                watched.follow.next().await.map(|entry| entry.map(Shown::Entry))
            };
            (watched, next)
        }));
    }

    /// What comes next of any of them; waits for ever if there is none.
    pub(super) async fn next(&mut self) -> (Watched, Result<Option<Shown>>) {
        loop {
            match self.next.next().await {
                Some((watched, next)) if self.current.get(watched.status.id()) == Some(&watched.generation) => return (watched, next),
                Some(_) => {}
                None => std::future::pending().await,
            }
        }
    }
}
