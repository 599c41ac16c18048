//! The end of what version 9 has brought: histories whose newest items were in the snapshot rows.
use forever::Forever;

use super::soon;
use crate::programs::nine::seals;

pub(crate) async fn finish(forever: &Forever) {
    for (id, letters) in [("few seals", 10), ("many seals", 40)] {
        soon(id, forever.fiber::<seals>(id).wait()).await.unwrap();
        let history = forever.history(id).await.unwrap();
        let numbers: Vec<u64> = history.iter().map(|entry| entry.number).collect();
        assert_eq!(numbers, (1..=letters + 2).collect::<Vec<_>>());
        assert!(history.last().is_some_and(|entry| entry.is_resumed && entry.at == "last"));
        let frames = forever.locals_at(id, letters + 1).await.unwrap();
        assert_eq!(frames[0].at, "seal");
    }
}
