//! The clients: each receives the answer of its agent, and checks every frame.
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use futures_util::{SinkExt, StreamExt};
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use crate::numbers::float;
use crate::served::{CLASS, Child, Pace, delta, now_us};

/// Time after which a missing frame counts as lost.
const LOST: Duration = Duration::from_secs(60);

/// What all clients received.
#[derive(Default)]
pub(crate) struct Shown {
    pub(crate) frames: u64,
    pub(crate) lost: u64,
    pub(crate) out_of_place: u64,
    /// Seconds from the first question to the last frame.
    pub(crate) seconds: f64,
    /// Latency of each chunk from its writer, in microseconds.
    pub(crate) taken_us: Vec<f64>,
}

/// Clients of one agent more, which never read.
#[derive(Clone, Copy)]
pub(crate) struct Unread {
    pub(crate) clients: u64,
    /// Length of the answer in their conversation.
    pub(crate) bytes: u64,
}

/// Runs `clients` clients of each of `agents` agents; the first client of each agent asks.
#[tokio::main]
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
pub(crate) async fn run(server: &mut Child, agents: u64, clients: u64, pace: Pace, unread: Option<Unread>) -> anyhow::Result<Shown> {
    let (go, gone) = watch::channel(false);
    let mut all = JoinSet::new();
    let mut connected = Vec::new();
    for agent in 0..agents {
        for client in 0..clients {
            connected.push((connect(server.address, agent).await?, agent, client == 0));
        }
    }
    for (socket, agent, asks) in connected {
        all.spawn(show(socket, agent, asks, pace, gone.clone()));
    }
    let mut writer = match unread {
        Some(unread) => Some(ask_for_a_long_answer(server.address, agents, unread.bytes).await?),
        None => None,
    };
    server.begin()?;
    let begun = Instant::now();
    go.send_replace(true);
    let mut never_read = Vec::new();
    if let (Some(unread), Some(writer)) = (unread, &mut writer) {
        for _ in 0..unread.clients {
            never_read.push(connect(server.address, agents).await?);
        }
        // The conversation is sent to all, with the question, and with the answer.
        ask(writer, serde_json::json!({ "agent": agents, "bytes": 0 })).await?;
    }
    let mut shown = Shown::default();
    while let Some(one) = all.join_next().await {
        let one = one??;
        shown.frames += one.frames;
        shown.lost += one.lost;
        shown.out_of_place += one.out_of_place;
        shown.taken_us.extend(one.taken_us);
    }
    shown.seconds = begun.elapsed().as_secs_f64();
    ensure!(shown.lost == 0 && shown.out_of_place == 0, "{} chunks were lost and {} out of their place", shown.lost, shown.out_of_place);
    Ok(shown)
}

/// Has an agent write an answer of so many bytes, and gives the client that asked.
async fn ask_for_a_long_answer(server: SocketAddr, agent: u64, bytes: u64) -> anyhow::Result<Socket> {
    let mut socket = connect(server, agent).await?;
    ask(&mut socket, serde_json::json!({ "agent": agent, "bytes": bytes })).await?;
    loop {
        let message = timeout(LOST, socket.next()).await.context("the long answer did not come")?;
        let Message::Text(text) = message.context("the connection was closed")?? else { continue };
        let frame: Frame = serde_json::from_str(&text)?;
        ensure!(!frame.error, "the long answer failed: {}", frame.body);
        if frame.done {
            return Ok(socket);
        }
    }
}

/// Sends a question with the fields that the agent answers by.
async fn ask(socket: &mut Socket, mut body: serde_json::Value) -> anyhow::Result<()> {
    let message = serde_json::json!({ "id": format!("u{}", now_us()), "role": "user", "parts": [{ "type": "text", "text": "go on" }] });
    body["messages"] = serde_json::json!([message]);
    body["trigger"] = "submit-message".into();
    let init = serde_json::json!({ "method": "POST", "body": body.to_string() });
    let question = serde_json::json!({ "type": "cf_agent_use_chat_request", "id": "question", "init": init });
    Ok(socket.send(Message::text(question.to_string())).await?)
}

type Socket = WebSocketStream<TcpStream>;

async fn connect(server: SocketAddr, agent: u64) -> anyhow::Result<Socket> {
    let stream = TcpStream::connect(server).await?;
    stream.set_nodelay(true)?;
    let (mut socket, _) = tokio_tungstenite::client_async(format!("ws://{server}/agents/{CLASS}/{agent}"), stream).await?;
    // After its first frame the server sends all others to this client.
    socket.next().await.context("the connection was closed")??;
    Ok(socket)
}

#[derive(Deserialize)]
struct Frame {
    #[serde(default)]
    id: String,
    #[serde(default)]
    body: String,
    #[serde(default)]
    done: bool,
    #[serde(default)]
    error: bool,
    seq: Option<u64>,
}

#[derive(Deserialize)]
struct Text {
    #[serde(default)]
    delta: String,
}

async fn show(mut socket: Socket, agent: u64, asks: bool, pace: Pace, mut go: watch::Receiver<bool>) -> anyhow::Result<Shown> {
    go.wait_for(|go| *go).await?;
    if asks {
        ask(&mut socket, serde_json::json!({ "agent": agent })).await?;
    }
    let mut shown = Shown::default();
    let mut expected = 0;
    loop {
        let message = timeout(LOST, socket.next()).await.with_context(|| format!("agent {agent}: chunk {expected} was lost"))?;
        let text = match message.context("the connection was closed")?? {
            Message::Text(text) => text,
            Message::Close(why) => bail!("agent {agent}: closed: {why:?}"),
            _ => continue,
        };
        let frame: Frame = serde_json::from_str(&text)?;
        ensure!(!frame.error, "agent {agent}: {}", frame.body);
        if frame.id != "question" {
            continue;
        }
        if frame.done {
            break;
        }
        let now = now_us();
        let seq = frame.seq.context("a chunk has a number")?;
        shown.frames += 1;
        // `start` and `text-start` come before the texts, `text-end` and `finish` after them.
        if seq < expected {
            shown.out_of_place += 1;
        }
        shown.lost += seq.saturating_sub(expected);
        expected = seq + 1;
        if (2..pace.chunks() + 2).contains(&seq) {
            let text: Text = serde_json::from_str(&frame.body)?;
            let written: u64 = text.delta.rsplit(' ').next().unwrap_or_default().parse().unwrap_or(u64::MAX);
            ensure!(text.delta == delta(agent, seq - 2, written), "agent {agent}: chunk {seq} is `{}`", text.delta);
            shown.taken_us.push(float(now.saturating_sub(written)));
        }
    }
    shown.lost += (pace.chunks() + 4).saturating_sub(expected);
    Ok(shown)
}
