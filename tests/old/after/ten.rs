//! The end of what version 10 has brought: streams with several items in a row.
use forever::Forever;

use super::soon;
use crate::programs::ten::weighs;

pub(crate) async fn finish(forever: &Forever) {
    let weighed = soon("scale", forever.fiber::<weighs>("scale").wait()).await.unwrap();
    assert_eq!(weighed, ["crate a", "crate b", "crate 0", "crate 1", "crate 2", "1 kg", "2 kg", "3 kg"]);
}
