//! The test hook that sees every commit.
use std::fmt;
use std::sync::Arc;

use crate::future::BoxFuture;

/// Test hook that sees every commit, and may stop everything around it.
pub trait Witness: fmt::Debug + Send + Sync {
    /// Called before writes are carried out, in this order; returns how many may be. If not all of
    /// them, the thread ends after those.
    fn begins(&self, writes: &[&'static str]) -> usize;

    /// Called when they are stored, before any caller has its answer.
    fn stored(&self, log: Pages);

    /// Called when a read or write is requested.
    fn asked(&self);

    /// Called when the answer has arrived; the caller gets it once the future is ready.
    fn hears(&self) -> BoxFuture<'_, ()>;

    /// Called when the caller has its answer, or waits no longer.
    fn left(&self);
}

/// Length of the write-ahead log in pages; 0 where there is none.
pub type Pages = u32;

/// Witness of every commit, if there is one.
pub type SeenBy = Option<Arc<dyn Witness>>;

/// A call that a witness sees, until this is dropped.
#[derive(Debug)]
pub struct Asks<'a>(&'a dyn Witness);

impl<'a> Asks<'a> {
    /// Says that a call has begun.
    pub fn new(witness: &'a dyn Witness) -> Self {
        witness.asked();
        Asks(witness)
    }
}

impl Drop for Asks<'_> {
    fn drop(&mut self) {
        self.0.left();
    }
}
