//! A web service with axum: orders are fibers, and a shutdown loses none of them.
//!
//! ```text
//! cargo run --example web_service
//! curl -X POST localhost:3000/orders/A-1
//! curl localhost:3000/orders/A-1
//! curl -X POST localhost:3000/orders/A-1/approval -H 'content-type: application/json' -d '{"id": "decision-1", "approved": true}'
//! ```
#![forbid(unsafe_code)]

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use forever::fiber::{FiberError, FiberState};
use forever::prelude::*;
use forever::{Error, ErrorKind};
use serde::Deserialize;
use serde_json::{Value, json};

#[fiber]
async fn order(number: String) -> anyhow::Result<String> {
    let price = step!("price", 100 * number.len());
    let approved: bool = recv!("approval");
    anyhow::ensure!(approved, "order {number} was refused");
    Ok(step!("ship", format!("{number} is shipped for {price}")))
}

/// Starts the order. A repeated request finds the same fiber.
async fn create(State(forever): State<Forever>, Path(number): Path<String>) -> Result<(StatusCode, String), StatusCode> {
    let handle = forever.spawn(order(number.clone())).id(number).await.map_err(|e| status(&e))?;
    Ok((if handle.accepted() { StatusCode::ACCEPTED } else { StatusCode::OK }, handle.id().to_owned()))
}

async fn show(State(forever): State<Forever>, Path(number): Path<String>) -> Result<Json<Value>, StatusCode> {
    let order = forever.fiber::<order>(&number);
    let failed = |e: FiberError| if e.is_not_found() { StatusCode::NOT_FOUND } else { StatusCode::SERVICE_UNAVAILABLE };
    let status = order.status().await.map_err(failed)?;
    // A fiber that has completed has its result already.
    let result = if status.state == FiberState::Completed { Some(order.wait().await.map_err(failed)?) } else { None };
    Ok(Json(json!({ "state": status.state.to_string(), "at": status.at, "reason": status.reason, "result": result })))
}

/// A person's decision. Its id makes the request safe to repeat.
#[derive(Deserialize)]
struct Decision {
    id: String,
    approved: bool,
}

async fn decide(
    State(forever): State<Forever>,
    Path(number): Path<String>,
    Json(decision): Json<Decision>,
) -> Result<StatusCode, StatusCode> {
    forever.send(&number, "approval", &decision.approved).message_id(decision.id).await.map_err(|e| status(&e))?;
    Ok(StatusCode::NO_CONTENT)
}

fn status(error: &Error) -> StatusCode {
    match error.kind() {
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        ErrorKind::Conflict | ErrorKind::InvalidState => StatusCode::CONFLICT,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let forever = Forever::builder().sqlite("orders.db").fiber::<order>().open().await?;
    let routes = Router::new()
        .route("/orders/{number}", post(create).get(show))
        .route("/orders/{number}/approval", post(decide))
        .with_state(forever.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    // Requests finish first, then steps in flight; everything else continues at the next start.
    axum::serve(listener, routes).with_graceful_shutdown(async { drop(tokio::signal::ctrl_c().await) }).await?;
    Ok(forever.close().await?)
}
