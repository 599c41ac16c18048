//! Benchmark of the inspector: pages out of many fibers, and what a page costs that is open.
//!
//! ```text
//! cargo bench -p benches --bench inspect              # a minute
//! cargo bench -p benches --bench inspect -- --quick   # some seconds, rough
//! cargo bench -p benches --bench inspect -- --fibers 1000000 --running 1000
//! cargo bench -p benches --bench inspect -- --serve   # for tests/web/many.mjs, until its input ends
//! ```
//!
//! Pages: requests to the API of a database with a million finished fibers and two thousand in
//! trouble, over loopback, one after the other. Live: fibers that only make checkpoints, with and
//! without a client that does what an open page does, in turns: it follows the events, and asks for
//! the overview and the running fibers half a second after each. Prints one `key=value` a line;
//! docs/guide/src/internals/performance.md has figures.
#![forbid(unsafe_code)]

#[path = "support/numbers.rs"]
mod numbers;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use forever::fiber::History;
use forever::inspect::Inspector;
use forever::prelude::*;
use forever::{Durability, Retention};
use tokio::net::TcpListener;

use numbers::{float, median, ms, percentiles, print_load};

/// Statement that makes finished fibers of twenty functions, one in a hundred failed.
const FINISHED: &str = "
    INSERT INTO fibers (id, name, state, args, result, reason, key, created_ms, changed_ms, finished_ms)
    WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?1)
    SELECT format('01960000-0000-7000-8000-%012d', n), format('function_%02d', n % 20),
        iif(n % 100 = 0, 'failed', 'completed'), format('{\"number\":%d}', n), iif(n % 100 = 0, NULL, n),
        iif(n % 100 = 0, 'no', NULL), format('order-%d', n), n, n, n FROM n";

/// Statements that make a thousand fibers with a step that is retried, and a thousand with an effect
/// in doubt, of a function that is not registered.
const IN_TROUBLE: &str = "
    INSERT INTO fibers (id, name, state, args, created_ms, changed_ms)
    WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 2000)
    SELECT format('01970000-0000-7000-8000-%012d', n), 'function_07', iif(n % 2 = 0, 'waiting', 'parked'), '{}', n, n FROM n;
    INSERT INTO snapshots (fiber, number, data) SELECT seq, 1, '{}' FROM fibers WHERE state IN ('waiting', 'parked');
    INSERT INTO waits (fiber, topic) SELECT seq, 'never' FROM fibers WHERE state = 'waiting';
    INSERT INTO ops (fiber, number, id, kind, function, step, state, error, next_ms, started_ms, changed_ms)
    SELECT seq, 1, 'op', iif(state = 'waiting', 'step', 'effect'), name, 'charge', 'started', iif(state = 'waiting', 'no answer', NULL),
        iif(state = 'waiting', 9000000000000, NULL), seq, seq FROM fibers WHERE state IN ('waiting', 'parked');";

/// Steps that all fibers have made.
#[derive(Clone, Default)]
struct Steps(Arc<AtomicU64>);

#[fiber]
async fn count(steps: Res<Steps>) -> anyhow::Result<u64> {
    let mut n = 0_u64;
    loop {
        n = step!("count", {
            steps.0.fetch_add(1, Ordering::Relaxed);
            n + 1
        });
    }
}

async fn open(path: &Path, steps: &Steps) -> anyhow::Result<Forever> {
    let builder = Forever::builder().sqlite(path).durability(Durability::Process).history(History::off()).retention(Retention::forever());
    Ok(builder.resource(steps.clone()).fiber::<count>().open().await?)
}

/// Serves the inspector, and gives its address.
async fn serve(forever: &Forever) -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(Inspector::new(forever).serve(listener));
    Ok(format!("http://{address}/api"))
}

async fn get(client: &reqwest::Client, url: &str) -> anyhow::Result<serde_json::Value> {
    let answer = client.get(url).send().await?;
    ensure!(answer.status().is_success(), "{url}: {}", answer.status());
    Ok(serde_json::from_slice(&answer.bytes().await?)?)
}

