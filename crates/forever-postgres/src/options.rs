//! Options of a store, and its connect.
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use forever_store::{Error, ErrorKind, Result, SeenBy, Witness};
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{Config, NoTls, Socket};

use crate::call::{Kind, Shared, Work};
use crate::pool::{Access, Connector, Pool};
use crate::rights;
use crate::schema;
use crate::settings;
use crate::store::PostgresStore;
use crate::transaction::Transactions;

/// Options of a [`PostgresStore`], and its [`connect`](Builder::connect).
///
/// ```
/// use forever_postgres::PostgresStore;
/// use forever_store::ErrorKind;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let options = PostgresStore::builder("postgres://app:secret@pooler.local:6432/app")
///     .schema("orders")
///     .pool(16)
///     // The URL is that of PgBouncer; the server itself shows that this worker lives.
///     .pooler(true)
///     .direct_url("postgres://app:secret@db.local/app")
///     .lease(Duration::from_secs(20));
/// # let _ = options;
///
/// // Nothing is checked before the connect.
/// let error = PostgresStore::builder("no URL").connect().await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Setup);
/// # }
/// ```
///
/// The URL has the syntax of libpq, as a URL or as `key=value` pairs. What it sets takes precedence
/// over these defaults, in seconds where they are times: `application_name=forever`,
/// `connect_timeout=5`, `tcp_user_timeout=15`, `keepalives_idle=10`.
///
/// A URL may have several hosts, of which the one is used that accepts writes:
/// `postgres://app:secret@db1.local,db2.local/app`. So the store finds a standby that was promoted.
#[derive(Debug, Clone)]
pub struct Builder {
    url: String,
    direct_url: Option<String>,
    schema: String,
    lease: Duration,
    pool: usize,
    transactions: usize,
    pooler: bool,
    sign_of_life: bool,
    patience: Duration,
    statement_limit: Duration,
    connector: Option<Connector>,
    seen_by: SeenBy,
}

impl Builder {
    pub(crate) fn new(url: String) -> Self {
        Builder {
            url,
            direct_url: None,
            schema: "forever".to_owned(),
            lease: Duration::from_secs(10),
            pool: 8,
            transactions: 4,
            pooler: false,
            sign_of_life: true,
            patience: Duration::from_secs(10),
            statement_limit: Duration::from_secs(30),
            connector: None,
            seen_by: None,
        }
    }

    /// Schema that has the tables; created if it does not exist. Defaults to `forever`.
    ///
    /// Programs with different schemas share a database without knowing of each other. A name has 1
    /// to 63 bytes, without `@`; any other is an error of [`connect`](Self::connect).
    pub fn schema(mut self, name: impl Into<String>) -> Self {
        self.schema = name.into();
        self
    }

    /// Lease of this worker. Defaults to 10 seconds.
    ///
    /// A worker that cannot reach the database for this long counts as dead, and others take over
    /// its fibers. The worker renews its lease four times in that time. A shorter lease takes over
    /// sooner, and mistakes a slow worker for a dead one more often: that costs the steps in
    /// flight, which run again elsewhere.
    ///
    /// A lease of zero means none: every worker but the one that takes over counts as dead, which
    /// is for tests within one process.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Number of connections for operations. Defaults to 8, and is at least 1.
    ///
    /// One more renews the lease, one more shows that this worker [lives](Self::sign_of_life), and
    /// [`transactions`](Self::transactions) of the program have their own. All workers together
    /// have to stay below `max_connections` of the server. A call waits for a free connection
    /// without a limit.
    pub fn pool(mut self, connections: usize) -> Self {
        self.pool = connections.max(1);
        self
    }

    /// Number of connections for transactions of the program. Defaults to 4, and is at least 1.
    ///
    /// They are opened when they are needed. A transaction waits for a free one without a limit,
    /// and keeps it until its end.
    pub fn transactions(mut self, connections: usize) -> Self {
        self.transactions = connections.max(1);
        self
    }

    /// Whether the URL is that of a pooler in transaction mode, such as `PgBouncer`. Defaults to
    /// no.
    ///
    /// Then no session state is used: statements are not prepared, and without a [direct
    /// connection](Self::direct_url) others notice a death only by the lease.
    pub fn pooler(mut self, is_pooler: bool) -> Self {
        self.pooler = is_pooler;
        self
    }

    /// URL of the server itself, for the [sign of life](Self::sign_of_life). Defaults to the main
    /// URL, or to none where that is a [pooler](Self::pooler)'s.
    pub fn direct_url(mut self, url: impl Into<String>) -> Self {
        self.direct_url = Some(url.into());
        self
    }

    /// Whether a session lock shows others that this worker lives. Defaults to yes.
    ///
    /// With it others notice the death of the process at once, and without it when the lease has
    /// run out. The lock is held on a connection of its own, which needs a session: behind a pooler
    /// set a [direct URL](Self::direct_url).
    pub fn sign_of_life(mut self, shows: bool) -> Self {
        self.sign_of_life = shows;
        self
    }

