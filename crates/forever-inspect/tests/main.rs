//! The inspector over real connections: what it shows, whom it answers, and what hostile clients
//! get.
#![allow(missing_docs)]

extern crate forever_runtime as forever;

mod client;
mod hostile;
mod secrets;
mod shows;

use std::net::SocketAddr;

use forever::Forever;
use forever::fiber::FiberState;
use forever_inspect::Inspector;
use forever_testkit::waiting::eventually;
use tokio::net::TcpListener;

/// Serves an inspector on a port of its own.
async fn serve(inspector: Inspector) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(inspector.serve(listener));
    address
}

/// Waits until a fiber is in a state.
async fn in_state(forever: &Forever, id: &str, state: FiberState) {
    eventually(&format!("{id} {state}"), async || forever.status(id).await.unwrap().state == state).await;
}
