//! `Fuse`: stops a runtime at a chosen write.
use std::fmt;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    /// Number of the write at which it blows, from 1.
    at: u64,
    after: bool,
    seen: Mutex<Seen>,
    blown: watch::Sender<bool>,
    /// Told when the last caller that waits for an answer has it.
    rests: Notify,
}

/// Observed writes, in the order in which they are carried out.
#[derive(Debug, Default)]
struct Seen {
    writes: Vec<&'static str>,
    /// Number of calls, and how many of them wait no longer.
    asked: u64,
    left: u64,
    /// Length of the write-ahead log after the last commit, and after the last acknowledged one.
    last: Option<Pages>,
    heard: Option<Pages>,
}

impl Fuse {
    fn new(at: u64, after: bool) -> Self {
        Fuse(Arc::new(Inner { at, after, seen: Mutex::default(), blown: watch::Sender::new(false), rests: Notify::new() }))
    }

    /// Only counts.
    pub fn never() -> Self {
        Fuse::new(u64::MAX, true)
    }

    /// Blows before the `n`-th write, from 1: it is not stored.
    pub fn before(n: u64) -> Self {
        Fuse::new(n, false)
    }

    /// Blows after the `n`-th write, from 1: it is stored, but not acknowledged.
    ///
    /// Writes that share its commit are stored with it.
    pub fn after(n: u64) -> Self {
        Fuse::new(n, true)
    }

    /// Number of writes that have begun.
    pub fn writes(&self) -> u64 {
        self.seen().writes.len() as u64
    }

    /// Names of the writes that have begun, in the order of their commits.
    pub(super) fn what(&self) -> Vec<&'static str> {
        self.seen().writes.clone()
    }

    /// Number of writes that have begun; `None` while a caller waits for an answer.
    pub(super) fn idle(&self) -> Option<u64> {
        let seen = self.seen();
        (seen.asked == seen.left).then_some(seen.writes.len() as u64)
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
        let left = self.0.at.saturating_sub(1).saturating_sub(seen.writes.len() as u64);
        if !self.0.after && left < through as u64 {
            through = usize::try_from(left).unwrap_or(through);
            // Here, so that writes in the same commit are not acknowledged either.
            self.blow();
        }
        seen.writes.extend(&writes[..through]);
        through
    }

    fn stored(&self, log: Pages) {
        let mut seen = self.seen();
        seen.heard = seen.last.replace(log);
        if self.0.after && self.0.at <= seen.writes.len() as u64 {
            self.blow();
        }
    }

    fn asked(&self) {
        self.seen().asked += 1;
    }

    fn hears(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
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