    /// Time for which a call is retried while the server cannot be reached. Defaults to 10 seconds.
    ///
    /// Afterwards the call fails with [`ErrorKind::Store`]. Zero makes one attempt. A call whose
    /// commit may have happened is not retried, whatever time is left.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Time that one attempt of a call may take. Defaults to 30 seconds.
    ///
    /// An attempt that takes longer fails, and is not repeated: with
    /// [`ErrorKind::OutcomeUnknown`] if its commit was requested, otherwise with
    /// [`ErrorKind::Store`].
    pub fn call_limit(mut self, limit: Duration) -> Self {
        self.statement_limit = limit;
        self
    }

    /// TLS for connections, where the `sslmode` of the URL asks for it.
    ///
    /// Defaults to rustls with the certificates of the platform with the feature `rustls`, and to
    /// none without it.
    pub fn tls<T>(mut self, tls: T) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send + 'static,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        self.connector = Some(Connector::new(tls));
        self
    }

    /// Test hook that sees every commit, and may stop everything around it.
    ///
    /// The sessions have the name of the schema, so that a test can end them as a dead process's.
    // For the testing kit of the runtime.
    #[doc(hidden)]
    pub fn seen_by(mut self, witness: Arc<dyn Witness>) -> Self {
        self.seen_by = Some(witness);
        self
    }

    /// Connects, and creates the tables that are missing.
    ///
    /// While the server cannot be reached, it tries again for as long as
    /// [`patience`](Self::patience) says. Several workers may connect to a new database at once.
    ///
    /// # Cancel safety
    /// If the future is dropped, the tables may be created all the same.
    ///
    /// # Errors
    /// Of kind [`Setup`](ErrorKind::Setup) when an option is invalid, a setting of the server or
    /// the role is one under which the store cannot work, or the role lacks a right; of kind
    /// [`Format`](ErrorKind::Format) when the schema is not one of this library, or of a newer
    /// version; of kind [`Store`](ErrorKind::Store) when the server cannot be used.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn connect(self) -> Result<PostgresStore> {
        self.connect_with(&rights::OF_WORKER, |tx, name| Box::pin(schema::migrate(tx, name, schema::MIGRATIONS))).await
    }

    /// Connects to tables that a worker has made, and changes none.
    ///
    /// For a process that only asks, which may have a role without the right to make tables; see
    /// `Forever`'s `Builder::client`.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), and of kind [`Format`](ErrorKind::Format) when there are no
    /// tables, or those of an older version.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn connect_without_migrating(self) -> Result<PostgresStore> {
        self.connect_with(&rights::OF_CLIENT, |tx, name| Box::pin(schema::check(tx, name))).await
    }

    async fn connect_with(self, rights: &'static [&'static str], tables: Work<String, ()>) -> Result<PostgresStore> {
        let quoted = schema::quoted(&self.schema)?;
        let settings = settings::of_session(self.statement_limit);
        let access = |url: &str, is_pooler: bool| -> Result<Access> {
            let mut config = config(url)?;
            if self.seen_by.is_some() {
                config.application_name(&self.schema);
            }
            let connector = match &self.connector {
                Some(connector) => connector.clone(),
                None => default_connector(&config)?,
            };
            // A pooler gives each transaction another session.
            let settings = (!is_pooler).then(|| Arc::clone(&settings));
            Ok(Access { config, connector, schema: Arc::clone(&quoted), prepares: !is_pooler, settings })
        };
        let of_calls = access(&self.url, self.pooler)?;
        let direct = match (&self.direct_url, self.pooler, self.sign_of_life && !self.lease.is_zero()) {
            (_, _, false) | (None, true, true) => None,
            (Some(url), _, true) => Some(Access { prepares: false, ..access(url, false)? }),
            (None, false, true) => Some(Access { prepares: false, ..of_calls.clone() }),
        };
        // Transactions of the program have the settings of the server and the role.
        let of_transactions = Access { prepares: false, settings: None, ..of_calls.clone() };
        // One that is idle for longer than its lease has lost its claims, if it had any.
        let longest = Duration::from_secs(30);
        let idle_limit = if self.lease.is_zero() { longest } else { self.lease.clamp(Duration::from_secs(1), longest) };
        let shared = Arc::new(Shared {
            idle_limit,
            pool: Pool::new(of_calls.clone(), self.pool),
            ready: Arc::new(OnceLock::new()),
            unread: Arc::new(OnceLock::new()),
            worker: Arc::new(AtomicI64::new(0)),
            closed: Arc::new(AtomicBool::new(false)),
            notices: Arc::default(),
            patience: self.patience,
            limit: self.statement_limit,
            lock_limit: self.statement_limit,
            seen_by: self.seen_by.clone(),
        });
        // A connection of its own: the lease is renewed however many calls are under way.
        let house = Arc::new(Shared {
            idle_limit,
            pool: Pool::new(of_calls.clone(), 1),
            ready: Arc::clone(&shared.ready),
            unread: Arc::clone(&shared.unread),
            worker: Arc::clone(&shared.worker),
            closed: Arc::clone(&shared.closed),
            notices: Arc::clone(&shared.notices),
            patience: self.lease / 4,
            limit: self.lease.max(Duration::from_secs(1)),
            // The lease is renewed in between.
            lock_limit: self.lease / 8,
            // Leases are renewed beside the program.
            seen_by: None,
        });
        shared.call("check the settings of the server", Kind::Read, (), |tx, ()| Box::pin(settings::check(tx))).await?;
        shared
            .call("make the tables", Kind::Write, self.schema.clone(), tables)
            .await
            .map_err(|error| if error.is_outcome_unknown() { unknown_tables(error) } else { error })?;
        let check: Work<(String, &'static [&'static str]), ()> = |tx, (schema, rights)| Box::pin(rights::check(tx, schema, rights));
        shared.call("check the rights of the role", Kind::Read, (self.schema.clone(), rights), check).await?;
        let transactions = Transactions::new(Arc::clone(&shared), Pool::new(of_transactions, self.transactions));
        Ok(PostgresStore::over(shared, house, transactions, self.lease, direct, self.schema.into()))
    }
}

