//! Cut points that wait: for time, for a message, for other fibers.
//!
//! Each is two cut points to the macro: one that saves what is waited for (a deadline, a handle),
//! and one with the result. In between the fiber leaves memory: the future of the second one stays
//! pending while it has no result, and the driver drops the run. The fiber is later resumed at the
//! first one. A function that a turn of a chat runs waits in memory instead, since its turn is
//! running meanwhile.
use std::any::TypeId;
use std::borrow::Borrow;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::clock;
use crate::error::{Error, ErrorKind, chain};
use crate::frame::activation::Frame;
use crate::frame::arguments::save_arguments;
use crate::frame::codec::Codec;
use crate::frame::fiber::{Fiber, Value};
use crate::frame::run::Run;
use crate::frame::topics::{FixedTopic, SingleTopic, Taken, Topics};
use crate::future::BoxFuture;
use crate::runtime::exit::Exit;
use crate::runtime::handle::{FiberError, FiberErrorKind, FiberHandle};
use crate::runtime::race::race;
use crate::store::Wait;

/// End of a wait, saved in the snapshot so that it is fixed once.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Deadline(Option<i64>);

impl Deadline {
    fn after(now_ms: i64, duration: Duration) -> Self {
        Deadline(Some(now_ms.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))))
    }

    pub(super) fn at_ms(self) -> Option<i64> {
        self.0
    }
}

impl Frame {
    /// Deadline of a `sleep!` that begins now.
    pub fn deadline_in(&self, duration: Duration) -> Deadline {
        Deadline::after(self.run.backend.now_ms(), duration)
    }

    /// Deadline of a `sleep_until!`.
    pub fn deadline_at(&self, time: impl Into<SystemTime>) -> Deadline {
        Deadline(Some(clock::ms(time.into())))
    }

    /// Deadline of a `recv!` that begins now; never without a timeout.
    pub fn deadline_of(&self, timeout: Option<Duration>) -> Deadline {
        timeout.map_or(Deadline(None), |timeout| self.deadline_in(timeout))
    }

    /// Ready when the deadline has passed.
    pub fn until(&self, deadline: Deadline) -> impl Future<Output = ()> + Send + use<> {
        let run = Arc::clone(&self.run);
        async move {
            while !run.has_passed(deadline) {
                let news = run.news(&[]);
                run.leave(Wait { due_ms: deadline.0, ..Wait::default() }, news).await;
            }
        }
    }

