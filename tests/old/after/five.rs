//! What becomes of what version 5 has brought: the keys of fibers that were deleted.
use forever::Forever;

use super::soon;
use crate::programs::five::past;

pub(crate) async fn finish(forever: &Forever) {
    for again in [forever.spawn(past(1)).key("past once").await.unwrap(), forever.spawn(past(2)).id("past").await.unwrap()] {
        assert!(!again.accepted());
        let error = soon("past", again.wait()).await.unwrap_err();
        assert!(error.is_not_found() && error.reason().ends_with(" as completed, and its result is no longer kept"), "{error}");
    }
    assert!(forever.spawn(past(3)).key("past once").await.unwrap_err().is_conflict());
}
