//! Steps and fibers a second.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forever::Forever;
use forever_postgres::PostgresStore;
use forever_testkit::postgres::schema;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::Bench;
use crate::floors;
use crate::numbers::float;
use crate::spent::{Spent, connect};
use crate::work::{Meter, open, short, work};

/// Steps of a while.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    pub(crate) per_s: f64,
    steps: u64,
    spent: Spent,
}

/// Workers, with fibers that make steps until they are closed.
pub(crate) struct Running {
    meter: Meter,
    workers: Vec<Forever>,
    pub(crate) schema: String,
}

impl Running {
    pub(crate) async fn start(bench: &Bench, schema: String, workers: usize, fibers: u64) -> anyhow::Result<Self> {
        let (meter, mut opened) = (Meter::default(), Vec::new());
        for _ in 0..workers {
            let builder = PostgresStore::builder(&bench.url).schema(&schema).lease(Duration::from_secs(60));
            opened.push(open(builder, &meter).await?);
        }
        for n in 0..fibers {
            opened[usize::try_from(n)? % workers].spawn(work(n + 1)).await?;
        }
        let begun = meter.steps();
        while meter.steps() < begun + 2 * fibers {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(bench.window() / 5).await;
        Ok(Running { meter, workers: opened, schema })
    }

    /// Measures for a while.
    pub(crate) async fn rate(&self, bench: &Bench, time: Duration) -> anyhow::Result<Rate> {
        let before = bench.observer.spent().await?;
        let (begun, steps) = (Instant::now(), self.meter.steps());
        tokio::time::sleep(time).await;
        let (took, steps) = (begun.elapsed(), self.meter.steps() - steps);
        let spent = bench.observer.spent().await?.since(before);
        Ok(Rate { per_s: float(steps) / took.as_secs_f64(), steps, spent })
    }

    pub(crate) async fn end(self) -> anyhow::Result<()> {
        self.meter.end();
        for worker in self.workers {
            worker.close().await?;
        }
        Ok(())
    }
}

pub(crate) async fn steps(bench: &Bench, rows_floor: f64) -> anyhow::Result<()> {
    for workers in [1, 3] {
        for fibers in [1, 10, 100, 1000] {
            // The speed of a disk that others use as well changes from minute to minute.
            let before = floors::one_row(bench).await?;
            bench.observer.forget_statements().await?;
            let running = Running::start(bench, schema(), workers, fibers).await?;
            let Rate { per_s, steps, spent } = running.rate(bench, bench.window()).await?;
            let of = format!("{fibers}_fibers_{workers}_workers");
            let schema = running.schema.clone();
            if bench.lists_statements {
                bench.observer.list_statements().await?;
            }
            running.end().await?;
            let floor = f64::midpoint(before, floors::one_row(bench).await?);
            println!("floor_beside_{of}={floor:.0} steps_per_s_{of}={per_s:.0}");
            println!("to_one_row_floor_{of}={:.2} to_1000_rows_floor_{of}={:.3}", per_s / floor, per_s / rows_floor);
            let a_step = |count: i64| float(count.unsigned_abs()) / float(steps.max(1));
            let statements = spent.statements.map_or_else(|| "unknown".to_owned(), |count| format!("{:.4}", a_step(count)));
            println!(
                "statements_per_step_{of}={statements} commits_per_step_{of}={:.4} wal_bytes_per_step_{of}={:.0}",
                a_step(spent.commits),
                a_step(spent.wal_bytes)
            );
            // The server adds up what a session has done a second after it.
            tokio::time::sleep(Duration::from_secs(1)).await;
            if let Some(hot) = bench.observer.hot(&schema).await? {
                println!("hot_percent_{of}={hot}");
            }
        }
    }
    Ok(())
}

/// Fibers of one step, each waited for, by `at_once` callers.
pub(crate) async fn spawned(bench: &Bench, forever: &Forever, at_once: u64) -> anyhow::Result<(f64, Spent, u64)> {
    let (made, until) = (Arc::new(AtomicU64::new(0)), Instant::now() + bench.window());
    let (begun, before) = (Instant::now(), bench.observer.spent().await?);
    let mut callers = JoinSet::new();
    for caller in 0..at_once {
        let (forever, made) = (forever.clone(), Arc::clone(&made));
        callers.spawn(async move {
            while Instant::now() < until {
                forever.run(short(caller)).await?;
                made.fetch_add(1, Ordering::Relaxed);
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = callers.join_next().await {
        done??;
    }
    let made = made.load(Ordering::Relaxed);
    Ok((float(made) / begun.elapsed().as_secs_f64(), bench.observer.spent().await?.since(before), made))
}

pub(crate) async fn spawns(bench: &Bench) -> anyhow::Result<()> {
    let builder = PostgresStore::builder(&bench.url).schema(schema()).lease(Duration::from_secs(60));
    let forever = open(builder, &Meter::default()).await?;
    for at_once in [1, 10, 100] {
        bench.observer.forget_statements().await?;
        let (per_s, spent, made) = spawned(bench, &forever, at_once).await?;
        let floor = floors::one_row(bench).await?;
        println!("floor_beside={floor:.0} spawned_and_finished_per_s_{at_once}_at_once={per_s:.0}");
        let each = |count: i64| float(count.unsigned_abs()) / float(made.max(1));
        let statements = spent.statements.map_or_else(|| "unknown".to_owned(), |count| format!("{:.1}", each(count)));
        println!(
            "statements_per_fiber_{at_once}_at_once={statements} commits_per_fiber_{at_once}_at_once={:.2} wal_bytes_per_fiber_{at_once}_at_once={:.0}",
            each(spent.commits),
            each(spent.wal_bytes)
        );
        if bench.lists_statements {
            bench.observer.list_statements().await?;
        }
    }
    forever.close().await?;
    Ok(())
}

/// Steps while a transaction that has read once stays open: no old version of a row is cleaned up.
pub(crate) async fn pinned(bench: &Bench) -> anyhow::Result<()> {
    const WINDOWS: u32 = 6;
    for fibers in [1, 1000] {
        let running = Running::start(bench, schema(), 1, fibers).await?;
        println!("floor_before_pin={:.0}", floors::one_row(bench).await?);
        println!("steps_per_s_{fibers}_fibers_before_pin={:.0}", running.rate(bench, bench.window()).await?.per_s);
        let idle = connect(&bench.url).await?;
        idle.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM forever_floor").await?;
        let begun = Instant::now();
        for _ in 0..WINDOWS {
            let rate = running.rate(bench, bench.pinned / (2 * WINDOWS)).await?;
            println!("steps_per_s_{fibers}_fibers_pinned_for_{}_s={:.0}", begun.elapsed().as_secs(), rate.per_s);
        }
        idle.batch_execute("ROLLBACK").await?;
        tokio::time::sleep(bench.window()).await;
        println!("floor_after_pin={:.0}", floors::one_row(bench).await?);
        println!("steps_per_s_{fibers}_fibers_after_pin={:.0}", running.rate(bench, bench.window()).await?.per_s);
        if bench.lists_statements {
            bench.observer.list_statements().await?;
        }
        running.end().await?;
    }
    Ok(())
}
