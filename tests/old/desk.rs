//! What the fibers of all these programs work with, and a clock that stands still.
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use forever::{Clock, SystemClock};

/// The life in which a test finishes what the two lives of a writer have left.
pub(crate) const LAST: u32 = 3;

/// Where work is done: notes what was done, and holds fibers where they are to be when their process dies.
#[derive(Clone)]
pub(crate) struct Desk(Arc<Inner>);

struct Inner {
    /// Which process it is of those that have the database one after the other, from 1.
    life: u32,
    holds: Vec<&'static str>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    done: Vec<String>,
    held: BTreeSet<String>,
}

impl Desk {
    /// `holds` says in which life which work is begun and not done.
    pub(crate) fn new(life: u32, holds: &[(u32, &'static str)]) -> Self {
        let holds = holds.iter().filter(|(of, _)| *of == life).map(|(_, work)| *work).collect();
        Desk(Arc::new(Inner { life, holds, seen: Mutex::default() }))
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.seen.lock().unwrap()
    }

    pub(crate) fn life(&self) -> u32 {
        self.0.life
    }

    /// Does what can be told by its name; gives the length of that.
    pub(crate) async fn work(&self, name: &str) -> anyhow::Result<usize> {
        if self.0.holds.contains(&name) {
            self.seen().held.insert(name.to_owned());
            std::future::pending::<()>().await;
        }
        self.seen().done.push(name.to_owned());
        Ok(name.len())
    }

    /// What is to be held and is not yet.
    pub(crate) fn missing(&self) -> Vec<&'static str> {
        self.0.holds.iter().copied().filter(|work| !self.seen().held.contains(*work)).collect()
    }

    /// What was done, in alphabetical order.
    pub(crate) fn done(&self) -> Vec<String> {
        let mut done = self.seen().done.clone();
        done.sort_unstable();
        done
    }
}

/// The time is always 2024-01-01 00:00:00 UTC, where a `VirtualClock` begins; sleeps take as long as they do.
#[derive(Debug, Default)]
pub(crate) struct Standing(SystemClock);

impl Clock for Standing {
    fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_704_067_200)
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.0.sleep(duration)
    }

    fn id(&self) -> String {
        self.0.id()
    }
}
