//! Places of rows: where the newest version of a snapshot is in its table.
//!
//! A checkpoint finds its row through the index, which also lets Postgres clean up the page. While
//! a transaction stays open anywhere in the database, nothing can be cleaned up, and the index
//! leads to every old version of the row. The table grows then with every checkpoint, by which this
//! notices, and checkpoints read the rows at their places until it grows no more.
//!
//! Rows that are read at their places are not cleaned up, so the table goes on growing when it no
//! longer has to. Now and then one fiber alone goes through the index again: if its row stays in
//! its page, pages are cleaned up, and all fibers use the index.
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

/// Fewest checkpoints from which it can be told that the table does not grow: they would fill some
/// pages.
const ENOUGH: u64 = 3 * CHECKPOINTS_A_PAGE;

/// Time after which a fiber tries the index again. It is doubled each time in vain, as a try takes
/// the longer the more old versions there are.
const FIRST_TRY: Duration = Duration::from_secs(300);

/// Most time between two tries.
const RAREST_TRY: Duration = Duration::from_secs(3600);

/// Checkpoints of a try. A page that is cleaned up has room for the next version again and again.
const TRY: u32 = 100;

/// Moves to another page after which a try is in vain. The first may be from a page that was full.
const MOVES: u32 = 2;

/// Time after which a try of a fiber that makes no checkpoints is left to another one.
const SLOW_TRY: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    places: HashMap<Seq, String>,
    used: Option<Use>,
    last_look: Option<Instant>,
    /// Pages of the table at a look, and checkpoints since then.
    pages: Option<i64>,
    stored: u64,
}

/// Rows are read at their places.
#[derive(Debug)]
struct Use {
    /// When the next try is due, and the time between that and the one before.
    next_try: Instant,
    interval: Duration,
    tried: Option<Try>,
}

/// One fiber goes through the index.
#[derive(Debug)]
struct Try {
    fiber: Seq,
    begun: Instant,
    /// Page of its row.
    page: Option<String>,
    moves: u32,
    left: u32,
}

impl Places {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn are_used(&self) -> bool {
        self.lock().used.is_some()
    }

    /// The place of a fiber's snapshot, which a write is about to change; `None` where the index is
    /// to be used.
    pub(crate) fn take(&self, fiber: Seq) -> Option<String> {
        self.lock().take(fiber, Instant::now())
    }

    /// Keeps the place of a row that was written.
    pub(crate) fn keep(&self, fiber: Seq, place: String) {
        self.lock().keep(fiber, place, Instant::now());
    }

    pub(crate) fn forget(&self, fiber: Seq) {
        let mut inner = self.lock();
        inner.places.remove(&fiber);
        if let Some(used) = &mut inner.used {
            used.tried.take_if(|tried| tried.fiber == fiber);
        }
    }

