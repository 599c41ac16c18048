//! A value that costs a walk over an index: read again only after a while, the longer the longer it
//! took.
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long a value is good for, at least.
const FRESH: Duration = Duration::from_millis(400);

/// How many times as long as reading it took.
const REST: u32 = 20;

/// A value, when it was read, and for how long it is good.
#[derive(Debug)]
pub(crate) struct Cached<T>(Mutex<Option<(Instant, Duration, T)>>);

impl<T> Default for Cached<T> {
    fn default() -> Self {
        Cached(Mutex::new(None))
    }
}

impl<T: Clone> Cached<T> {
    /// The value, read at most a while ago. Those that ask at once share one read.
    pub(crate) async fn get<E>(&self, read: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let mut value = self.0.lock().await;
        if let Some((at, good_for, value)) = &*value
            && at.elapsed() < *good_for
        {
            return Ok(value.clone());
        }
        let begun = Instant::now();
        let new = read.await?;
        let good_for = (begun.elapsed() * REST).max(FRESH);
        *value = Some((Instant::now(), good_for, new.clone()));
        Ok(new)
    }
}
