//! Connections, and a pool of a few.
//!
//! A connection on which anything unexpected happened is dropped and never returned to the pool. So
//! a pooled connection has no open transaction and no statement under way.
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forever_store::{BoxFuture, Error, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Socket, Statement, Transaction};

use crate::sql::{Arg, in_schema};

type Connected = std::result::Result<(Client, BoxFuture<'static, ()>), tokio_postgres::Error>;

/// Takes the payloads of notifications.
pub(crate) type Listener = Arc<dyn Fn(&str) + Send + Sync>;

/// Opens connections, for any type of TLS.
#[derive(Clone)]
pub(crate) struct Connector(Arc<dyn Fn(Config, Option<Listener>) -> BoxFuture<'static, Connected> + Send + Sync>);

impl Connector {
    pub(crate) fn new<T>(tls: T) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send + 'static,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        Connector(Arc::new(move |config, listener| {
            let tls = tls.clone();
            Box::pin(async move {
                let (client, mut connection) = config.connect(tls).await?;
                let driver: BoxFuture<'static, ()> = Box::pin(async move {
                    loop {
                        match std::future::poll_fn(|cx| connection.poll_message(cx)).await {
                            Some(Ok(AsyncMessage::Notification(told))) => {
                                if let Some(listener) = &listener {
                                    listener(told.payload());
                                }
                            }
                            Some(Ok(_)) => {}
                            Some(Err(error)) => {
                                tracing::debug!(%error, "a connection to Postgres ended");
                                return;
                            }
                            None => return,
                        }
                    }
                });
                Ok((client, driver))
            })
        }))
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}

/// A time limit as a setting, in milliseconds.
pub(crate) fn as_setting(limit: Duration) -> u128 {
    // 0 would be no limit.
    limit.as_millis().clamp(1, i32::MAX.unsigned_abs().into())
}

/// How long a statement that is not in a transaction, or has the rows of many fibers, waits for a
/// lock. The rows of the store are locked for milliseconds, unless another program locks them.
pub(crate) const LOCKED: Duration = Duration::from_secs(1);

/// How connections are opened and used.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    pub(crate) config: Config,
    pub(crate) connector: Connector,
    /// The schema, quoted.
    pub(crate) schema: Arc<str>,
    /// Whether statements are prepared, once for each connection.
    pub(crate) prepares: bool,
    /// SQL with the settings of a session; none for sessions that are not the store's own.
    pub(crate) settings: Option<Arc<str>>,
}

impl Access {
    /// Opens a connection.
    pub(crate) async fn connect(&self) -> std::result::Result<Connection, tokio_postgres::Error> {
        self.connect_and_listen(None).await
    }

    /// Opens a connection whose notifications a listener takes.
    pub(crate) async fn connect_and_listen(&self, listener: Option<Listener>) -> std::result::Result<Connection, tokio_postgres::Error> {
        let (client, driver) = (self.connector.0)(self.config.clone(), listener).await?;
        let driver = tokio::spawn(driver);
        if let Some(settings) = &self.settings {
            client.batch_execute(settings).await?;
        }
        Ok(Connection { client, driver, statements: Mutex::default(), schema: Arc::clone(&self.schema), prepares: self.prepares })
    }
}

/// Most prepared statements of a connection. The statements of lists depend on their conditions.
const STATEMENTS: usize = 400;

/// One connection.
pub(crate) struct Connection {
    client: Client,
    driver: JoinHandle<()>,
    statements: Mutex<HashMap<String, Statement>>,
    schema: Arc<str>,
    prepares: bool,
}