    /// Receives the next message of a topic; its consumption is part of the next checkpoint.
    pub fn receive<T: Send + 'static>(&self, topic: &'static str, codec: Codec<T>) -> impl Future<Output = T> + Send + use<T> {
        self.receive_on(FixedTopic(topic), codec)
    }

    /// Receives the next message of a topic, or `None` when the deadline has passed.
    pub fn receive_until<T: Send + 'static>(
        &self,
        topic: &'static str,
        deadline: Deadline,
        codec: Codec<T>,
    ) -> impl Future<Output = Option<T>> + Send + use<T> {
        self.receive_on_until(FixedTopic(topic), deadline, codec)
    }

    /// Receives the next message of computed topics, or of several.
    pub fn receive_on<T: Send + 'static, K: Topics>(
        &self,
        topics: K,
        codec: Codec<T>,
    ) -> impl Future<Output = K::Received<T>> + Send + use<T, K>
    where
        K::Received<T>: Send,
    {
        let received = self.receive_on_until(topics, Deadline(None), codec);
        async move {
            match received.await {
                Some(value) => value,
                None => unreachable!("without a deadline there is nothing but a message"),
            }
        }
    }

    /// Receives the next message of computed topics, or of several, or `None` when the deadline has
    /// passed.
    pub fn receive_on_until<T: Send + 'static, K: Topics>(
        &self,
        topics: K,
        deadline: Deadline,
        codec: Codec<T>,
    ) -> impl Future<Output = Option<K::Received<T>>> + Send + use<T, K>
    where
        K::Received<T>: Send,
    {
        let (run, name) = (Arc::clone(&self.run), self.machine.name);
        async move {
            run.takes(topics.fixed(), codec);
            loop {
                let news = run.news(&[]);
                match run.take_message(name, &topics, codec).await {
                    Taken::Message(topic, message) => return Some(K::received(&topic, message)),
                    Taken::Closed if deadline.at_ms().is_some() => return None,
                    Taken::Closed => run.receives_on_closed(name, &topics).await,
                    Taken::Nothing => {}
                }
                if run.has_passed(deadline) {
                    return None;
                }
                let wait = run.wait_for_topics(name, &topics, deadline).await;
                run.leave(wait, news).await;
            }
        }
    }

    /// Receives the next message of some topics if it is there; its consumption is part of the next
    /// checkpoint.
    pub fn try_receive<T: Send + 'static, K: Topics>(
        &self,
        topics: K,
        codec: Codec<T>,
    ) -> impl Future<Output = Option<K::Received<T>>> + Send + use<T, K>
    where
        K::Received<T>: Send,
    {
        let (run, name) = (Arc::clone(&self.run), self.machine.name);
        async move {
            run.takes(topics.fixed(), codec);
            match run.take_message(name, &topics, codec).await {
                Taken::Message(topic, message) => Some(K::received(&topic, message)),
                Taken::Nothing | Taken::Closed => None,
            }
        }
    }

    /// Closes a topic with the next checkpoint.
    pub fn close_topic<K: SingleTopic>(&self, topic: &K) {
        self.run.outbox().closed = Some(topic.name().to_owned());
    }

    /// Receives all messages of a topic that is closed; their consumption is part of the next
    /// checkpoint.
    pub fn take_all<T: Send + 'static, K: SingleTopic>(
        &self,
        topic: K,
        codec: Codec<T>,
    ) -> impl Future<Output = Vec<T>> + Send + use<T, K> {
        let (run, name) = (Arc::clone(&self.run), self.machine.name);
        async move {
            run.takes(topic.fixed(), codec);
            run.take_all(name, topic.name(), codec).await
        }
    }

    /// Creates a child, which is stored and started with the next checkpoint. It is in a box, since
    /// of an opaque future the compiler would say twice that `call` is no fiber.
    pub fn spawn<F: Fiber>(&self, call: F) -> BoxFuture<'static, FiberHandle<F::Output>> {
        let (run, parent) = (Arc::clone(&self.run), self.machine.name);
        Box::pin(async move {
            let name = F::MACHINE.name;
            let child = save_arguments(&call).map_err(|why| Error::new(ErrorKind::Value, why));
            match child.and_then(|args| run.backend.child(name, TypeId::of::<F>(), args)) {
                Ok(child) => {
                    let handle = FiberHandle::new(run.backend.link(), child.id.as_str(), name, true);
                    run.outbox().children.push((child, Box::new(call)));
                    handle
                }
                Err(error) => run.halt(Exit::failed(format!("`{parent}` cannot spawn `{name}`: {}", chain(&error)))).await,
            }
        })
    }

    /// The handle that a `wait!` waits for.
    pub fn awaited<T>(&self, handle: impl Borrow<FiberHandle<T>>) -> FiberHandle<T> {
        handle.borrow().clone()
    }

    /// The handles that a `wait_all!` waits for.
    pub fn all_awaited<T, H: Borrow<FiberHandle<T>>>(&self, handles: impl IntoIterator<Item = H>) -> Vec<FiberHandle<T>> {
        handles.into_iter().map(|handle| handle.borrow().clone()).collect()
    }

    /// Waits for the result of a fiber.
    pub fn join<T: Value>(&self, handle: &FiberHandle<T>) -> impl Future<Output = Result<T, FiberError>> + Send + use<T> {
        let joined = self.join_all(std::slice::from_ref(handle));
        async move { joined.await.pop().expect("one handle, one result") }
    }

    /// Waits for the results of several fibers, in their order.
    pub fn join_all<T: Value>(&self, handles: &[FiberHandle<T>]) -> impl Future<Output = Vec<Result<T, FiberError>>> + Send + use<T> {
        let (run, handles) = (Arc::clone(&self.run), handles.to_vec());
        async move {
            let ids: Vec<String> = handles.iter().map(|handle| handle.id().to_owned()).collect();
            loop {
                let news = run.news(&ids);
                let mut ends = Vec::with_capacity(handles.len());
                let mut open = Vec::new();
                for handle in &handles {
                    match run.end_of(handle).await {
                        Some(end) => ends.push(end),
                        None => open.push(handle.id().to_owned()),
                    }
                }
                if open.is_empty() {
                    return ends;
                }
                run.leave(Wait { fibers: open, ..Wait::default() }, news).await;
            }
        }
    }
}

impl Run {
    /// Waits in memory until a time of the store. A fiber that is to leave memory is interrupted.
    pub(crate) async fn wait_until(&self, due_ms: i64) {
        race(self.comes(due_ms), self.left_memory()).await;
    }

    /// Ready at a time of the store.
    async fn comes(&self, due_ms: i64) {
        while let left @ 1.. = due_ms.saturating_sub(self.backend.now_ms()) {
            self.backend.sleep_towards(Duration::from_millis(left.unsigned_abs())).await;
        }
    }

    /// Interrupts the fiber when it is cancelled or the runtime closes; otherwise never ready.
    async fn left_memory(&self) {
        self.ops.to_leave().await;
        self.interrupt::<()>().await;
    }

    pub(super) fn has_passed(&self, deadline: Deadline) -> bool {
        deadline.0.is_some_and(|due| due <= self.backend.now_ms())
    }

    /// Result of another fiber, if it has ended. A result that the code cannot read parks the
    /// fiber: its type has changed.
    pub(super) async fn end_of<T: Value>(&self, handle: &FiberHandle<T>) -> Option<Result<T, FiberError>> {
        let end = match self.backend.ended(handle.id()).await {
            Ok(exit) => handle.exited(exit?),
            Err(error) => self.halt(Exit::interrupted(error)).await,
        };
        match end {
            Err(error) if error.kind() == FiberErrorKind::Value => {
                let why = format!("{error}; let its type read what is stored, or give the function that gives another type another name");
                self.halt(Exit::parked(self.secrets.text(why))).await
            }
            end => Some(end),
        }
    }

    /// Suspends the fiber until its wait is over. A fiber that stays in memory waits here, for a
    /// notification or until the wait is due.
    pub(super) async fn leave(&self, wait: Wait, news: Option<BoxFuture<'static, ()>>) {
        let Some(news) = news else { return self.halt(Exit::Waiting(wait)).await };
        let due = async {
            match wait.due_ms {
                Some(due) => self.comes(due).await,
                None => std::future::pending().await,
            }
        };
        race(race(news, due), self.left_memory()).await;
    }
}
