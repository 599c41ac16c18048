//! Events of fibers, broadcast to listeners. A fiber never waits for a listener.
use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::SystemTime;

use futures_core::Stream;

use crate::runtime::unread::UnreadTopic;
use crate::secret;

/// Number of events that are kept for a slow listener.
const CAPACITY: usize = 1024;

/// Event of a fiber.
///
/// See [`Events`] for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Id of the fiber.
    pub fiber: Arc<str>,
    /// Stored name of its function, or the name that a closure fiber was given.
    pub name: Arc<str>,
    /// Time of the event, UTC.
    pub time: SystemTime,
    /// Kind of the event.
    pub kind: EventKind,
}

/// Kind of an event. What an event reports is stored already.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::fiber::{Event, EventKind};
///
/// /// Text of an alert, for events that need one.
/// fn alert(event: &Event) -> Option<String> {
///     let name = &event.name;
///     match &event.kind {
///         EventKind::Failed { reason } => Some(format!("{name} has failed: {reason}")),
///         EventKind::Parked { reason } => Some(format!("{name} needs a person: {reason}")),
///         EventKind::Recovered { deaths } if *deaths > 2 => Some(format!("{name} crashes")),
///         _ => None,
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// It was accepted.
    Spawned,
    /// Its code has started.
    Started {
        /// Whether it resumes from a snapshot.
        resuming: bool,
    },
    /// The body of a step begins.
    StepStarted {
        /// The stored name of the step.
        step: Cow<'static, str>,
    },
    /// A cut point is complete: its checkpoint is stored.
    StepFinished {
        /// The stored name of the cut point.
        step: Cow<'static, str>,
        /// Number of checkpoints of the fiber, including this one.
        checkpoint: u64,
    },
    /// An attempt of a step failed, and another one will follow.
    StepRetried {
        /// The stored name of the step.
        step: Cow<'static, str>,
        /// Number of failed attempts.
        failed: u32,
        /// Text of the error, with its causes.
        error: Arc<str>,
    },
    /// User code has stored a stash.
    Stashed,
    /// It waits, and has left memory.
    Waiting,
    /// Its wait is over.
    Woken,
    /// It was found unfinished when the runtime opened.
    Recovered {
        /// Number of deaths of the process since its last checkpoint.
        deaths: u32,
    },
    /// It was interrupted by a cause outside of its code, and resumes later.
    Interrupted {
        /// Reason of the interruption.
        reason: Arc<str>,
    },
    /// Its snapshot does not fit the code, or an operation of it is in doubt.
    Parked {
        /// Reason why it is parked.
        reason: Arc<str>,
    },
    /// It ended with a result.
    Completed,
    /// It ended with an error.
    Failed {
        /// Text of the error.
        reason: Arc<str>,
    },
    /// It was cancelled.
    Cancelled {
        /// Reason of the cancellation.
        reason: Arc<str>,
    },
    /// It has ended, and has not received all of its messages. The event of the end follows.
    Unread {
        /// Counts by topic.
        topics: Vec<UnreadTopic>,
    },
}

impl EventKind {
    /// Without texts that may repeat a secret.
    pub(crate) fn shown(mut self) -> Self {
        let (EventKind::Interrupted { reason: text }
        | EventKind::Parked { reason: text }
        | EventKind::Failed { reason: text }
        | EventKind::Cancelled { reason: text }
        | EventKind::StepRetried { error: text, .. }) = &mut self
        else {
            return self;
        };
        if secret::is_marked(text) {
            *text = secret::HIDDEN.into();
        }
        self
    }
}

/// Item of the stream of [`Events`].
///
/// ```
/// # use forever_runtime as forever;
/// use forever::fiber::{EventItem, Events};
///
/// async fn log(mut events: Events) {
///     while let Some(item) = events.next().await {
///         match item {
///             EventItem::Event(event) => println!("{}: {:?}", event.fiber, event.kind),
///             EventItem::Lagged(lost) => println!("{lost} events were lost"),
///         }
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventItem {
    /// An event.
    Event(Event),
    /// Number of events that were dropped because the listener was too slow, or that another
    /// worker could not pass on. For a worker that is gone it is 1: what it had not passed on is
    /// not known.
    Lagged(u64),
}

/// Passes events on: to other workers, or to an observer.
type Relay = Box<dyn Fn(&Event) + Send + Sync>;

/// The listeners of a runtime.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    all: Mutex<All>,
}

#[derive(Default)]
struct All {
    queues: Vec<Weak<Queue>>,
    relay: Option<Relay>,
    /// What sees the events of this process, as they occur.
    observers: Vec<Relay>,
}

impl fmt::Debug for All {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("All").field("queues", &self.queues).finish_non_exhaustive()
    }
}

impl All {
    fn send(&self, event: &Event) {
        for observe in &self.observers {
            observe(event);
        }
        if let Some(relay) = &self.relay {
            relay(event);
        }
        for listener in self.queues.iter().filter_map(Weak::upgrade) {
            listener.push(EventItem::Event(event.clone()));
        }
    }
}

impl Listeners {
    /// Adds a listener of all events from now on.
    pub(crate) fn listen(&self) -> Events {
        self.add(CAPACITY)
    }

    /// Adds a listener that misses no event, however slow it is.
    #[cfg(feature = "testing")]
    pub(crate) fn listen_to_all(&self) -> Events {
        self.add(usize::MAX)
    }

