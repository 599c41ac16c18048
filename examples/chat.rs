//! A chat that is served: to the React page in `examples/chat/web`, or, without npm, to a plain page.
//!
//! ```text
//! cargo run --example chat --features server
//! cargo run --example chat --features server -- --port 8787 --database chat.db
//! ```
//!
//! Open the address that it prints. Kill the program in the middle of an answer and start it again: the same message grows on.
//!
//! What answers follows a script. It takes from the request `n` (how many words), `delay` (ms between them) and `mode`: `ok`, `error` (an error in the
//! stream), `throw` (an error of the program), `tool` (asks the page where it is), `approval` (asks the person whether it may pay).
#![forbid(unsafe_code)]

#[path = "support/args.rs"]
mod args;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use axum::extract::Path as UrlPath;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::Html;
use axum::routing::get;
use forever::chat::message::{Chunk, ToolState};
use forever::chat::{ChatAgent, RecoveryPolicy, Turn};
use forever::prelude::*;
use forever::serve::Server;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use args::Args;

const USAGE: &str = "\
Serves a chat.

usage: chat [--port N] [--database PATH]
  --port N         where, on this machine (8787)
  --database PATH  what is kept (chat.db)";

/// Answers by a script.
struct Scripted {
    me: AgentHandle<Scripted>,
}

#[derive(Serialize, Deserialize, Default)]
struct Shared {
    hello: String,
}

impl Agent for Scripted {
    const CLASS: &'static str = "ChatAgent";
    type State = Shared;

    async fn on_start(&self) -> Result<(), BoxError> {
        if self.me.state().await?.hello.is_empty() {
            self.me.set_state(&Shared { hello: "state".to_owned() }).await?;
        }
        Ok(())
    }
}

impl ChatAgent for Scripted {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        let body = turn.body().cloned().unwrap_or_default();
        let (words, delay) = (body["n"].as_u64().unwrap_or(1), body["delay"].as_u64().unwrap_or(10));
        let mode = body["mode"].as_str().unwrap_or("ok");
        // What an interrupted attempt has said is not said again.
        let said = turn.text().split_inclusive(' ').count() as u64;
        turn.write(Chunk::start()).await?;
        turn.write(Chunk::text_start("t1")).await?;
        for word in said..words {
            turn.write(Chunk::text_delta("t1", format!("w{word} "))).await?;
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        for call in approved(turn).await {
            turn.write(Chunk::tool_output_available(call, json!({ "paid": true }))).await?;
        }
        match mode {
            "error" => {
                turn.write(Chunk::error("provider said no")).await?;
                return Ok(());
            }
            "throw" => return Err("boom".into()),
            _ => turn.write(Chunk::text_end("t1")).await?,
        }
        match mode {
            "tool" if !turn.is_continuation() => {
                turn.write(Chunk::tool_input_start("call1", "getLocation")).await?;
                turn.write(Chunk::tool_input_available("call1", "getLocation", json!({ "a": 1 }))).await?;
            }
            "approval" if !turn.is_continuation() => {
                turn.write(Chunk::tool_input_start("call2", "pay")).await?;
                turn.write(Chunk::tool_input_available("call2", "pay", json!({ "amt": 5 }))).await?;
                turn.write(Chunk::tool_approval_request("call2", "ap1")).await?;
            }
            _ => {}
        }
        turn.write(Chunk::finish()).await?;
        Ok(())
    }

    fn recovery() -> RecoveryPolicy {
        // It is there to be killed.
        RecoveryPolicy::default().max_deaths(1000)
    }

    fn client_error_text(&self, error: &BoxError) -> String {
        error.to_string()
    }
}

/// The calls of the answer to which a person has said yes, and that have no result yet.
async fn approved(turn: &Turn) -> Vec<String> {
    let message = turn.message().await;
    let yes = |part: &&forever::chat::message::Part| {
        let answered = part.tool_state() == Some(ToolState::ApprovalResponded);
        answered && part.get("approval").is_some_and(|approval| approval["approved"] == Value::Bool(true))
    };
    message.parts.iter().filter(yes).filter_map(|part| part.tool_call_id()).map(str::to_owned).collect()
}

/// What `npm run build` has made.
const BUILT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/chat/web/dist");

/// The React page, if it was built, else the plain one.
async fn page() -> Html<String> {
    let built = tokio::task::spawn_blocking(|| std::fs::read_to_string(Path::new(BUILT).join("index.html")));
    Html(built.await.ok().and_then(Result::ok).unwrap_or_else(|| include_str!("chat/plain.html").to_owned()))
}

async fn asset(UrlPath(file): UrlPath<String>) -> Result<([(HeaderName, &'static str); 1], Vec<u8>), StatusCode> {
    let kind = match file.rsplit_once('.') {
        Some((_, "js")) => "text/javascript",
        Some((_, "css")) => "text/css",
        _ => return Err(StatusCode::NOT_FOUND),
    };
    if file.contains(['/', '\\']) {
        return Err(StatusCode::NOT_FOUND);
    }
    let read = tokio::task::spawn_blocking(move || std::fs::read(Path::new(BUILT).join("assets").join(file)));
    let bytes = read.await.ok().and_then(Result::ok).ok_or(StatusCode::NOT_FOUND)?;
    Ok(([(header::CONTENT_TYPE, kind)], bytes))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut args = Args::of_program(USAGE);
    let port: u16 = args.value("--port", "a number from 0 to 65535", |_| true).unwrap_or(8787);
    let database: PathBuf = args.value("--database", "a path", |_| true).unwrap_or_else(|| PathBuf::from("chat.db"));
    args.finish();
    let forever = Forever::builder().sqlite(database).chat_agent(|me| Scripted { me }).open().await?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let listener = tokio::net::TcpListener::bind(address).await.with_context(|| format!("{address} cannot be used"))?;
    println!("http://{}", listener.local_addr()?);
    let server = Server::new(&forever).callable::<Scripted, _, _>("words", |chat, _| async move {
        let said = chat.messages().await?;
        Ok(json!(said.iter().map(|message| message.text().split_whitespace().count()).sum::<usize>()))
    });
    let router = server.router().route("/", get(page)).route("/assets/{file}", get(asset));
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}
