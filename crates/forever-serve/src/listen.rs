//! Accepts connections from a listener until the runtime closes.
//!
//! `axum::serve` does that too, but it does not limit the time for the head of a request, and does
//! not wait for connections that were upgraded.
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::{Extension, Router};
use forever_runtime::__layers::race;
use forever_runtime::Forever;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tracing::{debug, warn};

use super::quota::Quotas;

/// Time for clients to receive the close at the end.
const GOODBYE: Duration = Duration::from_secs(5);

/// Maximum size of the head of a request, in bytes.
const HEAD: usize = 64 << 10;

/// Pause after a connection could not be accepted for lack of resources, such as file descriptors.
const OUT_OF_ALL: Duration = Duration::from_millis(200);

/// Serves `router` until the runtime closes and all connections have ended.
pub(super) async fn serve(listener: TcpListener, router: Router, forever: &Forever, quotas: &Quotas, head: Duration) {
    // Each connection holds a receiver until it ends.
    let connections = watch::Sender::new(());
    while let Some(taken) = race(listener.accept(), forever.closing()).await {
        match taken {
            Ok((socket, peer)) => serve_one(socket, peer, &router, forever, connections.subscribe(), head),
            // The client was gone before the connection was accepted.
            Err(why) if is_of_one(&why) => debug!(%why, "a connection was not taken"),
            Err(why) => {
                warn!(%why, "no connection can be taken");
                race(tokio::time::sleep(OUT_OF_ALL), forever.closing()).await;
            }
        }
    }
    drop(listener);
    let all = async {
        connections.closed().await;
        quotas.are_empty().await;
    };
    if tokio::time::timeout(GOODBYE, all).await.is_err() {
        warn!("some clients did not disconnect in time");
    }
}

fn serve_one(socket: TcpStream, peer: SocketAddr, router: &Router, forever: &Forever, open: watch::Receiver<()>, head: Duration) {
    // Chunks are small, and should not wait for each other.
    if let Err(why) = socket.set_nodelay(true) {
        debug!(%why, "the chunks of a connection may wait for each other");
    }
    let service = TowerToHyperService::new(router.clone().layer(Extension(ConnectInfo(peer))));
    let forever = forever.clone();
    tokio::spawn(async move {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(head).max_buf_size(HEAD);
        let mut connection = pin!(http.serve_connection(TokioIo::new(socket), service).with_upgrades());
        let over = if let Some(over) = race(connection.as_mut(), forever.closing()).await {
            over
        } else {
            connection.as_mut().graceful_shutdown();
            connection.await
        };
        if let Err(why) = over {
            debug!(%why, %peer, "a connection has ended");
        }
        drop(open);
    });
}

fn is_of_one(why: &io::Error) -> bool {
    matches!(why.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset)
}
