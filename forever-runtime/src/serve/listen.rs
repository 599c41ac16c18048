//! Taking connections off a listener until the runtime closes.
//!
//! `axum::serve` does that too, but lets a client take as long as it likes to send the head of a request, and does not wait for connections
//! that were upgraded.
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router, extract::ConnectInfo};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tracing::{debug, warn};

use super::room::Rooms;
use crate::fiber::core::{Core, race};

/// How long clients have at the end to hear of it.
const GOODBYE: Duration = Duration::from_secs(5);

/// How long is waited when there is nothing left to take a connection with, such as descriptors of files.
const OUT_OF_ALL: Duration = Duration::from_millis(200);

/// Serves `router` until the runtime closes and all connections have ended.
pub(super) async fn serve(listener: TcpListener, router: Router, core: &Arc<Core>, rooms: &Rooms, head: Duration) {
    let connections = GracefulShutdown::new();
    while let Some(taken) = race(listener.accept(), core.closing()).await {
        match taken {
            Ok((socket, peer)) => serve_one(socket, peer, &router, &connections, head),
            // It was gone before it was taken.
            Err(why) if is_of_one(&why) => debug!(%why, "a connection was not taken"),
            Err(why) => {
                warn!(%why, "no connection can be taken");
                race(tokio::time::sleep(OUT_OF_ALL), core.closing()).await;
            }
        }
    }
    drop(listener);
    let all = async {
        connections.shutdown().await;
        rooms.are_empty().await;
    };
    if tokio::time::timeout(GOODBYE, all).await.is_err() {
        warn!("clients are left that do not go away");
    }
}

fn serve_one(socket: TcpStream, peer: SocketAddr, router: &Router, connections: &GracefulShutdown, head: Duration) {
    // Chunks are small, and are not to wait for each other.
    if let Err(why) = socket.set_nodelay(true) {
        debug!(%why, "the chunks of a connection may wait for each other");
    }
    let service = TowerToHyperService::new(router.clone().layer(Extension(ConnectInfo(peer))));
    let mut http = Builder::new(TokioExecutor::new()).http1_only();
    http.http1().timer(TokioTimer::new()).header_read_timeout(head);
    let connection = connections.watch(http.serve_connection_with_upgrades(TokioIo::new(socket), service).into_owned());
    tokio::spawn(async move {
        if let Err(why) = connection.await {
            debug!(%why, %peer, "a connection has ended");
        }
    });
}

fn is_of_one(why: &io::Error) -> bool {
    matches!(why.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset)
}
