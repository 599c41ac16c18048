//! What stands in the place of the runtime's `sync`: shuttle's threads and locks, and tokio's own channels. At each meeting another thread may come first.
use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

pub(crate) use shuttle::sync::Mutex;
pub(crate) use shuttle::sync::atomic;
pub(crate) use shuttle::thread;
pub(crate) use tokio::task::yield_now;

// So short that callers meet a full queue, and threads that have stopped looking.
pub(crate) const QUEUE: usize = 2;
const SPINS: u32 = 2;

/// A thread that spins a few times before it sleeps.
pub(crate) struct Spin(u32);

impl Spin {
    pub(crate) fn new(_: Duration) -> Self {
        Spin(0)
    }

    pub(crate) fn once(&mut self) -> bool {
        self.0 += 1;
        meet();
        self.0 < SPINS
    }
}

/// From two answers on, they are sent by another thread.
pub(crate) const HANDED_OVER: usize = 2;

/// A runtime that polls a task on a thread of its own, or has shut down and drops it.
pub(crate) struct Handle;

impl Handle {
    #[allow(clippy::unused_self, reason = "as tokio's")]
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        use shuttle::rand::Rng;
        if shuttle::rand::thread_rng().gen_bool(0.75) {
            thread::spawn(|| shuttle::future::block_on(task));
        }
    }
}

/// A clock that stands still: the same orders are tried in each run.
#[expect(clippy::disallowed_methods, reason = "it only has to be a moment")]
pub(crate) fn now() -> Instant {
    static NOW: OnceLock<Instant> = OnceLock::new();
    *NOW.get_or_init(Instant::now)
}

/// A moment at which any thread may go on.
pub(crate) fn meet() {
    atomic::AtomicBool::new(false).load(atomic::Ordering::SeqCst);
}

pub(crate) struct Met<F>(pub(crate) F);

impl<F: Future + Unpin> Future for Met<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        meet();
        Pin::new(&mut self.0).poll(cx)
    }
}

pub(crate) mod mpsc {
    use tokio::sync::mpsc as real;
    pub(crate) use tokio::sync::mpsc::error;

    use super::{Met, meet};

    pub(crate) struct Sender<T>(real::Sender<T>);
    pub(crate) struct Receiver<T>(real::Receiver<T>);
    pub(crate) struct OwnedPermit<T>(real::OwnedPermit<T>);

    impl<T> OwnedPermit<T> {
        pub(crate) fn send(self, value: T) {
            meet();
            self.0.send(value);
        }
    }

    impl<T> Clone for Sender<T> {
        fn clone(&self) -> Self {
            Sender(self.0.clone())
        }
    }

    pub(crate) fn channel<T>(size: usize) -> (Sender<T>, Receiver<T>) {
        let (sender, receiver) = real::channel(size);
        (Sender(sender), Receiver(receiver))
    }

    impl<T> Sender<T> {
        pub(crate) async fn send(&self, value: T) -> Result<(), error::SendError<T>> {
            Met(Box::pin(self.0.send(value))).await
        }

        pub(crate) fn try_send(&self, value: T) -> Result<(), error::TrySendError<T>> {
            meet();
            self.0.try_send(value)
        }

        pub(crate) fn try_reserve_owned(self) -> Result<OwnedPermit<T>, error::TrySendError<real::Sender<T>>> {
            meet();
            self.0.try_reserve_owned().map(OwnedPermit)
        }

        pub(crate) fn max_capacity(&self) -> usize {
            self.0.max_capacity()
        }

        pub(crate) fn capacity(&self) -> usize {
            self.0.capacity()
        }
    }

    impl<T> Receiver<T> {
        pub(crate) fn try_recv(&mut self) -> Result<T, error::TryRecvError> {
            meet();
            self.0.try_recv()
        }

        pub(crate) fn blocking_recv(&mut self) -> Option<T> {
            shuttle::future::block_on(Met(Box::pin(self.0.recv())))
        }
    }
}

pub(crate) mod oneshot {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::sync::oneshot as real;
    pub(crate) use tokio::sync::oneshot::error;

    use super::meet;

    pub(crate) struct Sender<T>(Option<real::Sender<T>>);
    pub(crate) struct Receiver<T>(real::Receiver<T>);

    pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
        let (sender, receiver) = real::channel();
        (Sender(Some(sender)), Receiver(receiver))
    }

    impl<T> Sender<T> {
        pub(crate) fn send(mut self, value: T) -> Result<(), T> {
            meet();
            let sent = self.0.take().expect("it is sent once").send(value);
            meet();
            sent
        }
    }

    impl<T> Drop for Sender<T> {
        fn drop(&mut self) {
            if self.0.is_some() {
                meet();
            }
        }
    }

    impl<T> Receiver<T> {
        pub(crate) fn try_recv(&mut self) -> Result<T, error::TryRecvError> {
            meet();
            self.0.try_recv()
        }
    }

    impl<T> Future for Receiver<T> {
        type Output = Result<T, error::RecvError>;

        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
            meet();
            Pin::new(&mut self.0).poll(cx)
        }
    }
}

pub(crate) async fn heard<T>(answer: oneshot::Receiver<T>) -> Result<T, oneshot::error::RecvError> {
    answer.await
}
