//! `Fuse`: stops a runtime at a chosen write.
use std::fmt;
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tokio::sync::{Notify, watch};

use crate::future::BoxFuture;
use crate::store::{Pages, Witness};

/// Stops a runtime before or after a chosen write to its database.
///
/// Afterwards everything is as if the process had died there.
///
/// Give it to the [builder](crate::Builder::fuse). Once it has blown, no write of that runtime is
/// carried out, and no caller gets an answer, not even to a read. A test then drops the runtime and
/// opens the file again, with the write-ahead log as a killed process leaves it.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::testing::Fuse;
///
/// let whole = Fuse::never(); // a run with it says how many writes there are
/// let broken = Fuse::before(3); // the third write is not carried out
/// # let _ = (whole.writes(), broken);
/// ```
#[derive(Clone)]
pub struct Fuse(Arc<Inner>);

struct Inner {
    at: At,
    seen: Mutex<Seen>,
    blown: watch::Sender<bool>,
    close: watch::Sender<Close>,
    /// Told when the last caller that waits for an answer has it.
    rests: Notify,
}

/// What happens where; numbers are from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    /// It only counts.
    Never,
    /// It blows before a write.
    Before(Nth),
    /// It blows after a write.
    After(Nth),
    /// The runtime is closed when a write begins.
    Write(Nth),
    /// The runtime is closed before the code of fibers is polled for the n-th time.
    Poll(u64),
}

impl At {
    /// The same with another write.
    pub(super) fn map(self, change: impl FnOnce(Nth) -> Nth) -> Self {
        match self {
            At::Never | At::Poll(_) => self,
            At::Before(write) => At::Before(change(write)),
            At::After(write) => At::After(change(write)),
            At::Write(write) => At::Write(change(write)),
        }
    }
}

/// A write, by its number among all writes or among those of its name. Where tasks write side by
/// side, the former is another write in each run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Nth {
    pub(super) n: u64,
    pub(super) of: Option<&'static str>,
}

impl Nth {
    pub(super) fn write(n: u64) -> Self {
        Nth { n, of: None }
    }

    /// The position in `next` of this write; `begun` are those before them. A write that has passed
    /// is at once.
    fn position(self, begun: &[&'static str], next: &[&'static str]) -> Option<usize> {
        let counts = |write: &&&str| self.of.is_none_or(|of| of == **write);
        let passed = begun.iter().filter(counts).count() as u64;
        let left = usize::try_from(self.n.saturating_sub(1).saturating_sub(passed)).unwrap_or(usize::MAX);
        next.iter().enumerate().filter(|(_, write)| counts(write)).nth(left).map(|(position, _)| position)
    }

    /// The same write by its name.
    fn named(self, writes: &[&'static str]) -> Self {
        let Some(position) = self.position(&[], writes) else { return self };
        let of = writes[position];
        let n = writes[..=position].iter().filter(|write| **write == of).count() as u64;
        Nth { n, of: Some(of) }
    }
}

impl fmt::Display for Nth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "write {}", self.n)?;
        self.of.map_or(Ok(()), |of| write!(f, " of `{of}`"))
    }
}

/// The close of a runtime that the fuse asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Close {
    No,
    Asked,
    Begun,
}

/// Observed writes, in the order in which they are carried out.
#[derive(Debug, Default)]
struct Seen {
    writes: Vec<&'static str>,
    /// The write before which it blew.
    refused: Option<&'static str>,
    /// Number of polls of the code of fibers.
    polls: u64,
    /// Number of calls, and how many of them wait no longer.
    asked: u64,
    left: u64,
    /// Length of the write-ahead log after the last commit, and after the last acknowledged one.
    last: Option<Pages>,
    heard: Option<Pages>,
}

impl Fuse {
    pub(super) fn at(at: At) -> Self {
        let (blown, close) = (watch::Sender::new(false), watch::Sender::new(Close::No));
        Fuse(Arc::new(Inner { at, seen: Mutex::default(), blown, close, rests: Notify::new() }))
    }

    /// Only counts.
    pub fn never() -> Self {
        Fuse::at(At::Never)
    }

    /// Blows before the `n`-th write, from 1: it is not stored.
    pub fn before(n: u64) -> Self {
        Fuse::at(At::Before(Nth::write(n)))
    }

    /// Blows after the `n`-th write, from 1: it is stored, but not acknowledged.
    ///
    /// Writes that share its commit are stored with it.
    pub fn after(n: u64) -> Self {
        Fuse::at(At::After(Nth::write(n)))
    }

    /// Number of writes that have begun.
    pub fn writes(&self) -> u64 {
        self.seen().writes.len() as u64
    }

