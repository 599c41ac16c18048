//! The end of what version 13 has brought: a closed topic stays closed, unread messages stay readable, and the places of fibers that wait.
use forever::Forever;

use super::soon;
use crate::programs::thirteen::{counter_clerk, empties, leaves};

pub(crate) async fn finish(forever: &Forever) {
    let letterbox = forever.fiber::<empties>("letterbox");
    assert_eq!(soon("letterbox", letterbox.wait()).await.unwrap(), "");
    let lodger = forever.fiber::<leaves>("lodger");
    let unread = lodger.status().await.unwrap().unread;
    assert_eq!((unread.len(), unread[0].topic.as_str(), unread[0].messages), (1, "card", 1));
    assert_eq!(lodger.messages().await.unwrap()[0].value, "from the hills");
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
