//! A broadcast channel that uses memory only for values that wait in it.
//!
//! Every receiver gets every value sent since it subscribed, in order. For a slow receiver, values
//! are kept up to the capacity; beyond that the oldest are lost, and it receives their number.
//! `tokio::sync::broadcast` does the same, but allocates the whole capacity at once: with thousands
//! of idle connections that would be most of a server's memory.
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Number of values for which an empty queue keeps its allocation.
const ROOM: usize = 8;

/// Sending half; clones send to the same receivers.
#[derive(Debug)]
pub struct Sender<T>(Arc<Shared<T>>);

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Sender(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct Shared<T> {
    queue: Mutex<Queue<T>>,
    sent: Notify,
    capacity: usize,
}

#[derive(Debug)]
struct Queue<T> {
    /// Values that receivers have not taken yet, with the number of those receivers.
    values: VecDeque<(T, usize)>,
    /// Number of the first of them, counted from the first value ever sent.
    first: u64,
    receivers: usize,
}

/// Result of a receive.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken<T> {
    /// The next value.
    Value(T),
    /// This many values were lost before the next one.
    Lost(u64),
}

impl<T: Clone> Sender<T> {
    /// A channel that keeps `capacity` values for a slow receiver.
    pub fn new(capacity: usize) -> Self {
        let queue = Mutex::new(Queue { values: VecDeque::new(), first: 0, receivers: 0 });
        Sender(Arc::new(Shared { queue, sent: Notify::new(), capacity }))
    }

    /// Sends a value to all current receivers.
    pub fn send(&self, value: T) {
        let mut queue = self.0.queue();
        let receivers = queue.receivers;
        if receivers == 0 {
            return;
        }
        if queue.values.len() == self.0.capacity {
            queue.values.pop_front();
            queue.first += 1;
        }
        queue.values.push_back((value, receivers));
        drop(queue);
        self.0.sent.notify_waiters();
    }

    /// A receiver of all values sent from now on.
    pub fn subscribe(&self) -> Receiver<T> {
        let mut queue = self.0.queue();
        queue.receivers += 1;
        Receiver { shared: Arc::clone(&self.0), next: queue.end() }
    }

    /// Number of current receivers.
    pub fn receiver_count(&self) -> usize {
        self.0.queue().receivers
    }
}

impl<T> Shared<T> {
    fn queue(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Queue<T> {
    /// Number of the next value to be sent.
    fn end(&self) -> u64 {
        self.first + self.values.len() as u64
    }

    /// Index of a kept value.
    fn place(&self, number: u64) -> usize {
        usize::try_from(number - self.first).unwrap_or(usize::MAX)
    }

    /// Drops the values that all receivers have taken, and frees their memory.
    fn shrink(&mut self) {
        while self.values.front().is_some_and(|(_, left)| *left == 0) {
            self.values.pop_front();
            self.first += 1;
        }
        if self.values.is_empty() && self.values.capacity() > ROOM {
            self.values = VecDeque::new();
        }
    }
}

/// Receiving half, with its position.
#[derive(Debug)]
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    /// Number of the next value it receives.
    next: u64,
}

impl<T: Clone> Receiver<T> {
    /// The next value, once it is sent. Dropping the future loses no value. The channel is never
    /// closed.
    pub async fn recv(&mut self) -> Taken<T> {
        loop {
            let shared = Arc::clone(&self.shared);
            // Notified of everything sent from here on, so nothing is missed after the check.
            let sent = shared.sent.notified();
            if let Some(taken) = self.try_recv() {
                return taken;
            }
            sent.await;
        }
    }