/// Error of a migration of unknown outcome. The next open sees whether the tables exist.
fn unknown_tables(error: Error) -> Error {
    Error::new(ErrorKind::Store, "failed to make the tables").with_source(error)
}

fn config(url: &str) -> Result<Config> {
    let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
        // The text of the URL error may contain the password.
        let why = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        Error::new(ErrorKind::Setup, format!("failed to read the URL of the database: {why}"))
    })?;
    if config.get_application_name().is_none() {
        config.application_name("forever");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(Duration::from_secs(5));
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(Duration::from_secs(15));
    }
    // A standby accepts connections and no writes, so any of several hosts is of no use.
    if config.get_hosts().len().max(config.get_hostaddrs().len()) > 1 && config.get_target_session_attrs() == TargetSessionAttrs::Any {
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    // What a URL says nothing of has this value there.
    if config.get_keepalives_idle() == Config::new().get_keepalives_idle() {
        config.keepalives_idle(Duration::from_secs(10));
    }
    Ok(config)
}

#[cfg(feature = "rustls")]
fn default_connector(config: &Config) -> Result<Connector> {
    use rustls_platform_verifier::BuilderVerifierExt;
    if config.get_ssl_mode() == SslMode::Disable {
        return Ok(Connector::new(NoTls));
    }
    let setup = |why: rustls::Error| Error::new(ErrorKind::Setup, "failed to set up TLS").with_source(why);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(BuilderVerifierExt::with_platform_verifier)
        .map_err(setup)?
        .with_no_client_auth();
    Ok(Connector::new(tokio_postgres_rustls::MakeRustlsConnect::new(tls)))
}

#[cfg(not(feature = "rustls"))]
fn default_connector(config: &Config) -> Result<Connector> {
    if config.get_ssl_mode() == SslMode::Require {
        let why = "the URL asks for TLS: turn on the feature `rustls`, or give a connector with `.tls(..)`";
        return Err(Error::new(ErrorKind::Setup, why));
    }
    Ok(Connector::new(NoTls))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_takes_precedence_over_the_defaults() {
        let bare = config("postgres://localhost/app").unwrap();
        assert_eq!(bare.get_application_name(), Some("forever"));
        assert_eq!(bare.get_connect_timeout(), Some(&Duration::from_secs(5)));
        assert_eq!(bare.get_tcp_user_timeout(), Some(&Duration::from_secs(15)));
        assert_eq!(bare.get_keepalives_idle(), Duration::from_secs(10));
        let options = "application_name=shop&connect_timeout=3&tcp_user_timeout=4&keepalives_idle=60";
        let set = config(&format!("postgres://localhost/app?{options}")).unwrap();
        assert_eq!(set.get_application_name(), Some("shop"));
        assert_eq!(set.get_connect_timeout(), Some(&Duration::from_secs(3)));
        assert_eq!(set.get_tcp_user_timeout(), Some(&Duration::from_secs(4)));
        assert_eq!(set.get_keepalives_idle(), Duration::from_secs(60));
    }

    #[test]
    fn of_several_hosts_the_one_that_accepts_writes_is_used() {
        let attrs = |url: &str| config(url).unwrap().get_target_session_attrs();
        assert_eq!(attrs("postgres://localhost/app"), TargetSessionAttrs::Any);
        assert_eq!(attrs("postgres://a:5432,b:5433/app"), TargetSessionAttrs::ReadWrite);
        assert_eq!(attrs("host=a,b"), TargetSessionAttrs::ReadWrite);
        assert_eq!(attrs("hostaddr=127.0.0.1,127.0.0.2"), TargetSessionAttrs::ReadWrite);
    }
}