/// A database with so many finished fibers, open.
async fn filled(dir: &Path, fibers: u64) -> anyhow::Result<Forever> {
    let path = dir.join("pages.db");
    open(&path, &Steps::default()).await?.close().await?;
    let conn = rusqlite::Connection::open(&path)?;
    conn.pragma_update(None, "synchronous", "OFF")?;
    conn.execute(FINISHED, [i64::try_from(fibers)?])?;
    conn.execute_batch(IN_TROUBLE)?;
    drop(conn);
    println!("pages_fibers={fibers}\npages_file_bytes={}", std::fs::metadata(&path)?.len());
    open(&path, &Steps::default()).await
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
async fn pages(dir: &Path, fibers: u64, rounds: usize) -> anyhow::Result<()> {
    let forever = filled(dir, fibers).await?;
    let (url, client) = (serve(&forever).await?, reqwest::Client::new());
    for (what, of) in [
        ("newest", "fibers?limit=100"),
        ("oldest", "fibers?limit=100&oldest_first=true"),
        ("function", "fibers?limit=100&name=function_07"),
        ("state", "fibers?limit=100&state=failed"),
        ("function_and_state", "fibers?limit=100&name=function_00&state=failed"),
        ("key", "fibers?limit=100&key=order-500"),
        ("retrying", "fibers?limit=50&retrying=true"),
        ("overview", "overview"),
        ("functions", "functions"),
        ("positions", "functions/count"),
        ("in_doubt", "ops"),
    ] {
        // Each page follows the one before, where there is another.
        let (mut after, mut taken) = (String::new(), Vec::new());
        for _ in 0..rounds {
            let begun = Instant::now();
            let page = get(&client, &format!("{url}/{of}{after}")).await.with_context(|| of.to_owned())?;
            taken.push(ms(begun.elapsed()));
            let next = page["next"].as_str().map(str::to_owned).or_else(|| page["next"].is_object().then(|| page["next"].to_string()));
            after = next.map(|next| format!("&after={}", urlencoded(&next))).unwrap_or_default();
        }
        let first = taken.first().copied().unwrap_or(f64::NAN);
        let [p50, p99, max] = percentiles(taken);
        println!("page_{what}_first_ms={first:.2}\npage_{what}_p50_ms={p50:.2}\npage_{what}_p99_ms={p99:.2}\npage_{what}_max_ms={max:.2}");
    }
    Ok(forever.close().await?)
}

/// A value of a query, with every byte escaped that has a meaning there.
fn urlencoded(text: &str) -> String {
    let escaped = |byte: u8| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(escaped).collect()
}

/// Does what an open page does, for ever.
async fn watch(client: reqwest::Client, url: String) -> anyhow::Result<()> {
    let mut events = client.get(format!("{url}/events")).send().await?;
    while events.chunk().await?.is_some() {
        tokio::time::sleep(Duration::from_millis(500)).await;
        get(&client, &format!("{url}/overview")).await?;
        get(&client, &format!("{url}/fibers?state=running&limit=50")).await?;
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
async fn live(dir: &Path, running: u64, windows: usize, window: Duration) -> anyhow::Result<()> {
    let steps = Steps::default();
    let forever = open(&dir.join("live.db"), &steps).await?;
    let (url, client) = (serve(&forever).await?, reqwest::Client::new());
    for _ in 0..running {
        forever.spawn(count()).await?;
    }
    let measured = async || {
        let (before, begun) = (steps.0.load(Ordering::Relaxed), Instant::now());
        tokio::time::sleep(window).await;
        float(steps.0.load(Ordering::Relaxed) - before) / begun.elapsed().as_secs_f64()
    };
    measured().await;
    let (mut alone, mut shown) = (Vec::new(), Vec::new());
    for _ in 0..windows {
        alone.push(measured().await);
        let page = tokio::spawn(watch(client.clone(), url.clone()));
        shown.push(measured().await);
        ensure!(!page.is_finished(), "the page has ended: {:?}", page.await);
        page.abort();
    }
    let (alone, shown) = (median(alone), median(shown));
    println!("live_fibers={running}\nlive_steps_per_second_alone={alone:.0}\nlive_steps_per_second_shown={shown:.0}");
    println!("live_cost={:.3}", 1.0 - shown / alone);
    // They never end by themselves.
    drop(forever);
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1));
    let number = |name: &str, otherwise: u64| {
        value(name).map_or(Ok(otherwise), |text| text.parse().with_context(|| format!("{name} is a number, not `{text}`")))
    };
    // `cargo test --benches` runs this without `--bench`, to see that it works.
    let quick = args.iter().any(|arg| arg == "--quick") || !args.iter().any(|arg| arg == "--bench");
    let dir = tempfile::Builder::new().prefix("inspect-").tempdir_in(PathBuf::from(env!("CARGO_TARGET_TMPDIR")))?;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let fibers = number("--fibers", if quick { 20_000 } else { 1_000_000 })?;
    if args.iter().any(|arg| arg == "--serve") {
        let forever = filled(dir.path(), fibers).await?;
        println!("inspector={}", serve(&forever).await?.replace("/api", "/"));
        tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink())).await??;
        return Ok(forever.close().await?);
    }
    print_load("before");
    pages(dir.path(), fibers, if quick { 20 } else { 200 }).await?;
    let (windows, window) = if quick { (2, Duration::from_secs(1)) } else { (9, Duration::from_secs(3)) };
    live(dir.path(), number("--running", if quick { 50 } else { 1_000 })?, windows, window).await?;
    print_load("after");
    Ok(())
}
