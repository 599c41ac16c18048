//! Concurrent chat turns: how soon their chunks are stored and delivered to followers. No chunk may
//! be lost, duplicated or changed.
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use forever::agent::Agent;
use forever::chat::message::{Chunk, UiMessage};
use forever::chat::{ChatAgent, Entry, StoredChunk, Turn};
use forever::prelude::*;
use forever::{BoxError, Forever};
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};

use crate::child::{DATABASE, durability};
use crate::numbers::{float, percentiles};
use crate::scale::Gate;
use crate::usage::{Spent, Usage, tell};

/// Time after which a missing chunk counts as lost.
const LOST: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub(crate) enum Turns {
    /// Concurrent turns, each of its own agent and with one follower. Each writes `chunks` chunks,
    /// at `each_second` or as fast as it can.
    Stream { turns: u64, chunks: u64, each_second: Option<u32>, power: bool },
    /// `chunks` chunks in `commits` commits, with SQLite alone.
    Floor { chunks: u64, commits: u64, power: bool },
}

/// Result of [`Turns::Stream`].
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Streamed {
    /// What was used until all chunks were stored, with the latency of each chunk to its follower.
    pub(crate) stored: Spent,
    /// Seconds until all followers had all chunks.
    pub(crate) delivered_seconds: f64,
    pub(crate) commits: u64,
}

pub(crate) fn run(turns: Turns, dir: &Path) -> anyhow::Result<()> {
    match turns {
        Turns::Stream { turns, chunks, each_second, power } => stream(dir, &Stage::new(turns, chunks, each_second), power),
        Turns::Floor { chunks, commits, power } => floor(dir, chunks, commits, power),
    }
}

/// A chunk of a turn, written at the given time.
pub(crate) fn chunk(turn: u64, number: u64, at_us: u64) -> Chunk {
    Chunk::text_delta("t", delta(turn, number, at_us))
}

/// Text of a chunk: 20 bytes.
fn delta(turn: u64, number: u64, at_us: u64) -> String {
    format!("{turn:03} {number:06} {at_us:09}")
}

/// State shared by the turns, their followers and the measurement.
struct Stage {
    turns: u64,
    chunks: u64,
    each_second: Option<u32>,
    clock: Instant,
    /// Turns and followers that are ready to begin.
    ready: Gate,
    go: Gate,
    /// Turns whose chunks are all stored.
    stored: Gate,
    /// Followers that have received all chunks.
    heard: Gate,
    /// Opened when all followers have all chunks; no turn ends before.
    end: Gate,
}

impl Stage {
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    fn new(turns: u64, chunks: u64, each_second: Option<u32>) -> Arc<Self> {
        let [ready, go, stored, heard, end] = Default::default();
        Arc::new(Stage { turns, chunks, each_second, clock: Instant::now(), ready, go, stored, heard, end })
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Waits, with a limit that is long enough for all chunks that are still to come.
    async fn in_time<T>(&self, what: &str, wait: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        let paced = self.each_second.map_or(0, |each_second| self.chunks / u64::from(each_second));
        timeout(LOST + Duration::from_secs(paced), wait).await.with_context(|| format!("not all {what}: a chunk was lost"))?
    }
}

/// Agent that writes as the stage demands.
struct Talks(Arc<Stage>);

impl Agent for Talks {
    const CLASS: &'static str = "talks";
    type State = ();
}

impl ChatAgent for Talks {
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        let stage = &*self.0;
        let number = turn.body().and_then(serde_json::Value::as_u64).ok_or("a turn is asked with its number")?;
        turn.write(Chunk::text_start("t")).await?;
        turn.flush().await?;
        stage.ready.enter();
        stage.go.has(1).await?;
        let pause = stage.each_second.map(|each_second| Duration::from_secs(1) / each_second);
        // The turns' chunks are spread over time.
        let begin = Instant::now() + pause.unwrap_or_default().mul_f64(float(number) / float(stage.turns));
        for (n, count) in (0..stage.chunks).zip(0..) {
            if let Some(pause) = pause {
                sleep_until((begin + pause * count).into()).await;
            }
            turn.write(chunk(number, n, stage.now_us())).await?;
        }
        turn.flush().await?;
        stage.stored.enter();
        stage.end.has(1).await?;
        turn.write(Chunk::text_end("t")).await?;
        turn.write(Chunk::finish()).await?;
        Ok(())
    }
}

