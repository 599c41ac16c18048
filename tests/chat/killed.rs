//! Turns whose process is ended at every write.
use forever::Forever;
use forever::chat::Entry;
use forever::testing::{World, crash_everywhere};
use serde_json::json;

use crate::scripted::{Scripted, Seen, ask, scripted, told};

#[tokio::test]
async fn a_turn_goes_on_in_the_same_message_wherever_its_process_ends() {
    let survived = crash_everywhere(
        |world: &World| scripted(&world.shared::<Seen>()).in_memory().clock(world.clock()),
        async |forever: Forever| {
            let agent = forever.agent::<Scripted>("a");
            let turn = ask(&agent, "r1", json!({ "n": 3 })).await;
            let mut follow = turn.follow(0).await.unwrap();
            let mut shown = Vec::new();
            loop {
                match follow.next().await.unwrap() {
                    Some(Entry::Chunk(number, chunk)) => shown.push((number, chunk.json().to_owned())),
                    Some(Entry::End(end)) => break assert!(end.is_completed()),
                    _ => unreachable!(),
                }
            }
            assert!(shown.iter().map(|(n, _)| *n).eq(0..shown.len() as u64));
            let messages = agent.messages().await.unwrap();
            (told(&turn).await, messages.iter().map(forever::chat::message::UiMessage::text).collect::<Vec<_>>())
        },
    )
    .crash_randomly(1, 50)
    .await
    .unwrap();
    assert_eq!(survived.outcome.0, "start|text-start|w0 |w1 |w2 |text-end|finish|completed");
    assert_eq!(survived.outcome.1, ["hi", "w0 w1 w2 "]);
}
