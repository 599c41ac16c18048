//! Transactions of the program that are begun in the closure of another one.
//!
//! One has a connection of its own, so it would wait for a connection under the one that the outer
//! transaction holds, and for rows that this has locked: for ever, where all connections are held
//! like that.

tokio::task_local! {
    /// The pools whose transactions run the closure that is being polled, outermost first.
    static WITHIN: Vec<usize>;
}

/// Runs the closure of a transaction on a connection of `pool`.
pub(crate) async fn within<T>(pool: usize, closure: impl Future<Output = T>) -> T {
    let mut within = WITHIN.try_with(Vec::clone).unwrap_or_default();
    within.push(pool);
    WITHIN.scope(within, closure).await
}

/// Whether a closure of a transaction on a connection of `pool` is being polled.
pub(crate) fn is_within(pool: usize) -> bool {
    WITHIN.try_with(|within| within.contains(&pool)).unwrap_or(false)
}
