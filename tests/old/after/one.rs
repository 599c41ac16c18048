//! What becomes of the fibers of a database of version 1.
use forever::Forever;
use forever::fiber::FiberState;

use super::soon;
use crate::programs::one::{before, done, early, export, gone, now, odd, orders, refused, retrying, warehouse};

/// Lets everything come to its end.
pub(crate) async fn finish(forever: &Forever) {
    let wanted = format!("[11, 11, 13, 13, 13, 13] Some(\"cedar\") 4 Plain {:?}", odd());
    let monday = forever.spawn(warehouse(orders(), odd())).key("monday").await.unwrap();
    assert!(!monday.accepted(), "the key is taken");
    assert_eq!(monday.id(), "warehouse");
    assert_eq!(soon("warehouse", monday.wait()).await.unwrap(), wanted);
    assert_eq!(soon("export", forever.fiber::<export>("export").wait()).await.unwrap(), "33 20 [3, 4, 5]");
    let early_bird = forever.fiber_by_key::<early>("early bird").await.unwrap();
    assert_eq!(soon("early", early_bird.wait()).await.unwrap(), 7);
    assert_eq!(soon("late", forever.fiber::<early>("late").wait()).await.unwrap(), 61);
    let (op, attempt) = soon("retrying", forever.fiber::<retrying>("retrying").wait()).await.unwrap();
    assert_eq!((op.len(), attempt), (32, 2), "{op}");

    for (id, reason, value) in [("refused", "out of paper", 29), ("panicked", "panicked: no paper", 31)] {
        let handle = forever.fiber::<refused>(id);
        let error = soon(id, handle.wait()).await.unwrap_err();
        assert!(error.is_failed(), "{error}");
        assert_eq!(error.reason(), reason);
        forever.resume(id).await.unwrap();
        assert_eq!(soon(id, handle.wait()).await.unwrap(), value);
    }

    let again = forever.spawn(done(odd())).key("done and gone").await.unwrap();
    assert!(!again.accepted());
    assert_eq!(format!("{:?}", soon("done", again.wait()).await.unwrap()), format!("{:?}", odd()));
    let status = again.status().await.unwrap();
    assert_eq!(status.metadata, Some(serde_json::json!({ "for": "ada" })));

    assert_eq!(soon("gone", forever.fiber::<gone>("gone").wait()).await.unwrap(), 31);
    let moved = forever.fiber_by_key::<now::moved>("moved away").await.unwrap();
    let error = soon("moved", moved.wait()).await.unwrap_err();
    assert!(error.is_parked() && error.reason().contains("`first`"), "{error}");
    assert_eq!(moved.status().await.unwrap().state, FiberState::Parked);
}

/// The fiber that the code of now does not fit goes on with the code that it was made by.
pub(crate) async fn finish_with_the_code_of_then(forever: &Forever) {
    assert_eq!(soon("moved", forever.fiber::<before::moved>("moved").wait()).await.unwrap(), 19);
}