impl Connection {
    pub(crate) async fn query(&self, sql: &str, args: &[Arg<'_>]) -> std::result::Result<Vec<tokio_postgres::Row>, tokio_postgres::Error> {
        if self.prepares {
            let statement = self.statement(sql, args).await?;
            return self.client.query(&statement, &dynamic(args)).await;
        }
        self.client.query_typed(&in_schema(sql, &self.schema), &typed(args)).await
    }

    pub(crate) async fn execute(&self, sql: &str, args: &[Arg<'_>]) -> std::result::Result<u64, tokio_postgres::Error> {
        if self.prepares {
            let statement = self.statement(sql, args).await?;
            return self.client.execute(&statement, &dynamic(args)).await;
        }
        self.client.execute_typed(&in_schema(sql, &self.schema), &typed(args)).await
    }

    pub(crate) async fn batch(&self, sql: &str) -> std::result::Result<(), tokio_postgres::Error> {
        self.client.batch_execute(&in_schema(sql, &self.schema)).await
    }

    /// Begins a transaction for writing.
    pub(crate) async fn begin(&mut self) -> std::result::Result<Transaction<'_>, tokio_postgres::Error> {
        self.client.build_transaction().read_only(false).start().await
    }

    pub(crate) fn schema(&self) -> &Arc<str> {
        &self.schema
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Waits until the connection is closed.
    pub(crate) async fn lost(mut self) {
        // An error of the task means that it was aborted, which closes the connection as well.
        let _ = (&mut self.driver).await;
    }

    async fn statement(&self, sql: &str, args: &[Arg<'_>]) -> std::result::Result<Statement, tokio_postgres::Error> {
        let kept = || self.statements.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(statement) = kept().get(sql).cloned() {
            return Ok(statement);
        }
        let types: Vec<Type> = args.iter().map(Arg::kind).collect();
        let statement = self.client.prepare_typed(&in_schema(sql, &self.schema), &types).await?;
        let mut kept = kept();
        if kept.len() >= STATEMENTS {
            kept.clear();
        }
        kept.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }
}

fn dynamic<'a>(args: &'a [Arg<'_>]) -> Vec<&'a (dyn ToSql + Sync)> {
    args.iter().map(|arg| arg as &(dyn ToSql + Sync)).collect()
}

pub(crate) fn typed<'a>(args: &'a [Arg<'_>]) -> Vec<(&'a (dyn ToSql + Sync), Type)> {
    args.iter().map(|arg| (arg as &(dyn ToSql + Sync), arg.kind())).collect()
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("closed", &self.is_closed()).finish_non_exhaustive()
    }
}

/// A pool of connections, opened on demand.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) access: Access,
    size: usize,
    permits: Arc<Semaphore>,
    idle: Mutex<Idle>,
}

/// Connections that no call uses.
#[derive(Debug, Default)]
struct Idle {
    connections: Vec<Connection>,
    /// Calls that wait for one, because the server gives no more.
    waiting: VecDeque<oneshot::Sender<Connection>>,
    /// Until when no further one is requested of the server.
    full_until: Option<Instant>,
}

/// For how long a server that gives no further connection is not asked for one, if another call may
/// return its own.
const FULL: Duration = Duration::from_secs(1);

impl Idle {
    fn take(&mut self) -> Option<Connection> {
        while let Some(kept) = self.connections.pop() {
            if !kept.is_closed() {
                return Some(kept);
            }
        }
        None
    }
}

/// Right to use one connection.
pub(crate) type Permit = OwnedSemaphorePermit;

impl Pool {
    pub(crate) fn new(access: Access, size: usize) -> Self {
        Pool { access, size, permits: Arc::new(Semaphore::new(size)), idle: Mutex::default() }
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the right to use a connection.
    pub(crate) async fn permit(&self) -> Result<Permit> {
        Arc::clone(&self.permits).acquire_owned().await.map_err(|_| Error::closed())
    }

    /// An idle connection, or a new one. Where the server gives no more, one that another call
    /// returns.
    pub(crate) async fn connection(&self) -> std::result::Result<Connection, tokio_postgres::Error> {
        if let Some(kept) = self.idle().take() {
            return Ok(kept);
        }
        let is_full = self.idle().full_until.is_some_and(|until| Instant::now() < until);
        if is_full && let Some(returned) = self.returned().await {
            return Ok(returned);
        }
        match self.access.connect().await {
            Err(why) if why.code() == Some(&SqlState::TOO_MANY_CONNECTIONS) => {
                self.idle().full_until = Some(Instant::now() + FULL);
                self.returned().await.ok_or(why)
            }
            connected => connected,
        }
    }

    /// Waits for a connection that another call returns; `None` if none does.
    async fn returned(&self) -> Option<Connection> {
        // This call has one of the permits.
        if self.permits.available_permits() + 1 >= self.size {
            return self.idle().take();
        }
        let returned = {
            let mut idle = self.idle();
            if let Some(kept) = idle.take() {
                return Some(kept);
            }
            let (waits, returned) = oneshot::channel();
            // As many as may have a permit: those that wait no more leave.
            idle.waiting.retain(|waiting| !waiting.is_closed());
            idle.waiting.push_back(waits);
            returned
        };
        tokio::time::timeout(FULL, returned).await.ok()?.ok()
    }

    /// Returns to the pool a connection on which nothing unexpected happened.
    pub(crate) fn put(&self, mut connection: Connection) {
        if self.permits.is_closed() {
            return;
        }
        let mut idle = self.idle();
        while let Some(waits) = idle.waiting.pop_front() {
            match waits.send(connection) {
                Ok(()) => return,
                // It waits no more.
                Err(back) => connection = back,
            }
        }
        idle.connections.push(connection);
    }

    /// Closes all idle connections, and gives out no more.
    pub(crate) fn close(&self) {
        self.permits.close();
        *self.idle() = Idle::default();
    }
}

/// Backoff with jitter: a random part of a delay that doubles with each attempt, up to a limit.
pub(crate) fn backoff(attempt: u32) -> Duration {
    const FIRST_MS: u64 = 20;
    const LONGEST_MS: u64 = 2_000;
    let most = FIRST_MS.saturating_mul(1 << attempt.min(16)).min(LONGEST_MS);
    // The random bits of a UUID are random enough for jitter.
    let random = u64::from_le_bytes(uuid::Uuid::new_v4().as_bytes()[..8].try_into().unwrap_or_default());
    Duration::from_millis(random % most + 1)
}