    /// Names of the writes that have begun, in the order of their commits.
    pub(super) fn what(&self) -> Vec<&'static str> {
        self.seen().writes.clone()
    }

    /// Where it blew, or asked for the close, with the name of the write.
    pub(super) fn named(&self) -> At {
        let seen = self.seen();
        let writes: Vec<_> = seen.writes.iter().copied().chain(seen.refused).collect();
        self.0.at.map(|write| write.named(&writes))
    }

    /// Number of polls of the code of fibers.
    pub(super) fn polls(&self) -> u64 {
        self.seen().polls
    }

    /// Ready when the runtime is to be closed.
    pub(super) async fn close_asked(&self) {
        // The sender is in `self`, so the wait cannot fail.
        let _ = self.0.close.subscribe().wait_for(|close| *close != Close::No).await;
    }

    pub(super) fn is_close_asked(&self) -> bool {
        *self.0.close.borrow() != Close::No
    }

    /// The close has begun: answers that were held back for it are given.
    pub(super) fn close_begun(&self) {
        self.0.close.send_replace(Close::Begun);
    }

    fn closes_before_next_poll(&self) -> bool {
        let mut seen = self.seen();
        seen.polls += 1;
        let closes = matches!(self.0.at, At::Poll(at) if at <= seen.polls);
        if closes {
            self.ask_to_close();
        }
        closes
    }

    fn ask_to_close(&self) {
        self.0.close.send_if_modified(|close| {
            let asks = *close == Close::No;
            if asks {
                *close = Close::Asked;
            }
            asks
        });
    }

    /// Drives the code of a fiber, and counts its polls. One before which the runtime is to be
    /// closed waits until it closes.
    pub(crate) async fn count_polls<T>(fuse: Option<&Fuse>, closes: impl Fn() -> bool, driven: impl Future<Output = T>) -> T {
        let Some(fuse) = fuse else { return driven.await };
        let mut driven = pin!(driven);
        poll_fn(|cx| {
            if !closes() && fuse.closes_before_next_poll() {
                // The task is woken when the runtime begins to close.
                return Poll::Pending;
            }
            driven.as_mut().poll(cx)
        })
        .await
    }

    /// Whether a caller waits for an answer.
    pub(super) fn is_in_use(&self) -> bool {
        let seen = self.seen();
        seen.asked != seen.left
    }

    /// Resolves the next time that the last caller which waits for an answer has it.
    pub(super) fn rests(&self) -> impl Future<Output = ()> + '_ {
        self.0.rests.notified()
    }

    /// Length of the write-ahead log at the last acknowledged commit, and now; `None` if not known.
    pub(super) fn log(&self) -> Option<(Pages, Pages)> {
        let seen = self.seen();
        // Before the first commit with changes, the part left by earlier processes is not known.
        Some((seen.heard.filter(|pages| *pages > 0)?, seen.last?))
    }

    /// Resolves when it has blown.
    pub async fn blown(&self) {
        // The sender is in `self`, so the wait cannot fail.
        let _ = self.0.blown.subscribe().wait_for(|blown| *blown).await;
    }

    pub(super) fn is_blown(&self) -> bool {
        *self.0.blown.borrow()
    }

    /// Blows it now.
    pub fn blow(&self) {
        self.0.blown.send_replace(true);
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Witness for Fuse {
    fn begins(&self, writes: &[&'static str]) -> usize {
        let mut seen = self.seen();
        if self.is_blown() {
            return 0;
        }
        let mut through = writes.len();
        match self.0.at {
            At::Before(at) => {
                if let Some(position) = at.position(&seen.writes, writes) {
                    through = position;
                    seen.refused = Some(writes[position]);
                    // Here, so that writes in the same commit are not acknowledged either.
                    self.blow();
                }
            }
            At::Write(at) if at.position(&seen.writes, writes).is_some() => self.ask_to_close(),
            _ => {}
        }
        seen.writes.extend(&writes[..through]);
        through
    }

    fn stored(&self, log: Pages) {
        let mut seen = self.seen();
        seen.heard = seen.last.replace(log);
        if let At::After(at) = self.0.at
            && at.position(&[], &seen.writes).is_some()
        {
            self.blow();
        }
    }

    fn asked(&self) {
        self.seen().asked += 1;
    }

    fn hears(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let _ = self.0.close.subscribe().wait_for(|close| *close != Close::Asked).await;
            if self.is_blown() {
                pending::<()>().await;
            }
        })
    }

    fn left(&self) {
        let mut seen = self.seen();
        seen.left += 1;
        if seen.asked == seen.left {
            self.0.rests.notify_waiters();
        }
    }
}

impl fmt::Debug for Fuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fuse").field("writes", &self.writes()).field("blown", &self.is_blown()).finish_non_exhaustive()
    }
}
