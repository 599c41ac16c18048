//! What several of these tests use.
pub(crate) use forever_testkit::waiting::{DEADLINE as LONGEST, soon};

/// Waits until something holds that gives no signal of its own.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    forever_testkit::waiting::eventually(what, async || holds()).await;
}
