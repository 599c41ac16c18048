//! The end of what version 8 has brought: a history that goes on where it was.
use forever::Forever;

use super::soon;
use crate::programs::eight::clerk;

pub(crate) async fn finish(forever: &Forever) {
    let filed = soon("clerk", forever.fiber::<clerk>("clerk").wait()).await.unwrap();
    assert!(filed > 20 * 500);
    let history = forever.history("clerk").await.unwrap();
    let numbers: Vec<u64> = history.iter().map(|entry| entry.number).collect();
    assert_eq!(numbers, (1..=42).collect::<Vec<_>>());
    assert!(history[41].is_resumed && history[41].at == "last");
    let frames = forever.locals_at("clerk", 20).await.unwrap();
    assert_eq!(frames[0].at, history[19].at);
}
