//! Serving the routes on a port or a Unix socket until the runtime closes.
use std::io;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::{Extension, Router};
use forever_runtime::Forever;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tracing::{debug, warn};

/// How long the head of a request may take, and how long it may be in bytes.
const HEAD: (Duration, usize) = (Duration::from_secs(10), 64 << 10);

/// How long is waited when no connection can be taken.
const OUT_OF_ALL: Duration = Duration::from_millis(200);

pub(crate) async fn tcp(listener: TcpListener, router: Router, forever: &Forever) {
    loop {
        tokio::select! {
            taken = listener.accept() => match taken {
                Ok((socket, peer)) => one(socket, router.clone().layer(Extension(ConnectInfo(peer))), forever),
                Err(why) => failed(&why).await,
            },
            () = forever.closing() => return,
        }
    }
}

#[cfg(unix)]
pub(crate) async fn unix(path: &Path, router: Router, forever: &Forever) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};

    // Made with the rights it is to have in a folder that only this user can enter, and then moved:
    // at no moment can others open it, whatever the umask.
    let mut folder = path.as_os_str().to_owned();
    folder.push(".n");
    let folder = std::path::PathBuf::from(folder);
    let being_made = folder.join("s");
    // Left behind by an owner that died here.
    let _ = std::fs::remove_file(&being_made);
    let _ = std::fs::remove_dir(&folder);
    std::fs::DirBuilder::new().mode(0o700).create(&folder)?;
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700))?;
    let made = tokio::net::UnixListener::bind(&being_made).and_then(|listener| {
        std::fs::set_permissions(&being_made, std::fs::Permissions::from_mode(0o600))?;
        std::fs::rename(&being_made, path)?;
        Ok(listener)
    });
    let _ = std::fs::remove_file(&being_made);
    std::fs::remove_dir(&folder)?;
    let listener = made?;
    loop {
        tokio::select! {
            taken = listener.accept() => match taken {
                Ok((socket, _)) => one(socket, router.clone(), forever),
                Err(why) => failed(&why).await,
            },
            () = forever.closing() => {
                // The next owner makes its own.
                let _ = std::fs::remove_file(path);
                return Ok(());
            }
        }
    }
}

async fn failed(why: &io::Error) {
    if matches!(why.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
        return;
    }
    warn!(%why, "the inspector cannot take a connection");
    tokio::time::sleep(OUT_OF_ALL).await;
}

pub(crate) fn one(socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, router: Router, forever: &Forever) {
    let forever = forever.clone();
    tokio::spawn(async move {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEAD.0).max_buf_size(HEAD.1);
        let mut connection = pin!(http.serve_connection(TokioIo::new(socket), TowerToHyperService::new(router)));
        let over = tokio::select! {
            over = connection.as_mut() => over,
            () = forever.closing() => {
                connection.as_mut().graceful_shutdown();
                drop(forever);
                connection.await
            }
        };
        if let Err(why) = over {
            debug!(%why, "a connection of the inspector has ended");
        }
    });
}
