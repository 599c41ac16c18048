//! An HTTP API in front of workers: the web process stores orders and shows them, and workers run
//! them. All share a Postgres database.
//!
//! ```text
//! export DATABASE_URL=postgres://postgres@localhost/test
//! cargo run -p examples-http --example http_and_workers worker &
//! cargo run -p examples-http --example http_and_workers worker &
//! cargo run -p examples-http --example http_and_workers web &
//! curl -X POST localhost:3000/orders/A-1
//! curl localhost:3000/orders/A-1
//! ```
use axum::extract::{Path, State};
use axum::{Router, http::StatusCode, response::Json, routing::post};
use forever::{Client, Error, ErrorKind, fiber::FiberState, prelude::*};
use serde_json::{Value, json};

#[fiber]
async fn order(number: String) -> anyhow::Result<String> {
    let price = step!("price", 100 * number.len());
    sleep!(std::time::Duration::from_secs(5));
    Ok(step!("ship", format!("worker {} ships {number} for {price}", std::process::id())))
}

/// Stores the order for a worker. A repeated request finds the same fiber.
async fn create(State(client): State<Client>, Path(number): Path<String>) -> Result<(StatusCode, String), StatusCode> {
    let handle = client.spawn(order(number.clone())).id(number).await.map_err(|e| status(&e))?;
    Ok((if handle.accepted() { StatusCode::ACCEPTED } else { StatusCode::OK }, handle.id().to_owned()))
}

async fn show(State(client): State<Client>, Path(number): Path<String>) -> Result<Json<Value>, StatusCode> {
    let shown = client.status(&number).await.map_err(|e| status(&e))?;
    let is_done = shown.state == FiberState::Completed;
    let result = if is_done { client.fiber::<order>(&number).wait().await.ok() } else { None };
    Ok(Json(json!({ "state": shown.state, "at": shown.at, "result": result })))
}

fn status(error: &Error) -> StatusCode {
    match error.kind() {
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        ErrorKind::Conflict => StatusCode::CONFLICT,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (role, Ok(url)) = (std::env::args().nth(1), std::env::var("DATABASE_URL")) else {
        anyhow::bail!("DATABASE_URL names a Postgres database, such as postgres://postgres@localhost/test");
    };
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    match role.as_deref() {
        Some("worker") => {
            let forever = Forever::builder().postgres(url).fiber::<order>().open().await?;
            stop.await;
            Ok(forever.close().await?)
        }
        // It knows the function by its type, and registers nothing.
        Some("web") => {
            let client = Forever::builder().postgres(url).client().await?;
            let orders = Router::new().route("/orders/{number}", post(create).get(show));
            let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
            axum::serve(listener, orders.with_state(client.clone())).with_graceful_shutdown(stop).await?;
            Ok(client.close().await?)
        }
        _ => anyhow::bail!("it is a `worker` or `web`"),
    }
}
