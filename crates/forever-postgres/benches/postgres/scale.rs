//! Many sleeping and many finished fibers.
use std::time::Duration;

use forever::fiber::FiberState;
use forever_postgres::PostgresStore;
use forever_testkit::postgres::schema;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::Bench;
use crate::numbers::{float, ms, percentiles};
use crate::throughput::{Running, spawned};
use crate::work::{Meter, open, sleeper};

/// Memory of this process.
fn kilobytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

pub(crate) async fn sleeping(bench: &Bench) -> anyhow::Result<()> {
    const AT_ONCE: u64 = 200;
    const DUE: u64 = 100;
    let fibers = bench.some(100_000);
    let builder = PostgresStore::builder(&bench.url).schema(schema()).lease(Duration::from_secs(60));
    let meter = Meter::default();
    let forever = open(builder, &meter).await?;
    let (begun, before) = (Instant::now(), kilobytes());
    let mut callers = JoinSet::new();
    for caller in 0..AT_ONCE {
        let forever = forever.clone();
        callers.spawn(async move {
            for _ in (caller..fibers).step_by(usize::try_from(AT_ONCE)?) {
                forever.spawn(sleeper(3_600_000)).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = callers.join_next().await {
        done??;
    }
    println!("spawned_sleepers_per_s={:.0}", float(fibers) / begun.elapsed().as_secs_f64());
    while forever.fibers().state(FiberState::Running).limit(1).await?.fibers.len()
        + forever.fibers().state(FiberState::Pending).limit(1).await?.fibers.len()
        > 0
    {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("asleep_per_s={:.0}", float(fibers) / begun.elapsed().as_secs_f64());
    println!("sleepers={fibers} kilobytes_of_memory_for_sleepers={}", kilobytes().saturating_sub(before));
    let spent = bench.observer.spent().await?;
    let begun = Instant::now();
    tokio::time::sleep(bench.window()).await;
    if let Some(statements) = bench.observer.spent().await?.since(spent).statements {
        println!("statements_per_s_of_an_idle_worker={:.1}", float(statements.unsigned_abs()) / begun.elapsed().as_secs_f64());
    }
    for _ in 0..DUE {
        forever.spawn(sleeper(2_000)).await?;
    }
    while (meter.late_ms().len() as u64) < DUE {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let [p50, p99, max] = percentiles(meter.late_ms());
    println!("late_p50_ms={p50:.1} late_p99_ms={p99:.1} late_max_ms={max:.1}");
    forever.close().await?;
    Ok(())
}

pub(crate) async fn finished(bench: &Bench) -> anyhow::Result<()> {
    let fibers = bench.some(1_000_000);
    for finished in [0, fibers] {
        let schema = schema();
        let builder = PostgresStore::builder(&bench.url).schema(&schema).lease(Duration::from_secs(60));
        drop(builder.clone().connect().await?);
        let insert = format!(
            "INSERT INTO \"{schema}\".fibers (id, name, state, args, result, created_ms, changed_ms, finished_ms)
             SELECT 'past ' || n, 'work', 'completed', '{{\"number\":1}}', '1', n, n, n FROM generate_series(1, {finished}) n"
        );
        bench.observer.client.batch_execute(&insert).await?;
        bench.observer.client.batch_execute(&format!("ANALYZE \"{schema}\".fibers")).await?;
        let begun = Instant::now();
        let forever = open(builder, &Meter::default()).await?;
        println!("open_ms_{finished}_finished={:.1}", ms(begun.elapsed()));
        let (per_s, ..) = spawned(bench, &forever, 10).await?;
        println!("spawned_and_finished_per_s_10_at_once_{finished}_finished={per_s:.0}");
        let begun = Instant::now();
        let page = forever.fibers().state(FiberState::Completed).limit(50).await?.fibers.len();
        println!("list_page_ms_{finished}_finished={:.1}", ms(begun.elapsed()));
        anyhow::ensure!(page > 0, "there are finished fibers");
        forever.close().await?;
        let running = Running::start(bench, schema, 1, 100).await?;
        println!("steps_per_s_100_fibers_{finished}_finished={:.0}", running.rate(bench, bench.window()).await?.per_s);
        running.end().await?;
    }
    Ok(())
}
