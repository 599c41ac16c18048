//! Cut points that wait: for time, for a message, for other fibers.
//!
//! Each is two cut points to the macro: one that keeps what is waited for (a deadline, a handle), and one with what came of it.
//! In between the fiber leaves memory: the second one's future is never ready while there is nothing for it, and the driver
//! drops the run. It is entered again at the first one.
use std::borrow::Borrow;
use std::future::Future;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::frame::Frame;
use super::handle::{FiberError, FiberHandle};
use super::{Fiber, Value};

/// When a wait ends, kept in the snapshot so that it is fixed once.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Deadline(Option<i64>);

impl Frame {
    /// The end of a `sleep!` that begins now.
    pub fn deadline_in(&self, duration: Duration) -> Deadline {
        let _ = duration;
        todo!()
    }

    /// The end of a `sleep_until!`.
    pub fn deadline_at(&self, time: impl Into<SystemTime>) -> Deadline {
        let _ = time.into();
        todo!()
    }

    /// The end of a `recv!` that begins now; never without a timeout.
    pub fn deadline_of(&self, timeout: Option<Duration>) -> Deadline {
        let _ = timeout;
        todo!()
    }

    /// Ready when the deadline has passed.
    pub fn until(&self, deadline: Deadline) -> impl Future<Output = ()> + Send + use<> {
        let _ = deadline;
        async { todo!() }
    }

    /// The next message of a topic; its consumption is part of the next checkpoint.
    pub fn receive<T: Value>(&self, topic: &'static str) -> impl Future<Output = T> + Send + use<T> {
        let _ = topic;
        async { todo!() }
    }

    /// The next message of a topic, or `None` when the deadline has passed.
    pub fn receive_until<T: Value>(&self, topic: &'static str, deadline: Deadline) -> impl Future<Output = Option<T>> + Send + use<T> {
        let _ = (topic, deadline);
        async { todo!() }
    }

    /// Makes a child; it is stored and started with the next checkpoint.
    pub fn spawn<F: Fiber>(&self, call: F) -> impl Future<Output = FiberHandle<F::Output>> + Send + use<F> {
        let _ = call;
        async { todo!() }
    }

    /// What a `wait!` waits for.
    pub fn awaited<T>(&self, handle: impl Borrow<FiberHandle<T>>) -> FiberHandle<T> {
        handle.borrow().clone()
    }

    /// What a `wait_all!` waits for.
    pub fn all_awaited<T, H: Borrow<FiberHandle<T>>>(&self, handles: impl IntoIterator<Item = H>) -> Vec<FiberHandle<T>> {
        handles.into_iter().map(|handle| handle.borrow().clone()).collect()
    }

    /// What came of a fiber.
    pub fn join<T: Value>(&self, handle: &FiberHandle<T>) -> impl Future<Output = Result<T, FiberError>> + Send + use<T> {
        let _ = handle;
        async { todo!() }
    }

    /// What came of several fibers, in their order.
    pub fn join_all<T: Value>(&self, handles: &[FiberHandle<T>]) -> impl Future<Output = Vec<Result<T, FiberError>>> + Send + use<T> {
        let _ = handles;
        async { todo!() }
    }
}
