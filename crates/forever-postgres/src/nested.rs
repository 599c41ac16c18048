//! Transactions of the program that are begun in the closure of another one.
//!
//! One has a connection of its own, so it would wait for a connection under the one that the outer
//! transaction holds, and for rows that this has locked: for ever, where all connections are held
//! like that.
use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;

thread_local! {
    /// The pools whose transactions run a closure on this thread, outermost first.
    static WITHIN: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Guard of one poll of a closure.
struct Within;

impl Drop for Within {
    fn drop(&mut self) {
        WITHIN.with_borrow_mut(Vec::pop);
    }
}

/// Runs the closure of a transaction on a connection of `pool`. It is marked around each poll, so
/// that what other tasks do on the thread is none of it.
pub(crate) async fn within<T>(pool: usize, closure: impl Future<Output = T>) -> T {
    let mut closure = pin!(closure);
    poll_fn(|cx| {
        WITHIN.with_borrow_mut(|within| within.push(pool));
        let _within = Within;
        closure.as_mut().poll(cx)
    })
    .await
}

/// Whether a closure of a transaction on a connection of `pool` is being polled.
pub(crate) fn is_within(pool: usize) -> bool {
    WITHIN.with_borrow(|within| within.contains(&pool))
}