/// Log of a turn as its follower received it, and the latency of each text in microseconds.
struct Heard {
    turn: u64,
    chunks: Vec<StoredChunk>,
    taken_us: Vec<f64>,
}

/// Requests a turn and follows it to its end.
async fn follow(forever: Forever, stage: Arc<Stage>, turn: u64) -> anyhow::Result<Heard> {
    let asked = forever.agent::<Talks>(&turn.to_string()).save_messages([UiMessage::user("u", "go on")]).id(turn.to_string()).body(&turn);
    let mut follow = asked.await?.follow(0).await?;
    stage.ready.enter();
    let (mut chunks, mut at_us) = (Vec::new(), Vec::new());
    // `start` and `text-start` come before the texts, `text-end` and `finish` after them.
    let last = 1 + stage.chunks;
    let end = loop {
        match follow.next().await?.context("a log has an end")? {
            Entry::Chunk(number, chunk) => {
                at_us.push(stage.now_us());
                ensure!(number == chunks.len() as u64, "turn {turn}: chunk {number} came after {} chunks", chunks.len());
                chunks.push(chunk);
                if number == last {
                    stage.heard.enter();
                }
            }
            Entry::End(end) => break end,
            other => bail!("turn {turn}: {other:?}"),
        }
    };
    ensure!(end.is_completed() && follow.next().await?.is_none(), "turn {turn} ended as {end:?}");
    let taken_us = check(&stage, turn, &chunks, &at_us)?;
    Ok(Heard { turn, chunks, taken_us })
}

/// Checks that every chunk was received once and in order; returns the latencies of the texts.
fn check(stage: &Stage, turn: u64, chunks: &[StoredChunk], at_us: &[u64]) -> anyhow::Result<Vec<f64>> {
    let kinds = [(0, "start"), (1, "text-start"), (stage.chunks + 2, "text-end"), (stage.chunks + 3, "finish")];
    ensure!(chunks.len() as u64 == stage.chunks + 4, "turn {turn} has {} chunks", chunks.len());
    let mut taken = Vec::with_capacity(chunks.len());
    for ((number, stored), at_us) in (0..).zip(chunks).zip(at_us) {
        let read = stored.read()?;
        if let Some((_, kind)) = kinds.iter().find(|(place, _)| *place == number) {
            ensure!(read.kind() == *kind, "turn {turn}: chunk {number} is {}", stored.json());
            continue;
        }
        let text = read.get("delta").and_then(serde_json::Value::as_str).unwrap_or_default();
        let written_us: u64 = text.rsplit(' ').next().unwrap_or_default().parse().unwrap_or(u64::MAX);
        ensure!(text == delta(turn, number - 2, written_us), "turn {turn}: chunk {number} is {}", stored.json());
        taken.push(float(at_us.checked_sub(written_us).context("nobody hears what was not said")?));
    }
    Ok(taken)
}

