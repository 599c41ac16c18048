//! The measured server: a process of its own, controlled by lines on its standard input.
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use axum::Router;
use axum::extract::ws::{Message, Utf8Bytes, WebSocket, WebSocketUpgrade};
use axum::extract::{Path as UrlPath, State};
use axum::routing::get;
use axum::serve::ListenerExt;
use forever::agent::Agent;
use forever::chat::message::Chunk;
use forever::chat::{ChatAgent, Turn};
use forever::prelude::*;
use forever::serve::Server;
use forever::{BoxError, Durability, Forever};
use tokio::net::TcpListener;
use tokio::sync::broadcast;
use tokio::time::sleep_until;

use crate::numbers::float;
use crate::syncs::SyncCounter;
use crate::usage::{Usage, say, tell};

/// Argument that makes a process the server.
pub(crate) const WORK: &str = "--work";

/// Class of the agents, as in their URL.
pub(crate) const CLASS: &str = "talks";

/// What the server serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Kind {
    /// Frames alone: no agents and no store.
    Floor,
    /// Agents whose chunks survive the loss of power.
    Power,
    /// Agents whose chunks survive the death of the process.
    Process,
}

/// Pace at which an agent answers.
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub(crate) struct Pace {
    pub(crate) each_second: u64,
    pub(crate) seconds: u64,
}

impl Pace {
    pub(crate) fn chunks(self) -> u64 {
        self.each_second * self.seconds
    }

    /// Time at which a chunk is due; the agents' chunks are spread over time.
    fn due(self, begin: Instant, agent: u64, number: u64) -> Instant {
        let phase = float(agent % self.each_second) / float(self.each_second);
        begin + Duration::from_secs_f64((float(number) + phase) / float(self.each_second))
    }
}

/// What the server receives at its start.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Work {
    kind: Kind,
    agents: u64,
    pace: Pace,
    dir: PathBuf,
}

/// Text of a chunk: its agent, its number, and when it was written, in microseconds since 1970.
pub(crate) fn delta(agent: u64, number: u64, at_us: u64) -> String {
    format!("{agent:03} {number:06} {at_us:016}")
}

#[expect(clippy::disallowed_methods, reason = "two processes have no other clock in common")]
pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Runs the server until its standard input ends.
pub(crate) fn run(work: &Work) -> anyhow::Result<()> {
    match work.kind {
        Kind::Floor => floor(work),
        Kind::Power => agents(work, Durability::Power),
        Kind::Process => agents(work, Durability::Process),
    }
}

/// Waits for a line of the parent, while the server serves.
async fn told() -> anyhow::Result<String> {
    let line = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).map(|_| line)
    });
    Ok(line.await??.trim_end().to_owned())
}

/// Prints its address, and what it used between the words `begin` and `end`.
async fn measured(address: SocketAddr) -> anyhow::Result<()> {
    say(&address.to_string());
    told().await?;
    let begun = Usage::now();
    told().await?;
    tell(&begun.spent());
    Ok(())
}

/// Agent that writes at its pace.
struct Talks(Pace);

impl Agent for Talks {
    const CLASS: &'static str = CLASS;
    type State = ();
}

impl ChatAgent for Talks {
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        let agent = turn.body().and_then(|body| body["agent"].as_u64()).ok_or("an agent is asked with its number")?;
        turn.write(Chunk::text_start("t")).await?;
        if let Some(bytes) = turn.body().and_then(|body| body["bytes"].as_u64()) {
            for _ in 0..bytes / 10_000 {
                turn.write(Chunk::text_delta("t", "x".repeat(10_000))).await?;
            }
            turn.write(Chunk::text_end("t")).await?;
            return Ok(turn.write(Chunk::finish()).await?);
        }
        let begin = Instant::now();
        for number in 0..self.0.chunks() {
            sleep_until(self.0.due(begin, agent, number).into()).await;
            turn.write(Chunk::text_delta("t", delta(agent, number, now_us()))).await?;
        }
        turn.write(Chunk::text_end("t")).await?;
        turn.write(Chunk::finish()).await?;
        Ok(())
    }
}

#[tokio::main]
async fn agents(work: &Work, durability: Durability) -> anyhow::Result<()> {
    let pace = work.pace;
    let builder = Forever::builder().sqlite(work.dir.join("bench.db")).durability(durability);
    let forever = builder.chat_agent(move |_| Talks(pace)).open().await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let served = tokio::spawn(Server::new(&forever).listen(listener));
    measured(address).await?;
    forever.close().await?;
    Ok(served.await??)
}

/// Sends the same frames at the same pace to all connections; each agent begins with the first
/// frame that it receives.
#[tokio::main]
async fn floor(work: &Work) -> anyhow::Result<()> {
    let feeds: Arc<Vec<broadcast::Sender<Utf8Bytes>>> = Arc::new((0..work.agents).map(|_| broadcast::Sender::new(4096)).collect());
    let shared = (feeds, work.pace);
    let router = Router::new().route("/agents/{class}/{name}", get(connected)).with_state(shared);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let listener = listener.tap_io(|socket| drop(socket.set_nodelay(true)));
    let served = tokio::spawn(async move { axum::serve(listener, router).await });
    measured(address).await?;
    served.abort();
    Ok(())
}

type Feeds = (Arc<Vec<broadcast::Sender<Utf8Bytes>>>, Pace);

