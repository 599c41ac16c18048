//! A question to the scripted model.
use std::sync::{Arc, OnceLock};

use forever::Forever;
use forever::testing::crash_everywhere;
use forever_testkit::sizes;
use futures_util::FutureExt;

use super::openai::{Endpoint, Model};
use super::{Progress, QUESTION, research, scripted_model, tools};

#[tokio::test]
async fn a_question_is_answered() {
    let survived = crash_everywhere(
        |world| {
            let url: Arc<OnceLock<String>> = world.shared();
            // On loopback there is nothing to wait for.
            let base_url = url.get_or_init(|| scripted_model::start(false).now_or_never().unwrap().unwrap()).clone();
            let endpoint = Endpoint { base_url, api_key: "none".into(), model: "script".into(), local: true };
            let model = Model::new(&endpoint, tools::offered().unwrap()).unwrap();
            Forever::builder().in_memory().resource(model).resource(Progress::new(None)).fiber::<research>()
        },
        async |forever: Forever| forever.spawn(research(QUESTION.into())).key("question").await.unwrap().wait().await.unwrap(),
    )
    .at_most(sizes::at_most(12))
    .await
    .unwrap();
    assert!(survived.outcome.contains("higher"), "{survived:?}");
}
