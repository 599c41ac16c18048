//! The end of what version 7 has brought: effects that began in the snapshot row.
use forever::Forever;
use forever::ops::OpState;

use super::soon;
use crate::programs::seven::payer;

pub(crate) async fn finish(forever: &Forever) {
    let paid = soon("payer", forever.fiber::<payer>("payer").wait()).await.unwrap();
    assert_eq!(paid, "before paying".len() + 9 * 300 + "pay last".len());
    let ops = forever.ops("payer").await.unwrap();
    assert_eq!(ops.iter().filter(|op| op.state == OpState::Completed).count(), 10);
    assert_eq!(ops.last().unwrap().step, "pay last");
}