    fn add(&self, capacity: usize) -> Events {
        let queue = Arc::new(Queue { capacity, state: Mutex::default() });
        let mut all = self.all();
        all.queues.retain(|listener| listener.strong_count() > 0);
        all.queues.push(Arc::downgrade(&queue));
        Events { queue }
    }

    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is a listener.
    pub(crate) fn is_heard(&self) -> bool {
        self.all().queues.iter().any(|listener| listener.strong_count() > 0)
    }

    /// Passes events of this process on from now on, or ceases to.
    pub(crate) fn set_relay(&self, relay: Option<impl Fn(&Event) + Send + Sync + 'static>) {
        self.all().relay = relay.map(|relay| Box::new(relay) as Relay);
    }

    /// Adds what sees every event of this process as it occurs. It is no listener: other workers
    /// pass nothing on for it.
    #[cfg(any(feature = "metrics", feature = "testing"))]
    pub(crate) fn observe(&self, observer: impl Fn(&Event) + Send + Sync + 'static) {
        self.all().observers.push(Box::new(observer));
    }

    /// Whether events of this process are passed on.
    pub(crate) fn is_relayed(&self) -> bool {
        self.all().relay.is_some()
    }

    /// Sends an event of this process to all listeners; it is made only if there are any.
    pub(crate) fn tell(&self, event: impl FnOnce() -> Event) {
        if let Some(all) = self.any() {
            let event = event();
            all.send(&Event { kind: event.kind.shown(), ..event });
        }
    }

    /// The listeners, if there are any.
    fn any(&self) -> Option<MutexGuard<'_, All>> {
        Some(self.all()).filter(|all| !all.queues.is_empty() || all.relay.is_some() || !all.observers.is_empty())
    }

    /// Sends what another worker has passed on to all listeners.
    pub(crate) fn tell_of_others(&self, told: &EventItem) {
        for listener in self.all().queues.iter().filter_map(Weak::upgrade) {
            listener.push(told.clone());
        }
    }

    /// Ends all streams.
    pub(crate) fn close(&self) {
        for listener in self.all().queues.drain(..).filter_map(|l| l.upgrade()) {
            listener.end();
        }
    }
}

#[derive(Debug)]
struct Queue {
    capacity: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<Event>,
    missed: u64,
    ended: bool,
    waker: Option<Waker>,
}

impl Queue {
    fn push(&self, told: EventItem) {
        let mut state = self.state();
        let event = match told {
            EventItem::Event(event) => event,
            EventItem::Lagged(missed) => {
                state.missed = state.missed.saturating_add(missed);
                return wake(state);
            }
        };
        if state.events.len() == self.capacity {
            state.events.pop_front();
            state.missed += 1;
        }
        state.events.push_back(event);
        wake(state);
    }

    fn end(&self) {
        let mut state = self.state();
        state.ended = true;
        wake(state);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wake(mut state: MutexGuard<'_, State>) {
    let waker = state.waker.take();
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Stream of events, from the call of [`Forever::events`](crate::Forever::events) on.
///
/// Where several workers share a database, these are the events of all of them. Another worker
/// passes its events on once it knows that there is a listener here, within a second; they arrive
/// later than those of this process, in the order of each worker.
///
/// It is a [`Stream`], and has [`next`](Events::next). For a slow listener it keeps 1024 events;
/// beyond that the oldest are dropped and counted ([`EventItem::Lagged`]). A fiber never waits for
/// a listener. The stream ends when the runtime closes.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::fiber::{EventItem, EventKind};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), forever::BoxError> {
/// # let forever = forever::Forever::builder().in_memory().open().await?;
/// let mut events = forever.events();
/// forever.spawn_closure("job", |_| async { Ok::<_, forever::Error>(()) }).id("job-1").await?;
/// while let Some(item) = events.next().await {
///     let EventItem::Event(event) = item else { continue };
///     assert_eq!(&*event.fiber, "job-1");
///     if event.kind == EventKind::Completed {
///         break;
///     }
/// }
/// # forever.close().await?;
/// # Ok(())
/// # }
/// ```
pub struct Events {
    queue: Arc<Queue>,
}

impl Events {
    /// The next event; `None` when the runtime has closed.
    pub async fn next(&mut self) -> Option<EventItem> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl Stream for Events {
    type Item = EventItem;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<EventItem>> {
        let mut state = self.queue.state();
        if state.missed > 0 {
            return Poll::Ready(Some(EventItem::Lagged(std::mem::take(&mut state.missed))));
        }
        match state.events.pop_front() {
            Some(event) => Poll::Ready(Some(EventItem::Event(event))),
            None if state.ended => Poll::Ready(None),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("waiting", &self.queue.state().events.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(n: usize) -> Event {
        Event { fiber: n.to_string().into(), name: "work".into(), time: SystemTime::UNIX_EPOCH, kind: EventKind::Spawned }
    }

    #[tokio::test]
    async fn a_slow_listener_loses_the_oldest_events_with_a_count() {
        let listeners = Listeners::default();
        let mut slow = listeners.listen();
        for n in 0..CAPACITY + 5 {
            listeners.tell(|| event(n));
        }
        listeners.close();
        assert_eq!(slow.next().await, Some(EventItem::Lagged(5)));
        for n in 5..CAPACITY + 5 {
            assert_eq!(slow.next().await, Some(EventItem::Event(event(n))));
        }
        assert_eq!(slow.next().await, None);
    }

    #[tokio::test]
    async fn events_that_nobody_hears_are_not_made() {
        let listeners = Listeners::default();
        drop(listeners.listen());
        listeners.listen();
        listeners.all().queues.retain(|l| l.strong_count() > 0);
        listeners.tell(|| unreachable!());
    }
}
