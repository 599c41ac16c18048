//! The workers that share a database.
use std::time::{Duration, SystemTime};

use crate::clock::from_ms;
use crate::error::Result;
use crate::runtime::state::Runtime;
use crate::store::{WorkerId, WorkerRow};

/// Status of a worker that is alive; see [`Forever::workers`](crate::Forever::workers).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerStatus {
    /// Number of the worker; never given twice.
    pub id: WorkerId,
    /// Whether it is the runtime that was asked.
    pub is_this: bool,
    /// Number of its operating system process.
    pub process: Option<u32>,
    /// Network address that it connects to the database from. `None` for a local socket.
    pub address: Option<String>,
    /// When it joined, UTC. `None` for the only worker of a database.
    pub joined: Option<SystemTime>,
    /// Age of its last heartbeat, by the clock of the database.
    pub silent: Duration,
    /// Its lease: how old the heartbeat may become. `None` where there is no lease.
    pub lease: Option<Duration>,
    /// Whether the others notice the death of its process before the lease has run out.
    pub shows_life: bool,
    /// Number of fibers that it runs.
    pub running: u64,
}

impl WorkerStatus {
    fn of(row: WorkerRow, this: WorkerId) -> Self {
        let ms = |ms: i64| Duration::from_millis(u64::try_from(ms).unwrap_or(0));
        WorkerStatus {
            id: row.id,
            is_this: row.id == this,
            process: row.process,
            address: row.address,
            joined: Some(from_ms(row.joined_ms)),
            silent: ms(row.silent_ms),
            lease: Some(ms(row.lease_ms)),
            shows_life: row.shows_life,
            running: row.running,
        }
    }
}

/// Lists the workers that are alive.
pub(crate) async fn list(runtime: &Runtime) -> Result<Vec<WorkerStatus>> {
    if let Some(cluster) = runtime.cluster() {
        return Ok(cluster.workers().await?.into_iter().map(|row| WorkerStatus::of(row, runtime.worker)).collect());
    }
    Ok(vec![WorkerStatus {
        id: runtime.worker,
        is_this: true,
        process: Some(std::process::id()),
        address: None,
        joined: None,
        silent: Duration::ZERO,
        lease: None,
        shows_life: true,
        running: runtime.active.count() as u64,
    }])
}
