//! The database of a run, which outlives its processes.
use std::path::PathBuf;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::super::dice::Dice;
use super::World;
use super::db_state::DbState;
#[cfg(feature = "postgres")]
use super::stored_postgres::InPostgres;
use super::torn_write::torn_write;
use crate::api::builder::Place;
use crate::runtime::state::Runtime;
#[cfg(feature = "postgres")]
use crate::testing::elsewhere::Schema;
use crate::testing::fuse::Fuse;

/// Interval at which it is checked whether all is at rest.
pub(super) const LOOK: Duration = Duration::from_millis(1);

/// Fibers that an earlier process has left and that may be claimed. `@` stands for the schema.
pub(super) const INTERRUPTED: &str = "SELECT id FROM @fibers WHERE state = 'interrupted'";

/// Number of fibers and schedules that run or are about to.
pub(super) const BUSY: &str = "SELECT (SELECT count(*) FROM @fibers WHERE state IN ('pending', 'running'))
                                    + (SELECT count(*) FROM @schedules WHERE running_ms IS NOT NULL)";

/// The database of a run.
#[derive(Debug)]
pub(super) enum Stored {
    Sqlite(InSqlite),
    #[cfg(feature = "postgres")]
    Postgres(InPostgres),
}

impl Stored {
    /// The place that the first builder of a run has chosen.
    pub(super) async fn new(world: &World, chosen: Option<&Place>) -> Result<Self, String> {
        match chosen {
            Some(Place::File(path)) if *path != world.database() => {
                return Err("each run needs a file of its own: give `.sqlite(world.database())`".to_owned());
            }
            Some(Place::Store(_)) => {
                return Err("each run needs a database of its own: give `.sqlite(world.database())` or `.in_memory()`".to_owned());
            }
            _ => {}
        }
        #[cfg(feature = "postgres")]
        if let Some(schema) = Schema::of(chosen).map_err(|error| error.to_string())? {
            return InPostgres::connect(schema).await.map(Stored::Postgres);
        }
        Ok(Stored::Sqlite(match chosen {
            Some(Place::File(path)) => InSqlite::File(path.clone()),
            _ => InSqlite::memory().map_err(|error| error.to_string())?,
        }))
    }

    pub(super) fn place(&self) -> Place {
        match self {
            Stored::Sqlite(InSqlite::Memory { name, .. }) => Place::Named(name.clone()),
            Stored::Sqlite(InSqlite::File(path)) => Place::File(path.clone()),
            #[cfg(feature = "postgres")]
            Stored::Postgres(stored) => Place::Schema(stored.schema().clone()),
        }
    }

    pub(super) async fn db_state(&self) -> Result<DbState, String> {
        match self {
            Stored::Sqlite(stored) => stored.db_state().map_err(|error| error.to_string()),
            #[cfg(feature = "postgres")]
            Stored::Postgres(stored) => stored.db_state().await,
        }
    }

    /// Ready when no fiber and no schedule runs or is about to. A fiber that an earlier process has
    /// left is marked interrupted until it is claimed.
    pub(super) async fn at_rest(&self, runtime: &Runtime) -> Result<(), String> {
        let is_active = |id: &str| runtime.active.is_active(id);
        loop {
            let is_busy = match self {
                Stored::Sqlite(stored) => stored.is_busy(is_active).map_err(|error| error.to_string())?,
                #[cfg(feature = "postgres")]
                Stored::Postgres(stored) => stored.is_busy(is_active).await?,
            };
            if !is_busy {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Leaves of a process that died what a death leaves: with a seed, the end of its write-ahead
    /// log is damaged.
    pub(super) async fn died(&self, torn: Option<u64>, fuse: &Fuse) -> Result<(), String> {
        match self {
            Stored::Sqlite(InSqlite::Memory { .. }) => Ok(()),
            Stored::Sqlite(InSqlite::File(path)) => {
                let (Some(seed), Some((heard, last))) = (torn, fuse.log()) else { return Ok(()) };
                torn_write(path, heard, last, &mut Dice::new(seed))
                    .map_err(|error| format!("its write-ahead log could not be torn: {error}"))
            }
            #[cfg(feature = "postgres")]
            Stored::Postgres(stored) => stored.end_sessions().await,
        }
    }
}

/// A database of SQLite.
#[derive(Debug)]
pub(super) enum InSqlite {
    /// In memory, while this connection is open.
    Memory {
        name: String,
        keeper: Connection,
    },
    File(PathBuf),
}

impl InSqlite {
    fn memory() -> rusqlite::Result<Self> {
        let name = format!("forever-crash-{}", uuid::Uuid::now_v7());
        let keeper = Connection::open(format!("file:/{name}?vfs=memdb"))?;
        Ok(InSqlite::Memory { name, keeper })
    }

    /// Reads the database, beside the process or after it.
    fn look<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> rusqlite::Result<T> {
        match self {
            InSqlite::Memory { keeper, .. } => read(keeper),
            InSqlite::File(path) => {
                let conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
                // The next process needs the log as the last one left it.
                conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
                read(&conn)
            }
        }
    }

    fn db_state(&self) -> rusqlite::Result<DbState> {
        match self {
            InSqlite::File(path) if !path.exists() => Ok(DbState::default()),
            _ => self.look(DbState::read),
        }
    }

    fn is_busy(&self, is_active: impl Fn(&str) -> bool) -> rusqlite::Result<bool> {
        self.look(|conn| {
            // Fibers to be claimed are read first: one that is claimed in between then shows among
            // the running ones.
            let interrupted: Vec<String> =
                conn.prepare(&INTERRUPTED.replace('@', ""))?.query_map((), |r| r.get(0))?.collect::<Result<_, _>>()?;
            let about_to = interrupted.iter().any(|id| is_active(id));
            Ok(about_to || conn.query_row(&BUSY.replace('@', ""), (), |r| r.get::<_, i64>(0))? > 0)
        })
    }
}
