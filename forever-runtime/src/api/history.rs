//! Reading the history of a fiber.
use crate::api::forever::Forever;
use crate::api::view::{FrameView, Stored};
use crate::error::{Error, ErrorKind, Result};
use crate::exec::executor::Executor;
use crate::history::{HistoryEntry, HistoryOrigin, Origin, Past, PastAt};
use crate::secret::shown;
use crate::store::{HISTORY, Seq, StreamBatch};

/// Number of batches that are read at once.
const PAGE: u32 = 64;

impl Forever {
    /// The kept checkpoints of a fiber, oldest first; see
    /// [`Builder::history`](crate::Builder::history).
    ///
    /// Texts of errors are hidden where they may repeat what is marked `#[secret]`.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound), or [`Value`](ErrorKind::Value) if its history is damaged.
    pub async fn history(&self, id: &str) -> Result<Vec<HistoryEntry>> {
        let stored = Stored::read(&self.exec, id).await?;
        let mut entries = past(&self.exec, stored.seq(), u64::MAX).await?.entries;
        for entry in &mut entries {
            if let Some(HistoryOrigin::Edit { changes, .. }) = &mut entry.origin {
                let values = changes.iter_mut().flat_map(|change| [&mut change.before, &mut change.after]);
                values.flatten().for_each(|value| stored.redact(value));
            }
        }
        for entry in &mut entries {
            entry.error = entry.error.take().map(|text| shown(&text).to_owned());
        }
        Ok(entries)
    }

    /// About how many checkpoints of a fiber are kept, without reading them.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound).
    #[doc(hidden)]
    pub async fn kept_checkpoints(&self, id: &str) -> Result<u64> {
        let stored = Stored::read(&self.exec, id).await?;
        let first = self.exec.runtime.store.stream(stored.seq(), HISTORY.to_owned(), 0, 1).await?;
        let deleted = first.first().map_or(stored.row().checkpoints, |batch| batch.first);
        Ok(stored.row().checkpoints.saturating_sub(deleted))
    }

    /// The locals of a fiber behind checkpoint `number` of its [history](Self::history): those of
    /// each function on its call stack, outermost first.
    ///
    /// Values that are marked `#[secret]` are left out. The items of a [`Log`](crate::fiber::Log) are those
    /// that are still stored: of a fiber that has completed, or whose log was replaced since, a
    /// reference to the log stands in their place.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) if there is no such fiber, or that checkpoint is not kept;
    /// [`Value`](ErrorKind::Value) if its history is damaged.
    pub async fn locals_at(&self, id: &str, number: u64) -> Result<Vec<FrameView>> {
        let stored = Stored::read(&self.exec, id).await?;
        let stood = past_at(&self.exec, &stored, number).await?.stood;
        stored.frames_at(&self.exec, stood).map_err(|why| Error::new(ErrorKind::Value, why))
    }
}

/// A fiber as it stood behind a checkpoint of its history.
pub(super) async fn past_at(exec: &Executor, stored: &Stored, number: u64) -> Result<PastAt> {
    let past = past(exec, stored.seq(), number).await?;
    let is_kept = past.entries.last().is_some_and(|entry| entry.number == number);
    let Some(stood) = past.stood.filter(|_| is_kept) else {
        let why = format!("checkpoint {number} of fiber `{}` is not in its history", stored.row().id);
        return Err(Error::new(ErrorKind::NotFound, why));
    };
    Ok(PastAt { stood, layout: past.layout })
}

/// What a fiber is a copy of, if it is one.
pub(super) async fn origin(exec: &Executor, fiber: Seq) -> Result<Option<Origin>> {
    Ok(past(exec, fiber, u64::MAX).await?.origin)
}

/// The history of a fiber up to checkpoint `number`.
async fn past(exec: &Executor, fiber: Seq, number: u64) -> Result<Past> {
    let batches = batches(exec, fiber, HISTORY).await?;
    Past::read(&batches, number).map_err(|why| Error::new(ErrorKind::Value, why))
}

/// All batches of a stream.
pub(super) async fn batches(exec: &Executor, fiber: Seq, stream: &str) -> Result<Vec<StreamBatch>> {
    let mut batches: Vec<StreamBatch> = Vec::new();
    loop {
        let from = batches.last().map_or(0, |batch| batch.first + batch.count);
        let page = exec.runtime.store.stream(fiber, stream.to_owned(), from, PAGE).await?;
        let before = batches.len();
        batches.extend(page.into_iter().filter(|batch| batch.first >= from));
        if batches.len() == before {
            return Ok(batches);
        }
    }
}
