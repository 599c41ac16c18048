//! Places of rows: where the newest version of a snapshot is in its table.
//!
//! A checkpoint finds its row through the index, which also lets Postgres clean up the page. While
//! a transaction stays open anywhere in the database, nothing can be cleaned up, and the index
//! leads to every old version of the row. The table grows then with every checkpoint, by which this
//! notices, and checkpoints read the rows at their places until it grows no more.
//!
//! A place is a hint: the row there has to have the fiber, the epoch and the number that are
//! expected.
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forever_store::Seq;
use tokio::time::Instant;

use crate::call::{Kind, Shared, Work};
use crate::sql::args;

/// Most places that are kept.
const MOST: usize = 100_000;

/// Time between two looks at the size of the table, while checkpoints are stored.
const LOOK: Duration = Duration::from_secs(1);

/// Checkpoints for each page by which the table grows while nothing is cleaned up. A page has room
/// for fewer.
const CHECKPOINTS_A_PAGE: u64 = 100;

/// Time after which rows are found through the index again, to see whether they can be.
const LONGEST: Duration = Duration::from_secs(300);

#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    places: HashMap<Seq, String>,
    /// Since when rows are read at their places.
    used_since: Option<Instant>,
    /// Checkpoints since the last look.
    stored: u64,
    /// The last look, and the pages of the table then.
    look: Option<(Instant, i64)>,
}

impl Places {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn are_used(&self) -> bool {
        self.lock().used_since.is_some()
    }

    /// The place of a fiber's snapshot, which a write is about to change; `None` where the index is
    /// to be used.
    pub(crate) fn take(&self, fiber: Seq) -> Option<String> {
        let mut inner = self.lock();
        let place = inner.places.remove(&fiber);
        place.filter(|_| inner.used_since.is_some())
    }

    /// Keeps the place of a row that was written.
    pub(crate) fn keep(&self, fiber: Seq, place: String) {
        let mut inner = self.lock();
        inner.stored += 1;
        if inner.places.len() >= MOST {
            inner.places.clear();
        }
        inner.places.insert(fiber, place);
    }

    pub(crate) fn forget(&self, fiber: Seq) {
        self.lock().places.remove(&fiber);
    }

    /// Looks now and then whether the table grows with every checkpoint.
    pub(crate) async fn look(&self, shared: &Shared) {
        {
            let inner = self.lock();
            if inner.stored == 0 || inner.look.is_some_and(|(at, _)| at.elapsed() < LOOK) {
                return;
            }
        }
        let size: Work<(), i64> = |tx, ()| {
            Box::pin(async move {
                let sql = "SELECT pg_relation_size('@snapshots') / current_setting('block_size')::bigint AS pages";
                tx.one(sql, args![]).await?.int("pages")
            })
        };
        // Where it cannot be read, everything stays as it is until the next look.
        if let Ok(pages) = shared.carry_out("read the size of a table", Kind::Read, &(), size).await {
            self.lock().looked(Instant::now(), pages);
        }
    }
}

impl Inner {
    fn looked(&mut self, now: Instant, pages: i64) {
        let stored = std::mem::take(&mut self.stored);
        let Some((_, before)) = self.look.replace((now, pages)) else { return };
        let more = u64::try_from(pages - before).unwrap_or(0);
        let grows = more > 2 && more.saturating_mul(CHECKPOINTS_A_PAGE) > stored;
        let was = self.used_since;
        self.used_since = match was {
            Some(since) if grows && now.duration_since(since) < LONGEST => Some(since),
            None if grows => Some(now),
            _ => None,
        };
        if was.is_some() != self.used_since.is_some() {
            tracing::debug!(pages, more, stored, used = self.used_since.is_some(), "how checkpoints find their rows has changed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stores(places: &Places, checkpoints: u64, at: Instant, pages: i64) -> Option<String> {
        for _ in 0..checkpoints {
            places.keep(7, "(1,2)".to_owned());
        }
        places.lock().looked(at, pages);
        places.take(7)
    }

    #[tokio::test]
    async fn places_are_used_while_the_table_grows_with_every_checkpoint() {
        let (places, begun) = (Places::default(), Instant::now());
        let at = |seconds| begun + Duration::from_secs(seconds);
        let place = Some("(1,2)".to_owned());
        assert_eq!(stores(&places, 2000, at(0), 100), None, "nothing is known of its growth");
        assert_eq!(stores(&places, 2000, at(1), 110), None, "new fibers");
        assert_eq!(stores(&places, 2000, at(2), 190), place);
        assert_eq!(stores(&places, 2000, at(3), 270), place);
        assert_eq!(places.take(7), None, "it is known once");
        assert_eq!(stores(&places, 2000, at(4), 270), None, "old versions are cleaned up again");
        assert_eq!(stores(&places, 2000, at(5), 350), place);
        places.keep(7, "(3,4)".to_owned());
        places.forget(7);
        assert_eq!(places.take(7), None);
        assert_eq!(stores(&places, 2000, at(306), 430), None, "it is tried now and then");
        assert_eq!(stores(&places, 2000, at(307), 510), place);
    }
}
