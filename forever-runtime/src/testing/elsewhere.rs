//! Moves the databases of a test to Postgres, so that tests that were written for a file run there
//! unchanged.
//!
//! With `FOREVER_TEST_STORE=<url>` each file has a schema of its own, which later opens and other
//! processes find by the file's path, and each database in memory has one that nothing finds again.
//! What only SQLite has is refused there, as in every program.
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use forever_postgres::PostgresStore;
use forever_postgres::tokio_postgres::{self, Client, NoTls};
use forever_store::paused::time_is_paused;

use crate::api::builder::Place;
use crate::error::{Error, ErrorKind, Result};
use crate::store::SeenBy;

/// Variable with the URL of the server.
const STORE: &str = "FOREVER_TEST_STORE";

/// Longer than any test lets a worker wait: the session of a worker shows that it lives.
const LEASE: Duration = Duration::from_secs(30);

/// Connections of a worker for its calls. Several tests run at a time, on one server.
const POOL: usize = 3;

/// Bytes of a name in Postgres.
const LONGEST: usize = 63;

/// A schema of the server that the variable names.
#[derive(Debug, Clone)]
pub(crate) struct Schema {
    pub(crate) url: String,
    pub(crate) name: String,
}

impl Schema {
    /// Where a database is that a program would have at a place in SQLite; `None` for that place
    /// itself.
    pub(crate) fn of(place: Option<&Place>) -> Result<Option<Self>> {
        let Ok(url) = std::env::var(STORE) else { return Ok(None) };
        let name = match place {
            Some(Place::File(path)) => of_file(path)?,
            Some(Place::Memory) => of_memory(),
            _ => return Ok(None),
        };
        Ok(Some(Schema { url, name }))
    }

    /// Opens the store, which shows its commits to a witness.
    ///
    /// Paused time would run ahead of the server, so it goes on.
    pub(crate) async fn connect(self, seen_by: SeenBy) -> Result<Arc<PostgresStore>> {
        if time_is_paused() {
            tokio::time::resume();
        }
        let failed = |error| Error::new(ErrorKind::Store, "failed to end the leases of dead workers").with_source(error);
        self.end_leases().await.map_err(failed)?;
        let builder = PostgresStore::builder(self.url).schema(&*self.name).lease(LEASE).pool(POOL);
        let store = Arc::new(match seen_by {
            Some(witness) => builder.seen_by(witness).connect().await?,
            None => builder.connect().await?,
        });
        let mut open = open();
        let stores = open.entry(self.name).or_default();
        stores.retain(|store| store.strong_count() > 0);
        stores.push(Arc::downgrade(&store));
        drop(open);
        Ok(store)
    }

    /// Ends the leases of workers whose processes are gone, and of those that this process has
    /// dropped. A worker that died before it held its lock would keep its fibers until then.
    async fn end_leases(&self) -> std::result::Result<(), tokio_postgres::Error> {
        let client = self.client().await?;
        if !self.has_tables(&client).await? {
            return Ok(());
        }
        let here = open().get(&self.name).is_some_and(|stores| stores.iter().any(|it| it.upgrade().is_some_and(|it| !it.is_closed())));
        for row in client.query(&self.sql("SELECT id, process FROM @workers"), &[]).await? {
            let (id, process): (i64, i64) = (row.get(0), row.get(1));
            let lives = if process == i64::from(std::process::id()) { here } else { Path::new(&format!("/proc/{process}")).exists() };
            if !lives {
                client.execute(&self.sql("UPDATE @workers SET lease_ms = 0, lock = NULL WHERE id = $1"), &[&id]).await?;
            }
        }
        Ok(())
    }

    /// A connection beside the store.
    pub(crate) async fn client(&self) -> std::result::Result<Client, tokio_postgres::Error> {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// Whether a store has made its tables.
    pub(crate) async fn has_tables(&self, client: &Client) -> std::result::Result<bool, tokio_postgres::Error> {
        const TABLES: &str = "SELECT 1 FROM pg_tables WHERE schemaname = $1 AND tablename = 'workers'";
        Ok(!client.query(TABLES, &[&self.name]).await?.is_empty())
    }

    /// SQL in which `@` stands for the schema.
    pub(crate) fn sql(&self, sql: &str) -> String {
        sql.replace('@', &format!("\"{}\".", self.name))
    }
}

/// The stores that this process has opened, by their schemas.
fn open() -> MutexGuard<'static, HashMap<String, Vec<Weak<PostgresStore>>>> {
    static OPEN: LazyLock<Mutex<HashMap<String, Vec<Weak<PostgresStore>>>>> = LazyLock::new(Mutex::default);
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The path is the name, so that other programs find it too.
fn of_file(path: &Path) -> Result<String> {
    let name = format!("file {}", path.display());
    if path.is_absolute() && name.len() <= LONGEST && !name.contains(['@', '"', '\'']) {
        return Ok(name);
    }
    let why = format!(
        "with `{STORE}` the path of a database names its schema: it is absolute, short and without quotes, unlike {}",
        path.display()
    );
    Err(Error::new(ErrorKind::Setup, why))
}

fn of_memory() -> String {
    static MADE: AtomicU32 = AtomicU32::new(0);
    format!("memory {} {}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed))
}
