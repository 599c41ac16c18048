//! An agent that is woken to finish its pages.
use std::sync::Arc;

use forever::Forever;
use forever::testing::crash_everywhere;
use forever_testkit::waiting::found;
use tokio::sync::Notify;

use super::{Copyist, PAGES};

#[tokio::test]
async fn all_pages_are_copied() {
    let survived = crash_everywhere(
        |_| {
            let done = Arc::new(Notify::new());
            Forever::builder().in_memory().agent(move |me| Copyist { me, done: Arc::clone(&done) })
        },
        async |forever: Forever| {
            let agent = forever.agent::<Copyist>("copy");
            if agent.state().await.unwrap().wanted == 0 {
                agent.wake().await.unwrap().copy(PAGES).await.unwrap();
            }
            found("all pages", async || Some(agent.state().await.unwrap().copied).filter(|copied| *copied == PAGES)).await
        },
    )
    .await
    .unwrap();
    assert_eq!(survived.outcome, PAGES);
}
