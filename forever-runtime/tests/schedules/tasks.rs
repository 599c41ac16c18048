//! What stands in the place of the fibers' `sync`: shuttle's locks and tasks, and tokio's own channels. At each use another task may come first.
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use shuttle::rand::Rng;

pub(crate) use shuttle::sync::{Mutex, MutexGuard};

/// Where tasks are run: there is one place.
#[derive(Debug, Clone)]
pub(crate) struct Handle;

/// Tasks of shuttle's, which are dropped between two polls when they are aborted, as tokio's are.
pub(crate) struct JoinSet<T>(Vec<shuttle::future::JoinHandle<T>>);

impl<T> Default for JoinSet<T> {
    fn default() -> Self {
        JoinSet(Vec::new())
    }
}

impl<T> fmt::Debug for JoinSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tasks", self.0.len())
    }
}

impl<T: Send + 'static> JoinSet<T> {
    pub(crate) fn spawn_on(&mut self, task: impl Future<Output = T> + Send + 'static, _: &Handle) {
        self.0.push(shuttle::future::spawn(task));
    }

    pub(crate) fn abort_all(&mut self) {
        self.0.iter().for_each(shuttle::future::JoinHandle::abort);
    }

    pub(crate) fn try_join_next(&mut self) -> Option<()> {
        let ended = self.0.iter().position(shuttle::future::JoinHandle::is_finished)?;
        drop(self.0.remove(ended));
        Some(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn poll_join_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T, shuttle::future::JoinError>>> {
        let ended = self.0.iter_mut().enumerate().find_map(|(n, task)| match Pin::new(task).poll(cx) {
            Poll::Ready(value) => Some((n, value)),
            Poll::Pending => None,
        });
        match ended {
            Some((n, value)) => {
                drop(self.0.remove(n));
                Poll::Ready(Some(value))
            }
            None if self.0.is_empty() => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

/// How often others may go first before a sleep is over, at most.
const SLEEP: u32 = 16;

/// Over after a while, however long it is.
pub(crate) async fn sleep(_: Duration) {
    for _ in 0..shuttle::rand::thread_rng().gen_range(0..SLEEP) {
        shuttle::future::yield_now().await;
    }
}

pub(crate) mod watch {
    use tokio::sync::watch as real;
    use tokio::sync::watch::Ref;
    use tokio::sync::watch::error::RecvError;

    use crate::store::sqlite::sync::{Met, meet};

    #[derive(Debug)]
    pub(crate) struct Sender<T>(real::Sender<T>);
    pub(crate) struct Receiver<T>(real::Receiver<T>);

    impl<T: Default> Default for Sender<T> {
        fn default() -> Self {
            Sender::new(T::default())
        }
    }

    impl<T> Sender<T> {
        pub(crate) fn new(value: T) -> Self {
            Sender(real::Sender::new(value))
        }

        pub(crate) fn subscribe(&self) -> Receiver<T> {
            meet();
            Receiver(self.0.subscribe())
        }

        pub(crate) fn receiver_count(&self) -> usize {
            meet();
            self.0.receiver_count()
        }

        pub(crate) fn borrow(&self) -> Ref<'_, T> {
            meet();
            self.0.borrow()
        }

        pub(crate) fn send_modify(&self, modify: impl FnOnce(&mut T)) {
            meet();
            self.0.send_modify(modify);
        }

        pub(crate) fn send_replace(&self, value: T) -> T {
            meet();
            self.0.send_replace(value)
        }

        pub(crate) fn send_if_modified(&self, modify: impl FnOnce(&mut T) -> bool) -> bool {
            meet();
            self.0.send_if_modified(modify)
        }
    }

    impl<T> Receiver<T> {
        pub(crate) fn mark_unchanged(&mut self) {
            meet();
            self.0.mark_unchanged();
        }

        pub(crate) fn borrow_and_update(&mut self) -> Ref<'_, T> {
            meet();
            self.0.borrow_and_update()
        }

        pub(crate) async fn changed(&mut self) -> Result<(), RecvError> {
            Met(Box::pin(self.0.changed())).await
        }

        pub(crate) async fn wait_for(&mut self, is_so: impl FnMut(&T) -> bool) -> Result<Ref<'_, T>, RecvError> {
            Met(Box::pin(self.0.wait_for(is_so))).await
        }
    }
}

pub(crate) mod mpsc {
    use tokio::sync::mpsc as real;
    pub(crate) use tokio::sync::mpsc::error;
    use tokio::sync::mpsc::error::TrySendError;

    use crate::store::sqlite::sync::{Met, meet};

    #[derive(Debug)]
    pub(crate) struct Sender<T>(real::Sender<T>);
    pub(crate) struct Receiver<T>(real::Receiver<T>);

    impl<T> Clone for Sender<T> {
        fn clone(&self) -> Self {
            Sender(self.0.clone())
        }
    }

    pub(crate) fn channel<T>(most: usize) -> (Sender<T>, Receiver<T>) {
        let (sender, receiver) = real::channel(most);
        (Sender(sender), Receiver(receiver))
    }

    impl<T> Sender<T> {
        pub(crate) fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
            meet();
            self.0.try_send(value)
        }
    }

    impl<T> Receiver<T> {
        pub(crate) async fn recv(&mut self) -> Option<T> {
            Met(Box::pin(self.0.recv())).await
        }

        pub(crate) fn try_recv(&mut self) -> Result<T, error::TryRecvError> {
            meet();
            self.0.try_recv()
        }
    }
}
