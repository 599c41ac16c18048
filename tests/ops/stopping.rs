//! Random branches of a `steps!`, closed or cancelled at a random time: each body that is under way comes to its end, and no other begins.
//!
//! The oracle counts the bodies and knows their lengths. It knows nothing of what rests, or is cut off.
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forever::prelude::*;
use forever::testing::VirtualClock;
use forever::{Clock, Forever};
use forever_testkit::prng::Prng;
use forever_testkit::sizes;
use forever_testkit::waiting::{settled, soon};

/// Between two looks at the world.
const TICK: u64 = 50;

/// Shorter than the grace of a cancel, and than the deadline of a close.
const LONGEST: u64 = 3_000;

const WORKS: usize = 8;

/// What each body does, by its number.
#[derive(Debug, Clone, Copy)]
struct Work {
    lasts: u64,
    /// So many attempts fail.
    fails: u32,
    /// Between two attempts.
    pause: u64,
}

#[derive(Clone)]
struct Day(Arc<State>);

struct State {
    clock: VirtualClock,
    works: [Work; WORKS],
    limit: usize,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    now: u64,
    /// Number and time of each body that has begun, and of each that has ended.
    begun: Vec<(usize, u64)>,
    ended: Vec<(usize, u64)>,
    /// When pauses between two attempts end.
    pauses: Vec<u64>,
}

impl Day {
    fn new(prng: &mut Prng) -> Self {
        let works = std::array::from_fn(|_| Work {
            lasts: prng.below(LONGEST / TICK) * TICK,
            fails: [0, 0, 1, 3][prng.below(4_usize)],
            pause: [TICK, 2 * TICK, 500, 2_000, 4_900][prng.below(5_usize)],
        });
        let limit = 1 + prng.below(4_usize);
        Day(Arc::new(State { clock: VirtualClock::new(), works, limit, seen: Mutex::default() }))
    }

    async fn work(&self, n: usize) -> anyhow::Result<u64> {
        let work = self.0.works[n];
        self.seen(|seen| seen.begun.push((n, seen.now)));
        self.0.clock.sleep(Duration::from_millis(work.lasts)).await;
        let attempts = self.seen(|seen| {
            seen.ended.push((n, seen.now));
            seen.ended.iter().filter(|(ended, _)| *ended == n).count()
        });
        if attempts <= work.fails as usize {
            self.seen(|seen| seen.pauses.push(seen.now + work.pause));
            anyhow::bail!("not yet");
        }
        Ok(1)
    }

    fn retry(&self, n: usize) -> Retry<anyhow::Error> {
        let Work { fails, pause, .. } = self.0.works[n];
        Retry::times(fails).backoff(Backoff::fixed(Duration::from_millis(pause)))
    }

    fn seen<T>(&self, look: impl FnOnce(&mut Seen) -> T) -> T {
        look(&mut self.0.seen.lock().unwrap())
    }

    async fn tick(&self) {
        self.seen(|seen| seen.now += TICK);
        self.0.clock.advance(Duration::from_millis(TICK));
        settled().await;
    }
}

#[fiber]
async fn tuple_first(day: Res<Day>) -> anyhow::Result<u64> {
    let (a, b, c, d) = steps!(
        step!("effect", effect, retry = day.retry(0), day.work(0).await?),
        step!("step", retry = day.retry(1), day.work(1).await?),
        step!("effect again", effect, retry = day.retry(2), day.work(2).await?),
        step!("step again", retry = day.retry(3), day.work(3).await?)
    );
    let all = steps!(for n in 4..WORKS, limit = day.0.limit, effect, retry = day.retry(n), day.work(n).await?);
    Ok(a + b + c + d + all.iter().sum::<u64>())
}

#[fiber]
async fn list_first(day: Res<Day>) -> anyhow::Result<u64> {
    let all = steps!(for n in 0..WORKS - 2, retry = day.retry(n), day.work(n).await?);
    let (a, b) =
        steps!(step!("effect", effect, retry = day.retry(6), day.work(6).await?), step!("step", retry = day.retry(7), day.work(7).await?));
    Ok(a + b + all.iter().sum::<u64>())
}

/// How often the stop met what.
#[derive(Debug, Default)]
struct Met {
    /// Bodies under way.
    bodies: usize,
    /// Pauses that ended after the stop began and before the last body ended.
    pauses: usize,
}

async fn stop_at_random(seed: u64, cancels: bool, met: &mut Met) {
    let mut prng = Prng::new(seed);
    let day = Day::new(&mut prng);
    let builder = Forever::builder().in_memory().clock(day.0.clock.clone()).resource(day.clone());
    let forever = builder.fiber::<tuple_first>().fiber::<list_first>().open().await.unwrap();
    if prng.below(2) == 0 {
        forever.spawn(tuple_first()).id("day").await.unwrap();
    } else {
        forever.spawn(list_first()).id("day").await.unwrap();
    }
    settled().await;
    for _ in 0..prng.below(160) {
        day.tick().await;
    }
    let handle = forever.find_fiber::<u64>("day").await.unwrap();
    if handle.status().await.unwrap().state.is_final() {
        return forever.close().await.unwrap();
    }
    let at = day.seen(|seen| seen.now);
    let (before, under_way) = day.seen(|seen| (seen.begun.len(), seen.begun.len() - seen.ended.len()));
    let stopped = if cancels {
        forever.cancel("day", "it is late").await.unwrap();
        tokio::spawn(async move { handle.wait().await.is_err_and(|error| error.is_cancelled()) })
    } else {
        let closing = forever.close().into_future();
        tokio::spawn(async move { closing.await.is_ok() })
    };
    settled().await;
    while !stopped.is_finished() {
        day.tick().await;
        let late = day.seen(|seen| seen.now) - at;
        assert!(late <= LONGEST + 2 * TICK, "seed {seed}: it has not stopped after {late} ms: {:?}", day.0.works);
    }
    assert!(soon("the stop", stopped).await.unwrap(), "seed {seed}: it was not stopped as asked");
    let (begun, ended, pauses) = day.seen(|seen| (seen.begun.clone(), seen.ended.clone(), seen.pauses.clone()));
    assert_eq!(begun.len(), ended.len(), "seed {seed}: a body was cut off: {begun:?}, {ended:?}");
    assert_eq!(begun.len(), before, "seed {seed}: bodies began after the stop at {at}: {:?}", &begun[before..]);
    let over = ended.iter().map(|(_, time)| *time).max().unwrap_or_default();
    met.bodies += under_way;
    met.pauses += pauses.iter().filter(|due| **due > at && **due < over).count();
    forever.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn bodies_under_way_end_and_no_other_begins_when_random_branches_are_stopped() {
    for cancels in [false, true] {
        let (mut met, runs) = (Met::default(), sizes::crashes(500));
        for seed in 0..u64::from(runs) {
            stop_at_random(seed, cancels, &mut met).await;
        }
        println!("cancels={cancels} runs={runs} bodies_under_way={} pauses_that_ended={}", met.bodies, met.pauses);
        assert!(met.bodies > 0 && met.pauses > 0, "{met:?}");
    }
}
