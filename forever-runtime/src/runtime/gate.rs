//! `Gate`: whether the tasks of a runtime are polled, for tests that pause a worker.
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Gate in front of every task of a runtime. While it is shut none of them is polled.
#[derive(Debug, Default)]
pub(crate) struct Gate(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Number of reasons for which it is shut.
    shut: u32,
    held_back: Vec<Waker>,
}

impl Gate {
    /// Shuts it, until [`open`](Self::open) was called as often.
    pub(crate) fn shut(&self) {
        self.state().shut += 1;
    }

    /// Opens it, and wakes what was held back, in the order of its arrival.
    pub(crate) fn open(&self) {
        let mut state = self.state();
        state.shut = state.shut.saturating_sub(1);
        if state.shut > 0 {
            return;
        }
        let held_back = std::mem::take(&mut state.held_back);
        drop(state);
        held_back.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn is_shut(&self) -> bool {
        self.state().shut > 0
    }

    /// Ready while it is open; wakes the task when it opens.
    pub(crate) fn poll_open(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.shut == 0 {
            return Poll::Ready(());
        }
        if !state.held_back.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.held_back.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Ready when it is open.
    pub(crate) async fn opened(&self) {
        std::future::poll_fn(|cx| self.poll_open(cx)).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
