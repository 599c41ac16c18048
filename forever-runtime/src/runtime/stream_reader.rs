//! `StreamReader`: follows an output stream of a fiber, from any process.
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::time::SystemTime;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::clock::from_ms;
use crate::error::{Error, ErrorKind, Result};
use crate::exact;
use crate::runtime::link::Link;
use crate::runtime::race::race;
use crate::runtime::state::Runtime;
use crate::store::{FiberRef, PROGRESS, Seq, output_stream};

/// Number of batches that are read at once.
const PAGE: u32 = 64;

/// The progress of a fiber that is stored.
pub(crate) async fn stored_progress(runtime: &Runtime, fiber: Seq) -> Result<Option<Value>> {
    let batches = runtime.store.stream(fiber, PROGRESS.to_owned(), 0, 1).await?;
    Ok(batches.first().and_then(|batch| serde_json::from_str(&batch.data).ok()))
}

/// Item of an output stream.
///
/// See [`StreamReader`] for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamItem<T> {
    /// Number, from 0. Reading goes on behind it from `number + 1`.
    pub number: u64,
    /// Value.
    pub value: T,
    /// Time at which it was stored, UTC.
    pub stored: SystemTime,
}

/// Follows an output stream of a fiber; see [`Forever::stream`](crate::Forever::stream).
///
/// ```
/// # use forever_runtime as forever;
/// use forever::Forever;
///
/// /// Shows what a search finds, to a client that has seen items up to number `seen`.
/// async fn follow(forever: &Forever, mut seen: u64) -> forever::Result<u64> {
///     let mut found = forever.stream::<String>("search-7", "found", seen + 1);
///     while let Some(item) = found.next().await? {
///         println!("{}", item.value);
///         seen = item.number;
///     }
///     Ok(seen)
/// }
/// ```
pub struct StreamReader<T> {
    link: Link<Runtime>,
    fiber: String,
    name: String,
    /// Number of the next item to read.
    next: u64,
    /// Items that were read: JSON, with the time.
    read: VecDeque<(String, i64)>,
    /// Whether the fiber was found once.
    found: bool,
    values: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> StreamReader<T> {
    pub(crate) fn new(link: Link<Runtime>, fiber: String, name: String, from: u64) -> Self {
        StreamReader { link, fiber, name, next: from, read: VecDeque::new(), found: false, values: PhantomData }
    }

    /// Waits for the next item; `None` if the fiber has ended and there is none.
    ///
    /// A fiber that waits or is parked has not ended: its items go on when it does.
    ///
    /// # Cancel safety
    /// No item is lost if the future is dropped.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) if there is no such fiber; [`Value`](ErrorKind::Value) if
    /// an item cannot be read as a `T`, after which the next call reads the one behind it; when the
    /// store fails, or the runtime is closed.
    pub async fn next(&mut self) -> Result<Option<StreamItem<T>>> {
        loop {
            if let Some(item) = self.take_read() {
                return item.map(Some);
            }
            let runtime = self.link.get()?;
            let entry = runtime.active.entry(&self.fiber);
            let mut phase = entry.watch();
            phase.mark_unchanged();
            let mut stored = std::pin::pin!(entry.items_stored());
            stored.as_mut().enable();

            // First the row: what a fiber has sent is stored before its end.
            let Some(row) = runtime.store.find(FiberRef::Id(self.fiber.clone())).await? else {
                if self.found {
                    return Ok(None);
                }
                return Err(Error::new(ErrorKind::NotFound, format!("there is no fiber `{}`", self.fiber)));
            };
            self.found = true;
            self.read(&runtime, row.seq).await?;
            if !self.read.is_empty() {
                continue;
            }
            if row.finished_ms.is_some() {
                return Ok(None);
            }
            let changed = async {
                // The sender is in `entry`, so the wait cannot fail.
                let _ = phase.changed().await;
            };
            let elsewhere = async {
                match runtime.cluster() {
                    Some(_) if !runtime.active.is_active(&self.fiber) => runtime.clock.sleep(runtime.settings.timings.look).await,
                    _ => std::future::pending().await,
                }
            };
            let something = async {
                race(race(changed, stored), elsewhere).await;
            };
            if race(runtime.closing(), something).await.is_some() {
                return Err(Error::closed());
            }
        }
    }

    async fn read(&mut self, runtime: &Runtime, fiber: Seq) -> Result<()> {
        let batches = runtime.store.stream(fiber, output_stream(&self.name), self.next, PAGE).await?;
        if let Some(first) = batches.first().map(|batch| batch.first).filter(|first| *first > self.next) {
            let (from, to) = (std::mem::replace(&mut self.next, first), first - 1);
            let why = format!("items {from} to {to} of stream `{}` of fiber `{}` are missing", self.name, self.fiber);
            return Err(Error::new(ErrorKind::Value, why));
        }
        for batch in batches {
            for (number, item) in (batch.first..).zip(batch.data.lines()) {
                // The first batch may begin before the item that was asked for.
                if number == self.next + self.read.len() as u64 {
                    self.read.push_back((item.to_owned(), batch.stored_ms));
                }
            }
        }
        Ok(())
    }

    fn take_read(&mut self) -> Option<Result<StreamItem<T>>> {
        let (item, stored_ms) = self.read.pop_front()?;
        let number = self.next;
        self.next += 1;
        let value = exact::from_str(&item).map_err(|why| {
            let (fiber, name, wanted) = (&self.fiber, &self.name, std::any::type_name::<T>());
            Error::new(ErrorKind::Value, format!("item {number} of stream `{name}` of fiber `{fiber}` cannot be read as `{wanted}`: {why}"))
        });
        Some(value.map(|value| StreamItem { number, value, stored: from_ms(stored_ms) }))
    }
}

impl<T> fmt::Debug for StreamReader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamReader")
            .field("fiber", &self.fiber)
            .field("name", &self.name)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}
