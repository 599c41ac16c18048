//! A web service with axum: orders are fibers, and a shutdown loses none of them.
//!
//! ```text
//! cargo run -p examples-http --example web_service
//! curl -X POST localhost:3000/orders/A-1
//! curl localhost:3000/orders/A-1
//! curl -X POST localhost:3000/orders/A-1/approval -H 'content-type: application/json' -d '{"id": "decision-1", "approved": true}'
//! ```
use axum::extract::{Json, Path, State};
use axum::{Router, http::StatusCode, routing::post};
use forever::{Error, ErrorKind, prelude::*};
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
    let order = forever.view(&number).await.map_err(|e| status(&e))?;
    let result = order.result.and_then(|result| result.value);
    Ok(Json(json!({ "state": order.status.state, "at": order.status.at, "reason": order.status.reason, "result": result })))
}

/// Sends a person's decision to the fiber. Its id makes the request safe to repeat.
async fn decide(State(forever): State<Forever>, Path(number): Path<String>, Json(decision): Json<Value>) -> Result<(), StatusCode> {
    let (Some(id), Some(approved)) = (decision["id"].as_str(), decision["approved"].as_bool()) else { return Err(StatusCode::BAD_REQUEST) };
    forever.send(&number, "approval", &approved).message_id(id).await.map_err(|e| status(&e))
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
    let orders = Router::new().route("/orders/{number}", post(create).get(show)).route("/orders/{number}/approval", post(decide));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    // Requests finish first, then steps in flight; everything else continues at the next start.
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    axum::serve(listener, orders.with_state(forever.clone())).with_graceful_shutdown(stop).await?;
    Ok(forever.close().await?)
}