#[tokio::main]
async fn stream(dir: &Path, stage: &Arc<Stage>, power: bool) -> anyhow::Result<()> {
    let of_agents = Arc::clone(stage);
    let builder = Forever::builder().sqlite(dir.join(DATABASE)).durability(durability(power));
    let forever = builder.chat_agent(move |_| Talks(Arc::clone(&of_agents))).open().await?;
    let mut followers = JoinSet::new();
    for turn in 0..stage.turns {
        followers.spawn(follow(forever.clone(), Arc::clone(stage), turn));
    }
    let measured = async {
        stage.in_time("turns have begun", stage.ready.has(2 * stage.turns)).await?;
        let (begun, commits_before) = (Usage::now(), commits(dir)?);
        stage.go.enter();
        stage.in_time("chunks were stored", stage.stored.has(stage.turns)).await?;
        let (stored, commits) = (begun.spent(), commits(dir)?.wrapping_sub(commits_before).into());
        stage.in_time("chunks were delivered", stage.heard.has(stage.turns)).await?;
        let delivered_seconds = begun.spent().seconds;
        stage.end.enter();
        anyhow::Ok(Streamed { stored, delivered_seconds, commits })
    };
    let mut measured = tokio::select! {
        measured = measured => measured?,
        // Before all chunks are received, a follower ends only with an error.
        Some(ended) = followers.join_next() => bail!("a follower has ended too soon: {:?}", ended?.map(drop)),
    };
    let (mut logs, mut taken_us) = (HashMap::new(), Vec::new());
    while let Some(heard) = stage.in_time("turns have ended", async { Ok(followers.join_next().await) }).await? {
        let heard = heard??;
        taken_us.extend(heard.taken_us);
        logs.insert(heard.turn, heard.chunks);
    }
    forever.close().await?;
    compare(dir, stage, &logs)?;
    measured.stored.latency_us = Some(percentiles(taken_us));
    tell(&measured);
    Ok(())
}

/// Checks that the stored chunks are those that were received.
fn compare(dir: &Path, stage: &Stage, heard: &HashMap<u64, Vec<StoredChunk>>) -> anyhow::Result<()> {
    let conn = rusqlite::Connection::open(dir.join(DATABASE))?;
    let mut select = conn.prepare(
        "SELECT CAST(t.id AS INTEGER), group_concat(c.data, char(10) ORDER BY c.first)
         FROM turns t JOIN turn_log c ON c.turn = t.seq GROUP BY t.seq",
    )?;
    let stored =
        select.query_map((), |row| Ok((row.get::<_, u32>(0)?.into(), row.get(1)?)))?.collect::<Result<HashMap<u64, String>, _>>()?;
    ensure!(stored.len() as u64 == stage.turns, "{} turns are stored", stored.len());
    for (turn, log) in stored {
        let heard = heard.get(&turn).with_context(|| format!("nobody heard turn {turn}"))?;
        ensure!(log.lines().eq(heard.iter().map(StoredChunk::json)), "turn {turn} is stored otherwise than it was heard");
    }
    Ok(())
}

/// Number of transactions committed since the index of the write-ahead log was made: `iChange` of
/// its header, <https://sqlite.org/walformat.html>.
fn commits(dir: &Path) -> anyhow::Result<u32> {
    let mut header = [0; 12];
    File::open(dir.join(format!("{DATABASE}-shm")))?.read_exact(&mut header)?;
    let [.., a, b, c, d] = header;
    Ok(u32::from_ne_bytes([a, b, c, d]))
}

/// The floor of disk and SQLite: a prepared statement that adds one row with all chunks of a
/// commit.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn floor(dir: &Path, chunks: u64, commits: u64, power: bool) -> anyhow::Result<()> {
    let conn = rusqlite::Connection::open(dir.join(DATABASE))?;
    conn.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))?;
    conn.pragma_update(None, "synchronous", if power { "FULL" } else { "NORMAL" })?;
    conn.execute_batch("CREATE TABLE log (first INTEGER PRIMARY KEY, data TEXT NOT NULL) STRICT")?;
    let rows = (0..commits).map(|n| {
        let (first, behind) = (n * chunks / commits, (n + 1) * chunks / commits);
        let lines: Vec<_> = (first..behind).map(|number| chunk(0, number, number).to_text()).collect();
        Ok((i64::try_from(first)?, lines.join("\n")))
    });
    let rows = rows.collect::<anyhow::Result<Vec<_>>>()?;
    let mut insert = conn.prepare("INSERT INTO log VALUES (?1, ?2)")?;
    let mut taken_us = Vec::with_capacity(rows.len());
    let begun = Usage::now();
    for row in rows {
        let at = Instant::now();
        insert.execute(row)?;
        taken_us.push(at.elapsed().as_secs_f64() * 1e6);
    }
    tell(&Spent { latency_us: Some(percentiles(taken_us)), ..begun.spent() });
    Ok(())
}