async fn connected(
    State((feeds, pace)): State<Feeds>,
    UrlPath((_, agent)): UrlPath<(String, u64)>,
    upgrade: WebSocketUpgrade,
) -> axum::response::Response {
    upgrade.on_upgrade(move |socket| show(socket, feeds, agent, pace))
}

async fn show(mut socket: WebSocket, feeds: Arc<Vec<broadcast::Sender<Utf8Bytes>>>, agent: u64, pace: Pace) {
    let Some(feed) = usize::try_from(agent).ok().and_then(|at| feeds.get(at)).cloned() else { return };
    let mut heard = feed.subscribe();
    if socket.send(Message::Text(r#"{"type":"cf_agent_identity"}"#.into())).await.is_err() {
        return;
    }
    loop {
        tokio::select! {
            frame = heard.recv() => {
                let Ok(frame) = frame else { return };
                if socket.send(Message::Text(frame)).await.is_err() {
                    return;
                }
            }
            asked = socket.recv() => match asked {
                Some(Ok(Message::Text(_))) => drop(tokio::spawn(talk(feed.clone(), agent, pace))),
                Some(Ok(_)) => {}
                _ => return,
            },
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
async fn talk(feed: broadcast::Sender<Utf8Bytes>, agent: u64, pace: Pace) {
    let frame = |seq: u64, chunk: &Chunk, done: bool| {
        let body = if done { String::new() } else { chunk.to_text() };
        let frame = serde_json::json!({ "type": "cf_agent_use_chat_response", "id": "question", "body": body, "done": done, "seq": seq });
        Utf8Bytes::from(frame.to_string())
    };
    let begin = Instant::now();
    let last = pace.chunks() + 2;
    // A client that has disconnected is not waited for.
    let _ = feed.send(frame(0, &Chunk::start(), false));
    let _ = feed.send(frame(1, &Chunk::text_start("t"), false));
    for number in 0..pace.chunks() {
        sleep_until(pace.due(begin, agent, number).into()).await;
        let _ = feed.send(frame(number + 2, &Chunk::text_delta("t", delta(agent, number, now_us())), false));
    }
    for (seq, chunk) in [(last, Chunk::text_end("t")), (last + 1, Chunk::finish())] {
        let _ = feed.send(frame(seq, &chunk, false));
    }
    let _ = feed.send(frame(last + 2, &Chunk::finish(), true));
}

/// What a server used, from the first question to the last frame.
pub(crate) struct Taken {
    pub(crate) cpu_seconds: f64,
    /// Memory before any client connected, and the maximum.
    pub(crate) idle_mib: f64,
    pub(crate) peak_mib: f64,
    pub(crate) syncs: Option<u64>,
}

/// The server process, as its parent controls it.
pub(crate) struct Child {
    process: std::process::Child,
    words: BufReader<ChildStdout>,
    stdin: ChildStdin,
    pub(crate) address: SocketAddr,
    idle_mib: f64,
    cpu_before: f64,
}

impl Child {
    pub(crate) fn start(kind: Kind, agents: u64, pace: Pace, dir: &Path, syncs: &SyncCounter) -> anyhow::Result<Self> {
        let work = serde_json::to_string(&Work { kind, agents, pace, dir: dir.to_owned() })?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(WORK).arg(work).stdin(Stdio::piped()).stdout(Stdio::piped());
        syncs.count(&mut command);
        let mut process = command.spawn()?;
        let stdin = process.stdin.take().context("it was asked for")?;
        let mut words = BufReader::new(process.stdout.take().context("it was asked for")?);
        let mut line = String::new();
        words.read_line(&mut line)?;
        let address = line.trim_end().parse().with_context(|| format!("the server says `{line}`"))?;
        let mut child = Child { process, words, stdin, address, idle_mib: 0.0, cpu_before: 0.0 };
        child.idle_mib = child.memory_mib("VmRSS:");
        Ok(child)
    }

    /// Begins the measurement.
    pub(crate) fn begin(&mut self) -> anyhow::Result<()> {
        self.cpu_before = self.cpu_seconds();
        Ok(writeln!(self.stdin, "begin")?)
    }

    pub(crate) fn end(mut self) -> anyhow::Result<Taken> {
        let (cpu, peak_mib) = (self.cpu_seconds(), self.memory_mib("VmHWM:"));
        writeln!(self.stdin, "end")?;
        let mut line = String::new();
        self.words.read_line(&mut line)?;
        let spent: crate::usage::Spent = serde_json::from_str(&line)?;
        self.process.wait()?;
        Ok(Taken { cpu_seconds: cpu - self.cpu_before, idle_mib: self.idle_mib, peak_mib, syncs: spent.syncs })
    }

    fn of_system(&self, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.process.id())).unwrap_or_default()
    }

    fn memory_mib(&self, field: &str) -> f64 {
        let status = self.of_system("status");
        let kib = status.lines().find_map(|line| line.strip_prefix(field)?.trim().strip_suffix(" kB")?.parse().ok());
        kib.map_or(f64::NAN, |kib: u64| float(kib) / 1024.0)
    }

    /// Processor time, from the fields 14 and 15 of `stat`, in hundredths of a second (proc(5),
    /// with the usual `USER_HZ`).
    fn cpu_seconds(&self) -> f64 {
        let stat = self.of_system("stat");
        let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
        let ticks = |at: usize| fields.split(' ').nth(at).and_then(|field| field.parse().ok()).map_or(f64::NAN, float);
        (ticks(11) + ticks(12)) / 100.0
    }
}

/// Kills a server whose clients have failed.
impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
