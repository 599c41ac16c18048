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
use tokio::task::unconstrained;

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
    // Within tokio's budget of a task it would not be polled to its end.
    if time_is_paused() { block_on(unconstrained(answer)) } else { answer.await }
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

    #[tokio::test(start_paused = true)]
    async fn a_task_that_asks_again_and_again_is_answered() {
        for n in 0..1_000 {
            let (answer, answered) = oneshot::channel();
            answer.send(n).unwrap();
            assert_eq!(heard(answered).await, Ok(n));
        }
    }

    #[tokio::test]
    async fn time_that_is_not_paused_moves_on() {
        assert!(!time_is_paused());
    }
}