    /// Looks now and then whether the table grows with every checkpoint.
    pub(crate) async fn look(&self, shared: &Shared) {
        {
            let inner = self.lock();
            if inner.stored == 0 || inner.last_look.is_some_and(|at| at.elapsed() < LOOK) {
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

/// The page of a place, which is `(page,number)`.
fn page(place: &str) -> Option<String> {
    place.strip_prefix('(')?.split_once(',').map(|(page, _)| page.to_owned())
}

impl Inner {
    fn take(&mut self, fiber: Seq, now: Instant) -> Option<String> {
        let place = self.places.remove(&fiber)?;
        let used = self.used.as_mut()?;
        if used.tried.is_none() && now >= used.next_try {
            used.tried = Some(Try { fiber, begun: now, page: page(&place), moves: 0, left: TRY });
        }
        used.tried.as_ref().is_none_or(|tried| tried.fiber != fiber).then_some(place)
    }

    fn keep(&mut self, fiber: Seq, place: String, now: Instant) {
        self.stored += 1;
        self.tried(fiber, &place, now);
        if self.places.len() >= MOST {
            self.places.clear();
        }
        self.places.insert(fiber, place);
    }

    /// A fiber that tries the index has stored a checkpoint there.
    fn tried(&mut self, fiber: Seq, place: &str, now: Instant) {
        let Some(used) = &mut self.used else { return };
        let Some(tried) = used.tried.as_mut().filter(|tried| tried.fiber == fiber) else { return };
        let page = page(place);
        tried.moves += u32::from(page != tried.page);
        tried.page = page;
        tried.left -= 1;
        if tried.moves >= MOVES {
            used.tried = None;
            used.interval = RAREST_TRY.min(2 * used.interval);
            used.next_try = now + used.interval;
        } else if tried.left == 0 {
            self.used = None;
            tracing::debug!("old versions of snapshots are cleaned up again");
        }
    }

    fn looked(&mut self, now: Instant, pages: i64) {
        if let Some(used) = &mut self.used {
            used.tried.take_if(|tried| now.duration_since(tried.begun) > SLOW_TRY);
        }
        self.last_look = Some(now);
        let Some(before) = self.pages else {
            (self.pages, self.stored) = (Some(pages), 0);
            return;
        };
        let more = u64::try_from(pages - before).unwrap_or(0);
        let grows = more > 2 && more.saturating_mul(CHECKPOINTS_A_PAGE) > self.stored;
        if !grows && self.stored < ENOUGH {
            return;
        }
        self.pages = Some(pages);
        let stored = std::mem::take(&mut self.stored);
        let was = self.used.is_some();
        if !grows {
            self.used = None;
        } else if !was {
            self.used = Some(Use { next_try: now + FIRST_TRY, interval: FIRST_TRY, tried: None });
        }
        if was != grows {
            tracing::debug!(pages, more, stored, used = grows, "how checkpoints find their rows has changed");
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
    }

    #[tokio::test]
    async fn slow_checkpoints_are_counted_until_they_tell_something() {
        let (places, begun) = (Places::default(), Instant::now());
        let mut pages = 100;
        let mut used_after = None;
        for second in 0..100 {
            // Two pages a second.
            pages += 2;
            if stores(&places, 40, begun + Duration::from_secs(second), pages).is_some() {
                used_after.get_or_insert(second);
            }
        }
        assert_eq!(used_after, Some(2));
    }

    /// Lets a fiber store checkpoints; says of each whether it went through the index.
    fn through_the_index(places: &Places, now: Instant, fiber: Seq, page: impl Fn(u32) -> u32, checkpoints: u32) -> u32 {
        let (mut inner, mut through) = (places.lock(), 0);
        for n in 0..checkpoints {
            through += u32::from(inner.take(fiber, now).is_none());
            inner.keep(fiber, format!("({},{n})", page(n)), now);
        }
        through
    }

    #[tokio::test]
    async fn one_fiber_tries_the_index_and_the_others_do_not_wait_for_it() {
        let (places, mut now) = (Places::default(), Instant::now());
        stores(&places, 2000, now, 100);
        let _ = stores(&places, 2000, now, 200);
        places.keep(7, "(1,2)".to_owned());
        places.keep(8, "(1,3)".to_owned());
        let through = |now, fiber, a_page: u32, checkpoints| through_the_index(&places, now, fiber, |n| n / a_page, checkpoints);
        assert_eq!(through(now, 7, 24, 1000), 0, "it is not due");
        let mut interval = FIRST_TRY;
        for _ in 0..6 {
            now += interval;
            // Nothing is cleaned up: each page has room for 24 versions.
            let tried = through(now, 7, 24, 1000);
            assert!((25..=50).contains(&tried), "{tried}");
            interval = RAREST_TRY.min(2 * interval);
            assert_eq!(through(now + interval - LOOK, 8, 24, 100), 0, "the next is due after twice the time");
        }
        assert_eq!(interval, RAREST_TRY);
        now += interval;
        assert_eq!((through(now, 7, 1000, 50), through(now, 8, 24, 100)), (50, 0), "one fiber alone");
        // One that ends, or makes no checkpoints for long, leaves it to another.
        places.forget(7);
        assert_eq!(through(now, 8, 1000, 10), 10);
        now += 2 * SLOW_TRY;
        places.lock().looked(now, 300);
        places.keep(9, "(0,2)".to_owned());
        assert_eq!((through(now, 9, 1000, 99), through(now, 8, 24, 100)), (99, 0));
        assert!(places.are_used());
        assert_eq!(through(now, 9, 1000, 1), 1);
        assert!(!places.are_used(), "its row stayed in its page");
    }
}
