//! The end of what version 6 has brought: a call that is under way.
use forever::Forever;

use super::soon;
use crate::programs::six::caller;

pub(crate) async fn finish(forever: &Forever) {
    let sum = soon("caller", forever.handle::<caller>("caller").wait()).await.unwrap();
    assert_eq!(sum, "called: first".len() + "called: second".len() + "caller: end".len());
}
