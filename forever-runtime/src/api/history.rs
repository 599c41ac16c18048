//! Reading the history of a fiber.
use crate::api::forever::Forever;
use crate::error::{Error, ErrorKind, Result};
use crate::exec::executor::Executor;
use crate::history::{HistoryEntry, Past, STREAM};
use crate::store::{FiberRef, Seq, StreamBatch};

/// Number of batches that are read at once.
const PAGE: u32 = 64;

impl Forever {
    /// The kept checkpoints of a fiber, oldest first; see [`Builder::history`](crate::Builder::history).
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound), or [`Value`](ErrorKind::Value) if its history is damaged.
    pub async fn history(&self, id: &str) -> Result<Vec<HistoryEntry>> {
        let found = self.exec.runtime.store.find(FiberRef::Id(id.to_owned())).await?;
        let row = found.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no fiber with id `{id}`")))?;
        Ok(past(&self.exec, row.seq, u64::MAX).await?.entries)
    }
}

/// The history of a fiber up to checkpoint `number`.
async fn past(exec: &Executor, fiber: Seq, number: u64) -> Result<Past> {
    let mut batches: Vec<StreamBatch> = Vec::new();
    loop {
        let from = batches.last().map_or(0, |batch| batch.first + batch.count);
        let page = exec.runtime.store.stream(fiber, STREAM.to_owned(), from, PAGE).await?;
        let new = page.into_iter().filter(|batch| batch.first >= from);
        let before = batches.len();
        batches.extend(new);
        if batches.len() == before {
            break;
        }
    }
    Past::read(&batches, number).map_err(|why| Error::new(ErrorKind::Value, why))
}
