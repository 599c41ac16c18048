//! The database of a run in a schema of a Postgres server.
use std::sync::{Mutex, MutexGuard, PoisonError};

use forever_postgres::tokio_postgres::types::ToSql;
use forever_postgres::tokio_postgres::{Client, Row};

use super::db_state::DbState;
use super::stored::{BUSY, INTERRUPTED};
use crate::error::chain;
use crate::testing::elsewhere::Schema;

/// Names of schemas that no run uses.
static FREE: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A schema, and a connection to look at it beside the processes.
///
/// Its tables are used again by later runs, because making them takes longer than most runs.
#[derive(Debug)]
pub(super) struct InPostgres {
    schema: Schema,
    client: Client,
}

impl Drop for InPostgres {
    fn drop(&mut self) {
        free().push(std::mem::take(&mut self.schema.name));
    }
}

fn free() -> MutexGuard<'static, Vec<String>> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

const ALL_TABLES: &str = "SELECT tablename::text FROM pg_tables WHERE schemaname = $1 AND tablename <> 'forever_version'";

/// Ends the sessions of a process, and waits until they are gone: what they have under way is
/// stored by then, or never.
const END_SESSIONS: &str = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = $1";

impl InPostgres {
    /// An empty schema; `place` is one that no other run uses.
    pub(super) async fn connect(place: Schema) -> Result<Self, String> {
        let name = free().pop().unwrap_or_else(|| format!("crash {} {}", std::process::id(), uuid::Uuid::now_v7().simple()));
        let schema = Schema { name, ..place };
        let client = schema.client().await.map_err(|error| chain(&error))?;
        let stored = InPostgres { schema, client };
        stored.end_sessions().await?;
        let tables = stored.rows(ALL_TABLES, &[&stored.schema.name]).await?;
        let empty: String = tables.iter().map(|row| stored.schema.sql(&format!("DELETE FROM @{};", row.get::<_, String>(0)))).collect();
        // Without the checks of references, which want an order.
        let empty = format!("SET session_replication_role = replica; {empty} RESET session_replication_role");
        stored.client.batch_execute(&empty).await.map_err(|error| chain(&error))?;
        Ok(stored)
    }

    pub(super) fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Runs a query, in which `@` stands for the schema.
    async fn rows(&self, sql: &str, args: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, String> {
        self.client.query(&self.schema.sql(sql), args).await.map_err(|error| chain(&error))
    }

    pub(super) async fn db_state(&self) -> Result<DbState, String> {
        if !self.schema.has_tables(&self.client).await.map_err(|error| chain(&error))? {
            return Ok(DbState::default());
        }
        let [fibers, ops, messages, schedules] = DbState::IN_POSTGRES;
        DbState::of_rows(
            &self.rows(fibers, &[]).await?,
            &self.rows(ops, &[]).await?,
            &self.rows(messages, &[]).await?,
            &self.rows(schedules, &[]).await?,
        )
        .map_err(|error| chain(&error))
    }

    pub(super) async fn is_busy(&self, is_active: impl Fn(&str) -> bool) -> Result<bool, String> {
        // In this order, as in SQLite.
        let interrupted = self.rows(INTERRUPTED, &[]).await?;
        if interrupted.iter().any(|row| is_active(row.get(0))) {
            return Ok(true);
        }
        Ok(self.rows(BUSY, &[]).await?.iter().any(|row| row.get::<_, i64>(0) > 0))
    }

    pub(super) async fn end_sessions(&self) -> Result<(), String> {
        self.rows(END_SESSIONS, &[&self.schema.name]).await.map(drop)
    }
}
