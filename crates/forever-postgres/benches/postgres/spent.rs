//! What the server has done: statements, transactions, bytes of its log.
use tokio_postgres::{Client, NoTls};

/// A client beside the workers.
pub(crate) struct Observer {
    pub(crate) client: Client,
    /// Whether the server counts statements.
    counts_statements: bool,
}

/// Totals of the server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spent {
    /// Statements, with `BEGIN` and `COMMIT`; `None` where the server does not count them.
    pub(crate) statements: Option<i64>,
    /// Transactions that wrote something.
    pub(crate) commits: i64,
    pub(crate) wal_bytes: i64,
}

impl Spent {
    pub(crate) fn since(self, before: Spent) -> Spent {
        Spent {
            statements: self.statements.zip(before.statements).map(|(now, before)| now - before),
            commits: self.commits - before.commits,
            wal_bytes: self.wal_bytes - before.wal_bytes,
        }
    }
}

/// Lets a server count its statements from its next start on, where it can.
pub(crate) async fn count_statements(url: &str) -> anyhow::Result<()> {
    let client = connect(url).await?;
    let sql = "SELECT EXISTS (SELECT 1 FROM pg_available_extensions WHERE name = 'pg_stat_statements')";
    if client.query_one(sql, &[]).await?.get(0) {
        client.batch_execute("ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'").await?;
    }
    Ok(())
}

pub(crate) async fn connect(url: &str) -> anyhow::Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

impl Observer {
    pub(crate) async fn connect(url: &str) -> anyhow::Result<Self> {
        let client = connect(url).await?;
        let preloaded: String = client.query_one("SHOW shared_preload_libraries", &[]).await?.get(0);
        let counts_statements = preloaded.contains("pg_stat_statements")
            && client.batch_execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements").await.is_ok();
        Ok(Observer { client, counts_statements })
    }

    pub(crate) async fn spent(&self) -> anyhow::Result<Spent> {
        let sql = "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements";
        let statements = if self.counts_statements { Some(self.client.query_one(sql, &[]).await?.get(0)) } else { None };
        // Each transaction that writes takes one number.
        let sql = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint, (pg_current_wal_insert_lsn() - '0/0')::bigint";
        let row = self.client.query_one(sql, &[]).await?;
        Ok(Spent { statements, commits: row.get(0), wal_bytes: row.get(1) })
    }

    /// Lists the statements that took the most time since the last list.
    pub(crate) async fn list_statements(&self) -> anyhow::Result<()> {
        if !self.counts_statements {
            return Ok(());
        }
        let sql = "SELECT calls, rows, total_exec_time, shared_blks_hit, left(regexp_replace(query, '\\s+', ' ', 'g'), 160) FROM pg_stat_statements
                   ORDER BY total_exec_time DESC LIMIT 14";
        for row in self.client.query(sql, &[]).await? {
            let (calls, rows, ms, pages, query): (i64, i64, f64, i64, String) =
                (row.get(0), row.get(1), row.get(2), row.get(3), row.get(4));
            println!("#  {calls:>7} calls {rows:>8} rows {ms:>9.0} ms {pages:>9} pages  {query}");
        }
        self.forget_statements().await
    }

    pub(crate) async fn forget_statements(&self) -> anyhow::Result<()> {
        if self.counts_statements {
            self.client.execute("SELECT pg_stat_statements_reset()", &[]).await?;
        }
        Ok(())
    }

    /// How many of a hundred updates of snapshots stayed in their page without an index entry.
    pub(crate) async fn hot(&self, schema: &str) -> anyhow::Result<Option<i64>> {
        let sql = "SELECT 100 * n_tup_hot_upd / nullif(n_tup_upd, 0) FROM pg_stat_all_tables
                   WHERE schemaname = $1 AND relname = 'snapshots'";
        Ok(self.client.query_one(sql, &[&schema]).await?.get(0))
    }
}
