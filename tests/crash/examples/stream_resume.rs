//! An answer that is streamed, each chunk a write.
use std::sync::{Arc, OnceLock};

use forever::Forever;
use forever::testing::crash_everywhere;
use forever_testkit::sizes;
use futures_util::FutureExt;

use super::streaming_model::{Client, Model, chunks};
use super::{QUESTION, ask};

#[tokio::test]
async fn an_answer_is_whole() {
    let survived = crash_everywhere(
        |world| {
            let side: Arc<OnceLock<(Model, String)>> = world.shared();
            let (_, url) = side.get_or_init(|| {
                // On loopback there is nothing to wait for.
                let (model, url) = Model::start().now_or_never().unwrap().unwrap();
                model.falls_silent_at(usize::MAX);
                (model, url)
            });
            Forever::builder().in_memory().resource(Client::at(url).unwrap()).fiber::<ask>()
        },
        async |forever: Forever| forever.spawn(ask(QUESTION.into())).key(QUESTION).await.unwrap().wait().await.unwrap(),
    )
    .at_most(sizes::at_most(12))
    .await
    .unwrap();
    assert_eq!(survived.outcome, chunks().concat());
    assert!(survived.writes > chunks().len() as u64, "each chunk is a write: {survived:?}");
}
