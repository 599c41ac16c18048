//! The end of what version 13 has brought: the places of fibers that wait.
use forever::Forever;

use super::soon;
use crate::programs::thirteen::counter_clerk;

pub(crate) async fn finish(forever: &Forever) {
    let positions = forever.positions().await.unwrap();
    let mut fibers: Vec<u64> =
        positions.iter().filter(|position| position.name == "counter_clerk").map(|position| position.fibers).collect();
    fibers.sort_unstable();
    assert_eq!(fibers, [2, 3]);
    for n in 0..5 {
        let clerk = forever.fiber::<counter_clerk>(&format!("counter clerk {n}"));
        clerk.send(if n < 3 { "word" } else { "sign" }, "yes").await.unwrap();
        assert_eq!(soon("a counter clerk", clerk.wait()).await.unwrap(), "yes");
    }
}
