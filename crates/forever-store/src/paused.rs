//! Tests on tokio's paused time, as `#[tokio::test(start_paused = true)]` begins it.
//!
//! Such time moves on to the next timer whenever all tasks wait. A task that waits for a thread
//! waits as well, and time would run ahead of it. So where time is paused, a task that waits for a
//! thread of the store keeps its own thread meanwhile.
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use tokio::sync::oneshot;

/// Whether tokio's time is paused.
#[doc(hidden)]
#[expect(clippy::disallowed_methods, reason = "the two clocks are compared")]
pub fn time_is_paused() -> bool {
    let (real, paused) = (Instant::now(), tokio::time::Instant::now());
    while Instant::now() == real {}
    tokio::time::Instant::now() == paused
}

/// What a thread answers. Keeps the caller's thread where time is paused.
pub(crate) async fn heard<T>(answer: oneshot::Receiver<T>) -> Result<T, oneshot::error::RecvError> {
    if time_is_paused() { block_on(answer) } else { answer.await }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut future, mut cx) = (pin!(future), Context::from_waker(&waker));
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_stands_still_while_a_thread_works() {
        assert!(time_is_paused());
        let (answer, answered) = oneshot::channel();
        let (asked, asks) = std::sync::mpsc::channel();
        let worker = thread::spawn(move || {
            asks.recv().unwrap();
            answer.send(7)
        });
        let begun = tokio::time::Instant::now();
        asked.send(()).unwrap();
        assert_eq!(tokio::time::timeout(Duration::from_millis(1), heard(answered)).await, Ok(Ok(7)));
        assert_eq!(begun.elapsed(), Duration::ZERO);
        worker.join().unwrap().unwrap();
    }

    #[tokio::test]
    async fn time_that_is_not_paused_moves_on() {
        assert!(!time_is_paused());
    }
}
