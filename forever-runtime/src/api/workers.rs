//! The workers that share a database.
use std::time::{Duration, SystemTime};

use serde::{Serialize, Serializer};

use crate::clock::from_ms;
use crate::error::Result;
use crate::runtime::handle::as_ms_opt;
use crate::runtime::state::Runtime;
use crate::store::{WorkerId, WorkerRow};

/// Status of a worker that is alive; see [`Forever::workers`](crate::Forever::workers).
///
/// In JSON, times and durations are milliseconds: `joined_ms`, `silent_ms`, `lease_ms`.
///
/// ```
/// # use forever_runtime as forever;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// # let forever = forever::Forever::builder().in_memory().open().await?;
/// for worker in forever.workers().await? {
///     let this = if worker.is_this { " (this one)" } else { "" };
///     println!("worker {}{this} runs {} fibers", worker.id, worker.running);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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
    #[serde(rename = "joined_ms", serialize_with = "as_ms_opt")]
    pub joined: Option<SystemTime>,
    /// Age of its last heartbeat, by the clock of the database.
    #[serde(rename = "silent_ms", serialize_with = "duration_as_ms")]
    pub silent: Duration,
    /// Its lease: how old the heartbeat may become. `None` where there is no lease.
    #[serde(rename = "lease_ms", serialize_with = "duration_as_ms_opt")]
    pub lease: Option<Duration>,
    /// Whether the others notice the death of its process before the lease has run out.
    pub shows_life: bool,
    /// Number of fibers that it runs.
    pub running: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn duration_as_ms<S: Serializer>(time: &Duration, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    duration_as_ms_opt(&Some(*time), serializer)
}

#[allow(clippy::ref_option, reason = "serde passes a reference")]
fn duration_as_ms_opt<S: Serializer>(time: &Option<Duration>, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)).serialize(serializer)
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn status_of_a_worker_is_json_with_milliseconds() {
        let row = WorkerRow {
            id: 7,
            process: Some(12),
            joined_ms: 5_000,
            silent_ms: 40,
            lease_ms: 15_000,
            running: 3,
            address: None,
            shows_life: false,
        };
        let status = serde_json::to_value(WorkerStatus::of(row, 7)).unwrap();
        let expected = json!({
            "id": 7, "is_this": true, "process": 12, "address": null, "joined_ms": 5_000, "silent_ms": 40, "lease_ms": 15_000,
            "shows_life": false, "running": 3
        });
        assert_eq!(status, expected);
    }
}
