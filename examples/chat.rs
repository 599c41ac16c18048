//! A chat server: for the React page in `examples/chat/web`, and for a page without packages at
//! `/plain`.
//!
//! ```text
//! cargo run -p examples-http --example chat
//! cargo run -p examples-http --example chat -- --port 8787 --database chat.db
//! ```
//!
//! Open the address that it prints and ask something. Kill the program in the middle of the answer
//! with the command that it prints, and start it again: the same message continues. The page is
//! built into the program from `examples/chat/web/dist`; after a change of its source,
//! `npm ci && npm run build` there.
//!
//! The answers follow a script (`showcase`). A model replaces it with
//!
//! ```text
//! ANTHROPIC_MODEL=.. ANTHROPIC_API_KEY=.. cargo run -p examples-http --example chat
//! OPENAI_MODEL=.. OPENAI_API_KEY=.. OPENAI_BASE_URL=https://api.openai.com/v1 cargo run -p examples-http --example chat
//! ```
//!
//! and has a tool that reads the time, and one that pays, which needs the person's approval.
#![forbid(unsafe_code)]

#[path = "chat/modelled.rs"]
mod modelled;
#[path = "chat/scripted.rs"]
mod scripted;
#[path = "chat/showcase.rs"]
mod showcase;
#[path = "chat/survival.rs"]
mod survival;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::Context;
use axum::Router;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{Html, IntoResponse};
use axum::routing::get;
use forever::prelude::*;
use forever::serve::Server;
use serde_json::json;

use forever_testkit::args::Args;
use modelled::Modelled;
use scripted::Scripted;
use showcase::Showcase;

const USAGE: &str = "\
Serves a chat.

usage: chat [--port N] [--database PATH] [--script NAME]
  --port N         where, on this machine (8787)
  --database PATH  what is kept (chat.db)
  --script NAME    what answers without a model: showcase (the default), or words, which tests/web uses";

/// Files that `npm run build` makes.
const PAGE: [&str; 3] =
    [include_str!("chat/web/dist/index.html"), include_str!("chat/web/dist/page.js"), include_str!("chat/web/dist/page.css")];

/// A file of the page; a browser checks each time whether it has changed.
fn asset(kind: &'static str, text: &'static str) -> impl IntoResponse {
    let headers: [(HeaderName, HeaderValue); 2] =
        [(header::CONTENT_TYPE, HeaderValue::from_static(kind)), (header::CACHE_CONTROL, HeaderValue::from_static("no-cache"))];
    (headers, text)
}

fn pages() -> Router {
    let [html, script, style] = PAGE;
    Router::new()
        .route("/", get(async move || Html(html)))
        .route("/page.js", get(async move || asset("text/javascript", script)))
        .route("/page.css", get(async move || asset("text/css", style)))
        .route("/plain", get(async || Html(include_str!("chat/plain.html"))))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut args = Args::of_program(USAGE);
    let port: u16 = args.value("--port", "a number from 0 to 65535", |_| true).unwrap_or(8787);
    let database: PathBuf = args.value("--database", "a path", |_| true).unwrap_or_else(|| PathBuf::from("chat.db"));
    let script = args.value("--script", "showcase or words", |name: &String| name == "showcase" || name == "words");
    args.finish();
    let builder = Forever::builder().sqlite(database);
    let (model, builder) = match (script.as_deref(), modelled::from_env()?) {
        (Some("words"), _) => ("a script of words".to_owned(), builder.chat_agent(|me| Scripted { me })),
        (None, Some((name, answers))) => (name, builder.agent_loop(answers).chat_agent(|_| Modelled)),
        _ => ("a script, without a model".to_owned(), builder.chat_agent(|_| Showcase)),
    };
    let forever = builder.open().await?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let listener = tokio::net::TcpListener::bind(address).await.with_context(|| format!("{address} cannot be used"))?;
    let (address, pid) = (listener.local_addr()?, std::process::id());
    println!("http://{address}");
    println!("  page    React, examples/chat/web; at /plain one without packages");
    println!(
        "  model   {model}{}",
        if script.is_none() && model.contains(' ') { ": set ANTHROPIC_MODEL or OPENAI_MODEL for one" } else { "" }
    );
    println!("  kill    kill -9 {pid}, in the middle of an answer; then start it again");
    let about = json!({ "pid": pid, "model": model });
    let server = Server::new(&forever)
        .callable::<Scripted, _, _>("about", move |_, _| {
            let about = about.clone();
            async move { Ok(about) }
        })
        .callable::<Scripted, _, _>("words", |chat, _| async move {
            let said = chat.messages().await?;
            Ok(said.iter().map(|message| message.text().split_whitespace().count()).sum::<usize>().into())
        });
    // Until Ctrl-C: clients reconnect, and answers continue at the next start.
    let closing = forever.clone();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok()
            && let Err(error) = closing.close().await
        {
            eprintln!("{error}");
        }
    });
    server.merge(pages()).listen(listener).await?;
    // The close was started above; this waits for its end.
    forever.close().await?;
    Ok(())
}
