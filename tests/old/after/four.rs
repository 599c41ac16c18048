//! What becomes of what version 4 has brought: chats.
use forever::chat::message::{ToolState, UiMessage};
use forever::chat::{Entry, InteractionKind, ToolAnswer, TurnState};
use forever::prelude::*;
use forever::{Clock, Forever};
use serde_json::{Value, json};

use super::soon;
use crate::desk::Standing;
use crate::programs::four::Talker;

/// What needs no time to pass.
pub(crate) async fn at_once(forever: &Forever) {
    goes_on_in_the_same_message(forever).await;
    a_person_answers(forever).await;
}

async fn goes_on_in_the_same_message(forever: &Forever) {
    let grace = forever.agent::<Talker>("grace");
    let long = grace.turn("long").await.unwrap().unwrap();
    assert!(soon("long", long.wait()).await.is_ok_and(|end| end.is_completed()));
    let (mut kinds, mut words) = (Vec::new(), String::new());
    for (n, entry) in (0..).zip(long.entries().await.unwrap()) {
        match entry {
            Entry::Chunk(number, chunk) => {
                assert_eq!(number, n);
                let chunk = chunk.read().unwrap();
                kinds.push(chunk.kind().to_owned());
                words += chunk.get("delta").and_then(Value::as_str).unwrap_or_default();
            }
            Entry::End(end) => assert!(end.is_completed() && n == kinds.len() as u64, "the end is the last of it"),
            _ => unreachable!(),
        }
    }
    assert_eq!(words, "one two three four five ");
    let delta = "text-delta";
    assert_eq!(kinds, ["start", "text-start", delta, delta, delta, delta, delta, "text-end", "finish"]);

    let second = grace.turn("second thought").await.unwrap().unwrap();
    assert!(soon("second thought", second.wait()).await.unwrap().is_completed());
    let messages = grace.messages().await.unwrap();
    let said: Vec<String> = messages.iter().filter(|message| message.role.as_str() == "assistant").map(UiMessage::text).collect();
    assert_eq!(said, ["all of it ", "", "one two three four five ", "one two ", "too "]);
    assert_eq!(messages.iter().filter(|message| message.id == long.message_id()).count(), 1);
    assert_eq!(messages[3].metadata.as_ref().unwrap()["forever"], json!({ "outcome": "error", "reason": "the provider said no" }));

    let turns = grace.turns(&[]).await.unwrap();
    let states: Vec<_> = turns.iter().map(|turn| (turn.id(), turn.state())).collect();
    let wanted = [
        ("told", TurnState::Completed),
        ("refused", TurnState::Error),
        ("long", TurnState::Completed),
        ("behind", TurnState::Completed),
        ("taken back", TurnState::Aborted),
        ("first thought", TurnState::Skipped),
        ("second thought", TurnState::Completed),
    ];
    assert_eq!(states, wanted);
    assert!(turns.windows(2).all(|two| two[0].settled() <= two[1].settled() || two[1].id() == "taken back"));
    let again = grace.submit("told once", [UiMessage::user("another", "?")]).await.unwrap();
    assert!(!again.accepted() && again.id() == "told");
    assert_eq!(again.metadata::<String>().await.unwrap().as_deref(), Some("by hand"));
}

async fn a_person_answers(forever: &Forever) {
    let hopper = forever.agent::<Talker>("hopper");
    assert!(hopper.has_pending_interaction().await.unwrap());
    let before = hopper.messages().await.unwrap();
    // Also of a message that was stored when messages were not marked yet.
    let page = forever.pending_interactions().await.unwrap();
    assert_eq!((page.interactions.len(), page.next), (1, None), "{page:?}");
    let asked = &page.interactions[0];
    assert_eq!((&*asked.agent, &*asked.message, &*asked.call), ("hopper", &*before[1].id, "down"));
    assert_eq!((asked.kind, &*asked.tool, &asked.input), (InteractionKind::ClientTool, "look", &json!({ "at": "down" })));
    assert_eq!((asked.since, asked.superseded), (Standing::default().now(), false));
    // That it is gone on with was asked for with the other answer, by a process that is gone.
    let answered = hopper.answer_tool("down", ToolAnswer::Output(json!("a cellar")), false).await.unwrap();
    let more = answered.continued.expect("it was asked for before");
    assert!(soon("hopper", more.wait()).await.unwrap().is_completed());
    let messages = hopper.messages().await.unwrap();
    assert_eq!(messages.iter().map(|m| &m.id).collect::<Vec<_>>(), before.iter().map(|m| &m.id).collect::<Vec<_>>());
    assert_eq!(messages[1].text(), r#"["a roof","a cellar"]"#);
    let calls = messages[1].parts.iter().filter(|part| part.tool_state() == Some(ToolState::OutputAvailable)).count();
    assert_eq!(calls, 2);
    assert!(!hopper.has_pending_interaction().await.unwrap());
    assert_eq!(forever.pending_interactions().await.unwrap().interactions, []);
}

/// What was due while time passed.
pub(crate) async fn later(forever: &Forever) {
    let lovelace = forever.agent::<Talker>("lovelace");
    let later = lovelace.turn("later").await.unwrap().unwrap();
    assert!(soon("later", later.wait()).await.unwrap().is_completed());
    assert_eq!(lovelace.messages().await.unwrap()[1].text(), "on ");
}
