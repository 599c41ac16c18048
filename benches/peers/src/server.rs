//! A Postgres server of the benchmark's own, a database for each run, and what the run cost the
//! server.
use std::cell::Cell;
use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, ensure};
use forever_testkit::postgres::Cluster;
use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls};

/// How long the server may take to notice that a process has ended.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Server {
    client: Client,
    runtime: Runtime,
    made: Cell<u32>,
    // Stopped after the connection is closed.
    cluster: Cluster,
}

/// Totals of the server.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Totals {
    /// Transactions that wrote something, which the server syncs its log for.
    pub(crate) writes: u64,
    /// All transactions in the database that were committed.
    pub(crate) transactions: u64,
    pub(crate) wal_bytes: u64,
}

impl Server {
    /// Starts a server with the default settings; `None` where Postgres is not installed.
    pub(crate) fn start() -> anyhow::Result<Option<Self>> {
        let Some(cluster) = Cluster::start() else { return Ok(None) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&cluster.url(), NoTls).await?;
            tokio::spawn(connection);
            anyhow::Ok(client)
        })?;
        let server = Server { client, runtime, made: Cell::new(0), cluster };
        for name in ["server_version", "fsync", "synchronous_commit", "full_page_writes"] {
            let value: String = server.runtime.block_on(server.client.query_one(&format!("SHOW {name}"), &[]))?.get(0);
            println!("postgres_{name}={value}");
        }
        Ok(Some(server))
    }

    fn execute(&self, sql: &str) -> anyhow::Result<()> {
        Ok(self.runtime.block_on(self.client.batch_execute(sql))?)
    }

    fn totals(&self, database: &str) -> anyhow::Result<Totals> {
        // Each transaction that writes takes one number.
        let sql = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint, xact_commit, (pg_current_wal_insert_lsn() - '0/0')::bigint
                   FROM pg_stat_database WHERE datname = $1";
        let row = self.runtime.block_on(self.client.query_one(sql, &[&database]))?;
        let count = |column: usize| row.get::<_, i64>(column).cast_unsigned();
        Ok(Totals { writes: count(0), transactions: count(1), wal_bytes: count(2) })
    }

    /// Creates an empty database.
    pub(crate) fn database(&self) -> anyhow::Result<Database<'_>> {
        self.made.set(self.made.get() + 1);
        let name = format!("run_{}", self.made.get());
        self.execute(&format!("CREATE DATABASE {name}"))?;
        // What earlier runs left in memory is not written to the disk during this one.
        self.execute("CHECKPOINT")?;
        let mut host = String::new();
        for byte in self.cluster.folder().to_str().context("the folder of the server is no text")?.bytes() {
            write!(host, "%{byte:02X}")?;
        }
        Ok(Database { url: format!("postgres://postgres@{host}/{name}"), begun: Cell::default(), name, server: self })
    }
}

/// The database of one run.
pub(crate) struct Database<'a> {
    server: &'a Server,
    name: String,
    pub(crate) url: String,
    begun: Cell<Totals>,
}

impl Database<'_> {
    /// The measurement begins.
    pub(crate) fn begin(&self) -> anyhow::Result<()> {
        self.begun.set(self.server.totals(&self.name)?);
        Ok(())
    }

    /// What was written since the measurement began, and the transactions since the database was
    /// created: a connection reports these late. Waits until all are closed, which then have
    /// reported.
    pub(crate) fn spent(&self) -> anyhow::Result<Totals> {
        let pause = Duration::from_millis(20);
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend'";
        let mut waited = Duration::ZERO;
        while self.server.runtime.block_on(self.server.client.query_one(sql, &[&self.name]))?.get::<_, i64>(0) > 0 {
            ensure!(waited < PATIENCE, "a connection to {} is still open", self.name);
            std::thread::sleep(pause);
            waited += pause;
        }
        let now = self.server.totals(&self.name)?;
        Ok(Totals {
            writes: now.writes - self.begun.get().writes,
            transactions: now.transactions,
            wal_bytes: now.wal_bytes - self.begun.get().wal_bytes,
        })
    }
}

impl Drop for Database<'_> {
    fn drop(&mut self) {
        let _ = self.server.execute(&format!("DROP DATABASE {} WITH (FORCE)", self.name));
    }
}
