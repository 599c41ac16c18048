//! A chat that is served: to the React page in `examples/chat/web`, or, without npm, to a plain page.
//!
//! ```text
//! cargo run --example chat
//! cargo run --example chat -- --port 8787 --database chat.db
//! ```
//!
//! Open the address that it prints. Kill the program in the middle of an answer and start it again: the same message grows on. With npm,
//! `npm ci && npm run build` in `examples/chat/web` makes the React page.
//!
//! What answers follows a script. It takes from the request `n` (how many words), `delay` (ms between them) and `mode`: `ok`, `error` (an error in the
//! stream), `throw` (an error of the program), `tool` (asks the page where it is), `approval` (asks the person whether it may pay). A model takes its
//! place with
//!
//! ```text
//! ANTHROPIC_MODEL=.. ANTHROPIC_API_KEY=.. cargo run --example chat
//! OPENAI_MODEL=.. OPENAI_API_KEY=.. OPENAI_BASE_URL=https://api.openai.com/v1 cargo run --example chat
//! ```
//!
//! and has a tool for the time, and one that pays, for which the person is asked.
#![forbid(unsafe_code)]

#[path = "support/args.rs"]
mod args;
#[path = "chat/modelled.rs"]
mod modelled;
#[path = "chat/scripted.rs"]
mod scripted;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::Context;
use axum::Router;
use axum::extract::Path as UrlPath;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::Html;
use axum::routing::get;
use forever::prelude::*;
use forever::serve::Server;

use args::Args;
use modelled::Modelled;
use scripted::Scripted;

const USAGE: &str = "\
Serves a chat.

usage: chat [--port N] [--database PATH]
  --port N         where, on this machine (8787)
  --database PATH  what is kept (chat.db)";

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
    let builder = Forever::builder().sqlite(database);
    let builder = match modelled::from_env()? {
        Some(answers) => builder.agent_loop(answers).chat_agent(|_| Modelled),
        None => builder.chat_agent(|me| Scripted { me }),
    };
    let forever = builder.open().await?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let listener = tokio::net::TcpListener::bind(address).await.with_context(|| format!("{address} cannot be used"))?;
    println!("http://{}", listener.local_addr()?);
    let server = Server::new(&forever).callable::<Scripted, _, _>("words", |chat, _| async move {
        let said = chat.messages().await?;
        Ok(said.iter().map(|message| message.text().split_whitespace().count()).sum::<usize>().into())
    });
    let pages = Router::new().route("/", get(page)).route("/assets/{file}", get(asset));
    // Until Ctrl-C: clients are told to come again, and what is being answered goes on at the next start.
    let closing = forever.clone();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok()
            && let Err(error) = closing.close().await
        {
            eprintln!("{error}");
        }
    });
    server.merge(pages).listen(listener).await?;
    // It has been begun, and is waited for.
    forever.close().await?;
    Ok(())
}
