//! The end of what version 12 has brought: histories whose newest items stand together.
use forever::Forever;

use super::soon;
use crate::programs::twelve::{receives, stamps};

pub(crate) async fn finish(forever: &Forever) {
    for n in 0..6 {
        let id = format!("clerk {n}");
        assert_eq!(soon(&id, forever.fiber::<stamps>(&id).wait()).await.unwrap(), 12);
        let history = forever.history(&id).await.unwrap();
        let numbers: Vec<u64> = history.iter().map(|entry| entry.number).collect();
        assert_eq!(numbers, (1..=13).collect::<Vec<_>>(), "{id}");
        assert!(history[12].is_resumed && history[12].at == "stamp");
    }
    let counter = forever.fiber::<receives>("counter");
    counter.send("telegram", "stop").await.unwrap();
    assert_eq!(soon("counter", counter.wait()).await.unwrap(), "telegram: stop");
}
