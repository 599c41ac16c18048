//! The log of an operation: the items that a stream has produced so far.
use std::borrow::Borrow;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, ErrorKind, Result};
use crate::exact;
use crate::frame::saved::{text_to_keep, unreadable};
use crate::ops::op::{Op, Shared, interrupt};

/// Append-only list stored under an operation; made by [`Op::log`].
///
/// A body that runs again finds the items that earlier runs have pushed: a model's stream continues
/// after its last stored chunk. The list is deleted when the operation has ended.
///
/// ```
/// # use forever_runtime as forever;
/// # async fn model(_: &[String]) -> Option<String> { None }
/// // step!("answer", |op| answer(op).await?)
/// async fn answer(op: &forever::ops::Op) -> forever::Result<String> {
///     let log = op.log::<String>();
///     let mut chunks = log.items().await?;
///     while let Some(chunk) = model(&chunks).await {
///         log.push(&chunk).await?; // stored from here on
///         chunks.push(chunk);
///     }
///     Ok(chunks.concat())
/// }
/// # let _ = answer;
/// ```
pub struct OpLog<T> {
    shared: Arc<Shared>,
    items: PhantomData<fn(T) -> T>,
}

impl Op {
    /// The list stored under this operation. Its items are of one type, which the caller names:
    /// `op.log::<Chunk>()`.
    pub fn log<T>(&self) -> OpLog<T> {
        OpLog { shared: Arc::clone(&self.shared), items: PhantomData }
    }
}

impl<T: Serialize> OpLog<T> {
    /// Appends an item. It is durable when this returns.
    ///
    /// Each call is a commit of its own, so chunks that come fast are better appended a few at a
    /// time, by [`extend`](OpLog::extend).
    ///
    /// # Errors
    /// Of kind [`Value`](ErrorKind::Value) when the item cannot be serialised exactly or takes more
    /// than 16 MiB. A store that cannot write gives the body no error: the fiber is interrupted.
    pub fn push<I: Borrow<T>>(&self, item: I) -> impl Future<Output = Result<()>> + Send + use<T, I> {
        self.append(texts::<T>([item]))
    }

    /// Appends items in one commit. When this returns, all are durable; after a crash all or none
    /// are.
    ///
    /// # Errors
    /// As [`push`](OpLog::push); then nothing is appended.
    pub fn extend<L: IntoIterator<Item: Borrow<T>>>(&self, items: L) -> impl Future<Output = Result<()>> + Send + use<T, L> {
        self.append(texts::<T>(items))
    }

    fn append(&self, texts: Result<Vec<String>, String>) -> impl Future<Output = Result<()>> + Send + use<T> {
        let shared = Arc::clone(&self.shared);
        async move {
            let unsaved = |why| Error::new(ErrorKind::Value, format!("item of the log of {} {why}", shared.name()));
            let texts = texts.map_err(unsaved)?;
            if !texts.is_empty() {
                shared.append(texts).await;
            }
            Ok(())
        }
    }
}

/// The texts of items, as they are stored.
fn texts<T: Serialize>(items: impl IntoIterator<Item: Borrow<T>>) -> Result<Vec<String>, String> {
    items.into_iter().map(|item| text_to_keep(item.borrow())).collect()
}

impl<T: DeserializeOwned> OpLog<T> {
    /// All items that this run and earlier ones have appended, in order.
    ///
    /// # Errors
    /// Of kind [`Value`](ErrorKind::Value) when an item cannot be read as a `T`.
    pub async fn items(&self) -> Result<Vec<T>> {
        let record = self.shared.record().clone();
        let texts = match self.shared.run.backend.ledger().log(&record).await {
            Ok(texts) => texts,
            Err(error) => interrupt(&self.shared.run, error).await,
        };
        let read = |(n, text): (usize, &String)| {
            exact::from_str(text).map_err(|why| {
                Error::new(ErrorKind::Value, format!("item {n} of the log of {} {}", self.shared.name(), unreadable::<T>(why)))
            })
        };
        texts.iter().enumerate().map(read).collect()
    }
}

impl<T> fmt::Debug for OpLog<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "log of {}", self.shared.name())
    }
}
