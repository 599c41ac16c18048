//! Ending the world at a chosen write.
use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

/// Stops a runtime at a write to its database, on either side of it: what comes after is as if the process had died there.
///
/// Given to the [builder](crate::Builder::fuse). From the moment at which it has blown, no write of that runtime is carried out or answered any
/// more; a test then drops the runtime and opens the file anew.
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
    /// The write at which it blows, from 1.
    at: u64,
    after: bool,
    writes: AtomicU64,
    blown: watch::Sender<bool>,
}

impl Fuse {
    fn new(at: u64, after: bool) -> Self {
        Fuse(Arc::new(Inner { at, after, writes: AtomicU64::new(0), blown: watch::Sender::new(false) }))
    }

    /// Only counts.
    pub fn never() -> Self {
        Fuse::new(u64::MAX, true)
    }

    /// Blows before the `n`-th write, from 1: it is not stored.
    pub fn before(n: u64) -> Self {
        Fuse::new(n, false)
    }

    /// Blows after the `n`-th write, from 1: it is stored, but nobody hears of it.
    pub fn after(n: u64) -> Self {
        Fuse::new(n, true)
    }

    /// How many writes have begun.
    pub fn writes(&self) -> u64 {
        self.0.writes.load(Ordering::Relaxed)
    }

    /// Ready when it has blown.
    pub async fn blown(&self) {
        // The sender is in `self`, so the wait cannot fail.
        let _ = self.0.blown.subscribe().wait_for(|blown| *blown).await;
    }

    /// Blows it now.
    pub fn blow(&self) {
        self.0.blown.send_replace(true);
    }

    /// Carries out a write if it may be, and answers if that may be.
    pub(crate) async fn guard<T>(&self, write: impl Future<Output = T>) -> T {
        let n = self.0.writes.fetch_add(1, Ordering::Relaxed) + 1;
        if n == self.0.at && !self.0.after {
            self.blow();
        }
        self.go_on().await;
        let done = write.await;
        if n == self.0.at && self.0.after {
            self.blow();
        }
        self.go_on().await;
        done
    }

    async fn go_on(&self) {
        if *self.0.blown.borrow() {
            pending::<()>().await;
        }
    }
}

impl fmt::Debug for Fuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fuse").field("writes", &self.writes()).field("blown", &*self.0.blown.borrow()).finish_non_exhaustive()
    }
}
