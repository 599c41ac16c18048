//! An agent that is woken to finish its pages.
use std::sync::Arc;

use forever::Forever;
use forever::testing::crash_everywhere;
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
            loop {
                let copied = agent.state().await.unwrap().copied;
                if copied == PAGES {
                    break copied;
                }
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        },
    )
    .await
    .unwrap();
    assert_eq!(survived.outcome, PAGES);
}
