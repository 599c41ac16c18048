//! The inspector: a page, a JSON API and a control socket over the fibers of a runtime. Use it
//! through the `forever` crate, as `forever::inspect` (feature `inspect`).
//!
//! ```
//! # mod forever { pub use {forever_inspect as inspect, forever_runtime::*}; }
//! use forever::Forever;
//! use forever::inspect::Inspector;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let forever = Forever::builder().in_memory().open().await?;
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! println!("open http://{}", listener.local_addr()?);
//! let serving = tokio::spawn(Inspector::new(&forever).serve(listener));
//! // It serves until the runtime closes.
//! forever.close().await?;
//! serving.await?;
//! # Ok(())
//! # }
//! ```
//!
//! | to serve | call | commands |
//! |---|---|---|
//! | on a port | [`Inspector::listen`], [`Inspector::serve`] | with [`allow_actions`](Inspector::allow_actions) |
//! | in a router of the program | [`Inspector::router`] | with [`allow_actions`](Inspector::allow_actions) |
//! | the `forever` command, beside a database file | [`Inspector::listen_beside`] | always |
//!
//! Without [`Inspector::authorize`] only clients on the same machine are answered. Values marked
//! `#[secret]` are never sent. The guide shows the views and the command,
//! `docs/guide/src/operations/inspector.md`.

// `access` decides who may ask and from which pages, `api` reads, `actions` gives commands, `live`
// tells that something has happened, `page` is the page with its files, and `listen` serves on a
// port or a Unix socket.
#![forbid(unsafe_code)]

mod access;
mod actions;
mod api;
mod cached;
mod failure;
mod listen;
mod live;
mod overview;
mod page;
mod read;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use access::Access;
pub use access::{Request, Verdict};
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use cached::Cached;
use forever_runtime::Forever;
use forever_runtime::fiber::FiberCount;
use forever_runtime::view::{PositionView, QueueView, TroubleView};
use live::Watchers;
use tokio::net::TcpListener;

/// The longest body of a command, in bytes.
const LONGEST_BODY: usize = 1 << 20;

/// The longest exported fiber, in bytes.
const LONGEST_EXPORT: usize = 256 << 20;

/// Inspector of a runtime, with what it allows.
///
/// Defaults to reading, for clients on the same machine that name it as `localhost` or by a
/// loopback address. A request that a proxy has forwarded counts as one of another machine.
///
/// ```no_run
/// # use forever_inspect as inspect;
/// # async fn serve(forever: &forever_runtime::Forever) -> std::io::Result<()> {
/// use inspect::Inspector;
///
/// // http://127.0.0.1:7117, for people on this machine, with commands.
/// Inspector::new(forever).allow_actions().listen(([127, 0, 0, 1], 7117).into()).await
/// # }
/// ```
#[derive(Debug)]
#[must_use = "an inspector serves when `.router()` is served, or `.listen(..)` awaited"]
pub struct Inspector {
    forever: Forever,
    access: Access,
    has_actions: bool,
    /// Whether it is the control socket of this machine's user.
    is_socket: bool,
}

/// What the routes share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) forever: Forever,
    pub(crate) access: Access,
    pub(crate) has_actions: bool,
    pub(crate) is_socket: bool,
    pub(crate) counts: Cached<Vec<FiberCount>>,
    pub(crate) positions: Cached<Vec<PositionView>>,
    pub(crate) troubles: Cached<Vec<TroubleView>>,
    pub(crate) queues: Cached<Vec<QueueView>>,
    pub(crate) watchers: Watchers,
}

/// Routes of an [`Inspector`] with all defaults: read-only, for clients on the same machine.
///
/// Serve it with `into_make_service_with_connect_info::<SocketAddr>()`, so that it sees where a
/// client is, or use [`Inspector::listen`].
pub fn router(forever: &Forever) -> Router {
    Inspector::new(forever).router()
}

impl Inspector {
    /// An inspector of a runtime, read-only and for clients on the same machine.
    pub fn new(forever: &Forever) -> Self {
        Inspector { forever: forever.clone(), access: Access::default(), has_actions: false, is_socket: false }
    }

    /// Allows commands: resume, restart, cancel, resolve, send, discard, edit, fork, import.
    /// Defaults to reading alone.
    ///
    /// Every client that is let in may give them. An [`authorize`](Self::authorize) hook can still
    /// refuse [commands](Request::is_command). Without this call they are refused with status 403.
    pub fn allow_actions(mut self) -> Self {
        self.has_actions = true;
        self
    }

    /// Sets the authorization hook of the program. Defaults to none: only clients on the same
    /// machine are answered.
    ///
    /// It decides about the head of each request, for the page too. A page of another site that a
    /// browser shows cannot give commands, whatever this says.
    ///
    /// ```
    /// # use forever_inspect as inspect;
    /// # fn with(inspector: inspect::Inspector) -> inspect::Inspector {
    /// use inspect::Verdict;
    ///
    /// // Behind a proxy that has authenticated the user.
    /// inspector.allow_actions().authorize(|request| match request.headers.get("x-user") {
    ///     None => Verdict::Unauthorized,
    ///     Some(user) if request.is_command && user != "ada" => Verdict::Forbidden,
    ///     Some(_) => Verdict::Allow,
    /// })
    /// # }
    /// ```
    pub fn authorize(mut self, authorize: impl Fn(&Request<'_>) -> Verdict + Send + Sync + 'static) -> Self {
        self.access.authorize(authorize);
        self
    }

    /// Adds a name by which clients reach this server, for the check of the `Host` header.
    ///
    /// Without [`authorize`](Self::authorize) names of this machine alone are let in: another name
    /// may be that of a site that has made its address this one's. With it, all names are, unless
    /// this is called.
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.access.host(&host.into());
        self
    }

