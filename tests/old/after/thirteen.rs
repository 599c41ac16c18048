//! The end of what version 13 has brought: a closed topic stays closed, and unread messages stay readable.
use forever::Forever;

use super::soon;
use crate::programs::thirteen::{empties, leaves};

pub(crate) async fn finish(forever: &Forever) {
    let letterbox = forever.fiber::<empties>("letterbox");
    assert_eq!(soon("letterbox", letterbox.wait()).await.unwrap(), "");
    let lodger = forever.fiber::<leaves>("lodger");
    let unread = lodger.status().await.unwrap().unread;
    assert_eq!((unread.len(), unread[0].topic.as_str(), unread[0].messages), (1, "card", 1));
    assert_eq!(lodger.messages().await.unwrap()[0].value, "from the hills");
}
