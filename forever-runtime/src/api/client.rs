//! `Client`: a process that asks workers, and runs nothing.
use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::admin::Fibers;
use crate::api::forever::{Close, Forever};
use crate::api::workers::WorkerStatus;
use crate::error::Result;
use crate::exec::spawn::Spawn;
use crate::frame::fiber::Fiber;
use crate::runtime::handle::{FiberError, FiberHandle, FiberStatus};
use crate::runtime::messages::{MessageStatus, SendMessage};
use crate::runtime::stream_reader::StreamReader;
use crate::store::FiberCount;

/// Client of the workers that share a Postgres database: spawns fibers, sends messages, waits,
/// lists and follows streams.
///
/// It runs nothing, holds no lease, makes no tables, and needs no registered function. What it
/// spawns or makes ready is stored as `pending`, and a worker with the function runs it. Clones are
/// the same client. Made by [`Builder::client`](crate::Builder::client).
///
/// ```no_run
/// # use forever_runtime as forever;
/// # use forever::fiber::Fiber;
/// # async fn ask<F: Fiber<Output = String>>(research: F) -> Result<(), forever::BoxError> {
/// let client = forever::Forever::builder().postgres("postgres://app:secret@localhost/app").client().await?;
/// let handle = client.spawn(research).key("req-42").await?;
/// println!("{}", handle.wait().await?);
/// client.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client(Forever);

impl Client {
    /// Client over a runtime that claims nothing.
    pub(super) fn over(idle: Forever) -> Self {
        Client(idle)
    }

    /// Stores a fiber for a worker; see [`Forever::spawn`].
    ///
    /// The handle waits for its result wherever it runs. A fiber whose function no worker knows
    /// stays `pending` until there is such a worker, or is parked by those that there are.
    ///
    /// # Errors
    /// As [`Forever::spawn`], except that its function does not have to be registered.
    pub fn spawn<F: Fiber>(&self, call: F) -> Spawn<F> {
        self.0.spawn(call)
    }

    /// Stores a fiber for a worker, and waits for its result.
    ///
    /// # Errors
    /// As [`Forever::run`].
    pub async fn run<F: Fiber>(&self, call: F) -> Result<F::Output, FiberError> {
        self.0.run(call).await
    }

    /// Handle of a fiber by its id; see [`Forever::fiber`].
    pub fn fiber<F: Fiber>(&self, id: &str) -> FiberHandle<F::Output> {
        self.0.fiber::<F>(id)
    }

    /// Finds a fiber by its id; see [`Forever::find_fiber`].
    ///
    /// # Errors
    /// As [`Forever::find_fiber`].
    pub async fn find_fiber<T>(&self, id: &str) -> Result<FiberHandle<T>> {
        self.0.find_fiber(id).await
    }

    /// Finds the fiber that was spawned with a key.
    ///
    /// # Errors
    /// As [`Forever::fiber_by_key`].
    pub async fn fiber_by_key<F: Fiber>(&self, key: &str) -> Result<FiberHandle<F::Output>> {
        self.0.fiber_by_key::<F>(key).await
    }

    /// Follows an output stream of a fiber from item `from` on; see [`Forever::stream`].
    pub fn stream<T: DeserializeOwned>(&self, id: impl Into<String>, name: impl Into<String>, from: u64) -> StreamReader<T> {
        self.0.stream(id, name, from)
    }

    /// Sends a message to a fiber; see [`Forever::send`].
    ///
    /// # Errors
    /// As [`FiberHandle::send`].
    pub fn send<V: Serialize + ?Sized>(&self, id: &str, topic: &str, value: &V) -> SendMessage {
        self.0.send(id, topic, value)
    }

    /// The messages that a fiber has not received; see [`Forever::messages`].
    ///
    /// # Errors
    /// As [`Forever::messages`].
    pub async fn messages(&self, id: &str) -> Result<Vec<MessageStatus>> {
        self.0.messages(id).await
    }

    /// Cancels a fiber and every fiber that it has spawned.
    ///
    /// # Errors
    /// As [`Forever::cancel`].
    pub async fn cancel(&self, id: &str, reason: &str) -> Result<()> {
        self.0.cancel(id, reason).await
    }

    /// Lets a worker resume a failed, parked or interrupted fiber from its last checkpoint.
    ///
    /// # Errors
    /// As [`Forever::resume`].
    pub async fn resume(&self, id: &str) -> Result<()> {
        self.0.resume(id).await
    }

    /// Status of a fiber of any function.
    ///
    /// # Errors
    /// As [`Forever::status`].
    pub async fn status(&self, id: &str) -> Result<FiberStatus> {
        self.0.status(id).await
    }

    /// Lists fibers by page; see [`Forever::fibers`].
    pub fn fibers(&self) -> Fibers {
        self.0.fibers()
    }

    /// Counts all fibers by function and state.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn counts(&self) -> Result<Vec<FiberCount>> {
        self.0.counts().await
    }

    /// Workers that are alive, by number. A client is none.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn workers(&self) -> Result<Vec<WorkerStatus>> {
        self.0.workers().await
    }

    /// Closes the connections to the database. Fibers are not affected.
    ///
    /// # Errors
    /// When the store fails; the connections are closed all the same.
    pub fn close(&self) -> Close {
        self.0.close()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}
