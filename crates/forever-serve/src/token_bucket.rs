//! Token bucket: a burst, and a refill each second.
use std::time::Duration;

use tokio::time::Instant;

/// Rate limit: refill per second, and burst.
#[derive(Debug, Clone, Copy)]
pub(super) struct RateLimit {
    pub(super) per_second: u32,
    pub(super) burst: u32,
}

/// State of a token bucket.
#[derive(Debug)]
pub(super) struct TokenBucket {
    limit: RateLimit,
    left: f64,
    since: Instant,
}

impl TokenBucket {
    pub(super) fn new(limit: RateLimit) -> Self {
        TokenBucket { limit, left: f64::from(limit.burst.max(1)), since: Instant::now() }
    }

    /// Takes a token, if there is one.
    pub(super) fn takes_one(&mut self) -> bool {
        self.fill();
        if self.left < 1.0 {
            return false;
        }
        self.left -= 1.0;
        true
    }

    /// Whether the bucket is full again, so that it can be forgotten.
    pub(super) fn is_full(&mut self) -> bool {
        self.fill();
        self.left >= f64::from(self.limit.burst)
    }

    fn fill(&mut self) {
        let now = Instant::now();
        let passed: Duration = now.duration_since(self.since);
        self.since = now;
        let most = f64::from(self.limit.burst.max(1));
        self.left = (self.left + passed.as_secs_f64() * f64::from(self.limit.per_second)).min(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn so_many_at_once_and_so_many_each_second() {
        let mut rate = TokenBucket::new(RateLimit { per_second: 2, burst: 3 });
        assert!(rate.is_full());
        assert!((0..3).all(|_| rate.takes_one()));
        assert!(!rate.takes_one());
        tokio::time::advance(Duration::from_millis(499)).await;
        assert!(!rate.takes_one());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(rate.takes_one() && !rate.takes_one());
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(rate.is_full());
        assert_eq!((0..9).filter(|_| rate.takes_one()).count(), 3, "no more than at once");
    }
}