    /// The next value, if there is one.
    pub fn try_recv(&mut self) -> Option<Taken<T>> {
        let mut queue = self.shared.queue();
        if self.next < queue.first {
            let lost = queue.first - self.next;
            self.next = queue.first;
            return Some(Taken::Lost(lost));
        }
        let place = queue.place(self.next);
        let (value, left) = queue.values.get_mut(place)?;
        let value = value.clone();
        *left -= 1;
        self.next += 1;
        queue.shrink();
        Some(Taken::Value(value))
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut queue = self.shared.queue();
        queue.receivers -= 1;
        let from = queue.place(self.next.max(queue.first));
        for (_, left) in queue.values.range_mut(from..) {
            *left -= 1;
        }
        queue.shrink();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room<T>(sender: &Sender<T>) -> (usize, usize) {
        let queue = sender.0.queue();
        (queue.values.len(), queue.values.capacity())
    }

    #[test]
    fn each_receiver_takes_everything_since_it_subscribed_in_order() {
        let sender = Sender::new(4);
        sender.send(0);
        let mut early = sender.subscribe();
        sender.send(1);
        let mut late = sender.subscribe();
        sender.send(2);
        assert_eq!([early.try_recv(), early.try_recv(), early.try_recv()], [Some(Taken::Value(1)), Some(Taken::Value(2)), None]);
        assert_eq!([late.try_recv(), late.try_recv()], [Some(Taken::Value(2)), None]);
        assert_eq!(room(&sender).0, 0);
    }

    #[test]
    fn a_receiver_that_is_slow_loses_the_oldest_and_is_told_how_many() {
        let sender = Sender::new(3);
        let (mut slow, mut quick) = (sender.subscribe(), sender.subscribe());
        for n in 0..10 {
            sender.send(n);
            assert_eq!(quick.try_recv(), Some(Taken::Value(n)));
        }
        let taken: Vec<_> = std::iter::from_fn(|| slow.try_recv()).collect();
        assert_eq!(taken, [Taken::Lost(7), Taken::Value(7), Taken::Value(8), Taken::Value(9)]);
        sender.send(10);
        assert_eq!(slow.try_recv(), Some(Taken::Value(10)));
    }

    #[test]
    fn nothing_is_kept_for_receivers_that_have_taken_all_or_are_gone() {
        let sender = Sender::new(256);
        let (mut takes, leaves) = (sender.subscribe(), sender.subscribe());
        assert_eq!(room(&sender), (0, 0));
        for n in 0..300 {
            sender.send(n);
        }
        assert_eq!(room(&sender).0, 256);
        while takes.try_recv().is_some() {}
        assert_eq!(room(&sender).0, 256, "the other has taken nothing");
        drop(leaves);
        assert_eq!((room(&sender), sender.receiver_count()), ((0, 0), 1));
        drop(takes);
        sender.send(300);
        assert_eq!((room(&sender), sender.receiver_count()), ((0, 0), 0));
    }

    #[test]
    fn one_that_leaves_in_the_middle_keeps_the_others_theirs() {
        let sender = Sender::new(8);
        let (mut leaves, mut stays) = (sender.subscribe(), sender.subscribe());
        for n in 0..3 {
            sender.send(n);
        }
        assert_eq!(leaves.try_recv(), Some(Taken::Value(0)));
        drop(leaves);
        let taken: Vec<_> = std::iter::from_fn(|| stays.try_recv()).collect();
        assert_eq!(taken, [Taken::Value(0), Taken::Value(1), Taken::Value(2)]);
        assert_eq!(room(&sender).0, 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_value_is_missed_between_a_look_and_a_wait() {
        let sender = Sender::new(100_000);
        let takes: Vec<_> = (0..4)
            .map(|_| {
                let mut receiver = sender.subscribe();
                tokio::spawn(async move {
                    for n in 0..20_000 {
                        assert_eq!(receiver.recv().await, Taken::Value(n));
                    }
                })
            })
            .collect();
        for n in 0..20_000 {
            sender.send(n);
            if n % 16 == 0 {
                tokio::task::yield_now().await;
            }
        }
        for taken in takes {
            taken.await.unwrap();
        }
        assert_eq!(room(&sender), (0, 0));
    }
}