    /// The routes, to be served or nested: `Router::new().nest("/inspect", inspector.router())`.
    pub fn router(self) -> Router {
        let shared = Arc::new(Shared {
            forever: self.forever,
            access: self.access,
            has_actions: self.has_actions,
            is_socket: self.is_socket,
            counts: Cached::default(),
            troubles: Cached::default(),
            queues: Cached::default(),
            positions: Cached::default(),
            watchers: Watchers::default(),
        });
        Router::new()
            .route("/", get(page::index))
            .route("/assets/{file}", get(page::asset))
            .route("/api/overview", get(overview::overview))
            .route("/api/fibers", get(api::fibers))
            .route("/api/fibers/{id}", get(api::fiber))
            .route("/api/fibers/{id}/ops", get(api::fiber_ops))
            .route("/api/fibers/{id}/at/{number}", get(api::fiber_at))
            .route("/api/fibers/{id}/export", get(api::export))
            .route("/api/functions", get(api::functions))
            .route("/api/functions/{name}", get(api::function))
            .route("/api/ops", get(api::in_doubt))
            .route("/api/agents", get(api::agents))
            .route("/api/chats", get(api::chats))
            .route("/api/chats/{class}/{name}", get(api::chat))
            .route("/api/schedules", get(api::schedules))
            .route("/api/check", get(api::check))
            .route("/api/events", get(live::events))
            .route("/api/fibers/{id}/{action}", post(actions::fiber))
            .route("/api/ops/{id}/resolve", post(actions::op))
            .route("/api/bulk", post(actions::bulk))
            .route("/api/import", post(actions::import).layer(DefaultBodyLimit::max(LONGEST_EXPORT)))
            .route("/api/backup", post(actions::backup))
            .fallback(failure::not_found)
            .method_not_allowed_fallback(failure::wrong_method)
            .layer(DefaultBodyLimit::max(LONGEST_BODY))
            .layer(from_fn_with_state(Arc::clone(&shared), access::check))
            .with_state(shared)
    }

    /// Serves on an address until the runtime closes. Port 0 lets the system choose one, which a
    /// `tracing` event reports.
    ///
    /// # Cancel safety
    /// Dropping the future closes the listener. Connections that are open are served until the
    /// runtime closes.
    ///
    /// # Errors
    /// When the address cannot be listened on, for example since it is in use.
    pub async fn listen(self, address: SocketAddr) -> io::Result<()> {
        let listener = TcpListener::bind(address).await?;
        tracing::info!(address = %listener.local_addr()?, "the inspector is open");
        self.serve(listener).await;
        Ok(())
    }

    /// Serves on a listener until the runtime closes.
    ///
    /// # Cancel safety
    /// As [`listen`](Self::listen).
    pub async fn serve(self, listener: TcpListener) {
        let forever = self.forever.clone();
        listen::tcp(listener, self.router(), &forever).await;
    }

    /// Serves on a Unix socket beside the database, for the `forever` command, until the runtime
    /// closes. Commands are allowed: only this machine's user and root can open the socket.
    ///
    /// The socket of an owner that has died is replaced. The lock of the database keeps a second
    /// owner from doing so.
    ///
    /// # Cancel safety
    /// As [`listen`](Self::listen). The file of the socket stays, and the next owner replaces it.
    ///
    /// # Errors
    /// When the socket cannot be made: the folder is missing or read-only, or the path is longer
    /// than the system allows for a socket (about 100 bytes).
    #[cfg(unix)]
    pub async fn listen_beside(mut self, database: impl AsRef<Path>) -> io::Result<()> {
        (self.has_actions, self.is_socket) = (true, true);
        self.access.open();
        let forever = self.forever.clone();
        listen::unix(&socket_path(database), self.router(), &forever).await
    }

    /// Serves one caller in the same process, which may do everything; for the `forever` command.
    #[doc(hidden)]
    pub fn serve_caller(mut self, caller: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static) {
        (self.has_actions, self.is_socket) = (true, true);
        self.access.open();
        let forever = self.forever.clone();
        listen::one(caller, self.router(), &forever);
    }
}

/// The path of the control socket of a database: that of the database, and `.sock`. A symbolic link
/// to the database leads to the socket beside the database itself.
///
/// ```
/// assert_eq!(forever_inspect::socket_path("shop.db"), std::path::Path::new("shop.db.sock"));
/// ```
pub fn socket_path(database: impl AsRef<Path>) -> PathBuf {
    let database = database.as_ref();
    let is_link = database.symlink_metadata().is_ok_and(|found| found.is_symlink());
    let real = is_link.then(|| database.canonicalize().ok()).flatten();
    let mut path = real.unwrap_or_else(|| database.to_owned()).into_os_string();
    path.push(".sock");
    path.into()
}
