//! The end of what version 11 has brought: messages with an id are compared.
use forever::Forever;

use super::soon;
use crate::programs::eleven::signs;

pub(crate) async fn finish(forever: &Forever) {
    let notary = forever.fiber::<signs>("notary");
    assert_eq!(soon("notary", notary.wait()).await.unwrap(), "signed ada");
    notary.send("name", "ada").message_id("letter 7").await.unwrap();
    assert!(notary.send("name", "eve").message_id("letter 7").await.unwrap_err().is_conflict());
}
