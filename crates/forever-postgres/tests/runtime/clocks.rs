//! Workers whose clocks differ: what is due is decided by the clock of the server.
use std::pin::Pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use forever::fiber::FiberState;
use forever::prelude::*;
use forever::store::PostgresStore;
use forever::{Builder, Clock, Error, SystemClock};
use forever_postgres::tokio_postgres::{self, NoTls};
use forever_testkit::waiting::{eventually, soon};

use crate::cluster;

/// The clock of a machine whose time is wrong by ten minutes.
#[derive(Debug, Clone, Copy)]
enum Skew {
    Ahead,
    Behind,
}

const WRONG_BY: Duration = Duration::from_secs(600);

#[derive(Debug)]
struct Skewed(SystemClock, Skew);

impl Clock for Skewed {
    fn now(&self) -> SystemTime {
        match self.1 {
            Skew::Ahead => self.0.now() + WRONG_BY,
            Skew::Behind => self.0.now() - WRONG_BY,
        }
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.0.sleep(duration)
    }

    fn id(&self) -> String {
        self.0.id()
    }
}

#[fiber]
async fn sleeps(ctx: &FiberContext, ms: u64) -> Result<u64, Error> {
    sleep!(Duration::from_millis(ms));
    Ok(step!("now", now_ms(ctx)))
}

fn now_ms(ctx: &FiberContext) -> u64 {
    u64::try_from(ctx.clock().now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

#[fiber]
async fn receives(ms: u64) -> Result<bool, Error> {
    let word: Option<String> = recv!("word", timeout = Duration::from_millis(ms));
    Ok(word.is_some())
}

async fn builder(url: &str, schema: &str) -> Builder {
    let store = PostgresStore::builder(url).schema(schema).lease(Duration::from_secs(3600)).connect().await.unwrap();
    Forever::builder().store(store).fiber::<sleeps>().fiber::<receives>()
}

const LONG_MS: u64 = 120_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_whose_clock_is_wrong_wakes_nothing_early_and_stores_no_wrong_deadline() {
    let Some(url) = cluster::url() else { return };
    for skew in [Skew::Ahead, Skew::Behind] {
        let schema = cluster::schema();
        let right = builder(&url, &schema).await.open().await.unwrap();
        let wrong = builder(&url, &schema).await.clock(Skewed(SystemClock::new(), skew)).open().await.unwrap();
        let mut waiting = Vec::new();
        for (name, worker) in [("right", &right), ("wrong", &wrong)] {
            worker.spawn(sleeps(LONG_MS)).id(format!("{name} sleeps")).await.unwrap();
            worker.spawn(receives(LONG_MS)).id(format!("{name} receives")).await.unwrap();
            waiting.extend([format!("{name} sleeps"), format!("{name} receives")]);
        }
        let state = async |id: &String| right.find_fiber::<u64>(id).await.unwrap().status().await.unwrap().state;
        for id in &waiting {
            eventually("it waits", async || state(id).await == FiberState::Waiting).await;
        }
        right.close().await.unwrap();
        // Short waits: their end is that of one look, at least, at everything that is due.
        for _ in 0..3 {
            let begun = SystemClock::new().now();
            let woken_ms = soon("it wakes", wrong.run(sleeps(50))).await.unwrap();
            let woken = UNIX_EPOCH + Duration::from_millis(woken_ms);
            let took = woken.duration_since(begun).expect("the time in a fiber is that of the server");
            assert!(took < WRONG_BY / 2, "{took:?}");
        }
        for id in &waiting {
            let status = wrong.find_fiber::<u64>(id).await.unwrap().status().await.unwrap();
            assert_eq!(status.state, FiberState::Waiting, "{skew:?}: {id}");
        }
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let left = format!("SELECT (w.due_ms - extract(epoch FROM clock_timestamp()) * 1000)::bigint FROM \"{schema}\".waits w");
        let left: Vec<i64> = client.query(&left, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
        assert_eq!(left.len(), waiting.len());
        assert!(left.iter().all(|left| (0..=LONG_MS + 1000).contains(&u64::try_from(*left).unwrap_or(u64::MAX))), "{skew:?}: {left:?}");
        wrong.close().await.unwrap();
    }
}
