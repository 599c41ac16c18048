//! Who comes, goes and comes again, frame by frame: what is offered, what is asked for, and what is played back.
use forever::prelude::*;
use serde_json::{Value, json};

use crate::support::client::{Client, MESSAGES, NONE, PENDING, RESPONSE, RESUMING, UPDATED, asks, heard, types};
use crate::support::place::Place;
use crate::support::scripted::says;

fn probe(id: &str) -> Value {
    json!({ "type": "cf_agent_stream_resume_request", "probeId": id })
}

/// `w0 w1 `, a gate, `w2 w3 `.
fn halved() -> Value {
    json!({ "script": [{ "say": "w0 " }, { "say": "w1 " }, { "wait": "half" }, { "say": "w2 " }, { "say": "w3 " }] })
}

/// A client that has asked and has half of the answer.
async fn halfway(up: &crate::support::place::Up) -> Client {
    let mut client = up.settled("ada").await;
    client.ask("r1", halved()).await;
    client.until(|frame| frame["body"].as_str().is_some_and(|body| body.contains("w1 "))).await;
    client
}

#[tokio::test]
async fn nothing_is_under_way_and_every_request_is_told_so() {
    let place = Place::new();
    let up = place.up().await;
    let mut client = up.client("ada").await;
    let first = client.next().await.unwrap();
    assert_eq!(first, json!({ "type": "cf_agent_identity", "name": "ada", "agent": "chat-agent", "stateFollows": false }));
    let nothing = json!({ "type": "cf_agent_chat_recovering", "recovering": false, "connect": true });
    assert_eq!(client.next().await.unwrap(), nothing);
    for n in 0..3 {
        let id = format!("p{n}");
        client.send(probe(&id)).await;
        assert_eq!(client.next().await.unwrap(), json!({ "type": NONE, "reason": "idle", "probeId": id }));
    }
    client.send(json!({ "type": "cf_agent_stream_resume_request" })).await;
    assert_eq!(client.next().await.unwrap(), json!({ "type": NONE, "reason": "idle" }));
    up.down().await;
}

#[tokio::test]
async fn what_is_under_way_is_offered_on_connecting_and_to_every_request() {
    let place = Place::new();
    let up = place.up().await;
    let _asker = halfway(&up).await;
    let mut late = up.client("ada").await;
    assert_eq!(late.next().await.unwrap(), json!({ "type": RESUMING, "id": "r1" }));
    assert_eq!(late.next().await.unwrap()["type"], "cf_agent_identity");
    for id in ["p1", "p2"] {
        late.send(probe(id)).await;
        assert_eq!(late.next().await.unwrap(), json!({ "type": RESUMING, "id": "r1", "probeId": id }));
    }
    // Nothing of it is shown before it is asked for.
    place.gates.open("half");
    up.agent("ada").turn("r1").await.unwrap().unwrap().wait().await.unwrap();
    late.done("r1").await;
    assert_eq!(late.heard("r1").1, Vec::<u64>::new());
    up.down().await;
}

#[tokio::test]
async fn whoever_acknowledges_has_what_was_there_marked_as_such_and_then_what_comes() {
    let place = Place::new();
    let up = place.up().await;
    let _asker = halfway(&up).await;
    let mut late = up.settled("ada").await;
    late.acknowledge("r1").await;
    let caught_up = late.until(|frame| frame["replayComplete"] == true).await;
    assert_eq!(caught_up, json!({ "type": RESPONSE, "id": "r1", "body": "", "done": false, "replay": true, "replayComplete": true }));
    let (text, there) = late.heard("r1");
    assert_eq!(text, "w0 w1 ");
    assert!(late.seen.iter().filter(|frame| frame["seq"].is_u64()).all(|frame| frame["replay"] == true));
    place.gates.open("half");
    let before = late.seen.len();
    let done = late.done("r1").await;
    assert_eq!(done["messageIds"], json!(["u-r1"]));
    assert!(done["replay"].is_null() && done["error"].is_null());
    let live = &late.seen[before..];
    assert!(live.iter().filter(|frame| frame["seq"].is_u64()).all(|frame| frame["replay"].is_null()), "{live:#?}");
    let (text, numbers) = late.heard("r1");
    assert_eq!(text, "w0 w1 w2 w3 ");
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>(), "each once, in order");
    assert!(there.len() < numbers.len());
    // The conversation is there before the end is told.
    assert_eq!(types(live)[live.len() - 2..], [MESSAGES, RESPONSE]);
    let stored = live[live.len() - 2]["messages"].as_array().unwrap();
    assert_eq!(stored[1]["parts"][0]["text"], "w0 w1 w2 w3 ");
    up.down().await;
}

#[tokio::test]
async fn from_says_which_chunk_is_wanted_first() {
    let place = Place::new();
    let up = place.up().await;
    let _asker = halfway(&up).await;
    let mut late = up.settled("ada").await;
    late.send(json!({ "type": "cf_agent_stream_resume_ack", "id": "r1", "from": 3 })).await;
    late.until(|frame| frame["replayComplete"] == true).await;
    assert_eq!(late.heard("r1"), ("w1 ".to_owned(), vec![3]), "start, text-start and w0 are known");
    // Asked for again, it begins where that says; what was shown so far was another question.
    let before = late.seen.len();
    late.send(json!({ "type": "cf_agent_stream_resume_ack", "id": "r1", "from": 1_000_000_000_000_000_000_u64 })).await;
    late.settled().await;
    place.gates.open("half");
    late.done("r1").await;
    assert_eq!(heard(&late.seen[before..], "r1").1, Vec::<u64>::new(), "behind all there is nothing but the end");
    up.down().await;
}

#[tokio::test]
async fn a_turn_that_waits_is_pending_and_resumed_when_it_begins() {
    let place = Place::new();
    let up = place.up().await;
    let mut asker = halfway(&up).await;
    asker.ask("r2", says(&["second "])).await;
    asker.settled().await;
    // The one under way comes first, and then the one that waits.
    let mut late = up.client("ada").await;
    assert_eq!(late.next().await.unwrap(), json!({ "type": RESUMING, "id": "r1" }));
    assert_eq!(late.next().await.unwrap(), json!({ "type": PENDING, "id": "r2" }));
    late.acknowledge("r1").await;
    late.until(|frame| frame["replayComplete"] == true).await;
    place.gates.open("half");
    late.done("r1").await;
    let resuming = late.of_type(RESUMING).await;
    assert_eq!(resuming, json!({ "type": RESUMING, "id": "r2" }));
    late.acknowledge("r2").await;
    late.done("r2").await;
    // It may have been over before it was asked for; then it is in the conversation.
    late.send(probe("after")).await;
    assert_eq!(late.until(|frame| frame["probeId"] == "after").await["type"], NONE);
    let messages = up.get("/agents/chat-agent/ada/get-messages").await;
    assert!(messages.body.contains("second "), "{}", messages.body);
    asker.done("r2").await;
    assert_eq!(asker.heard("r2").0, "second ");
    up.down().await;
}

#[tokio::test]
async fn a_request_while_a_turn_only_waits_is_told_that_it_is_pending() {
    let place = Place::new();
    let up = place.up().await;
    let mut asker = up.settled("ada").await;
    asker.ask("r1", json!({ "script": [{ "wait": "first" }, { "say": "one " }] })).await;
    place.gates.reached("first").await;
    asker.ask("r2", json!({ "script": [{ "wait": "second" }, { "say": "two " }] })).await;
    asker.settled().await;
    let mut late = up.settled("ada").await;
    up.agent("ada").cancel("r1", "no more").await.unwrap();
    late.until(|frame| frame["type"] == RESUMING && frame["id"] == "r2").await;
    late.send(probe("p")).await;
    assert_eq!(late.until(|frame| frame["probeId"] == "p").await, json!({ "type": RESUMING, "id": "r2", "probeId": "p" }));
    late.acknowledge("r2").await;
    // An answer that is over before it is asked for comes with the conversation.
    late.settled().await;
    place.gates.open("second");
    late.done("r2").await;
    assert_eq!(late.heard("r2").0, "two ");
    up.down().await;
}

#[tokio::test]
async fn an_asker_is_not_offered_its_own_question_and_has_it_as_it_comes() {
    let place = Place::new();
    let up = place.up().await;
    let mut asker = halfway(&up).await;
    asker.send(probe("p")).await;
    let answer = asker.until(|frame| frame["probeId"] == "p").await;
    assert_eq!(answer, json!({ "type": NONE, "reason": "idle", "probeId": "p" }));
    place.gates.open("half");
    asker.done("r1").await;
    let (text, numbers) = asker.heard("r1");
    assert_eq!(text, "w0 w1 w2 w3 ");
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
    assert!(asker.seen.iter().all(|frame| frame["type"] != RESUMING));
    up.down().await;
}

#[tokio::test]
async fn a_question_that_is_sent_again_is_asked_once_and_can_be_resumed() {
    let place = Place::new();
    let up = place.up().await;
    let asker = halfway(&up).await;
    asker.leave().await;
    let mut again = up.settled("ada").await;
    again.send(asks("r1", "u-r1", halved())).await;
    again.of_type(RESUMING).await;
    again.acknowledge("r1").await;
    again.until(|frame| frame["replayComplete"] == true).await;
    place.gates.open("half");
    again.done("r1").await;
    assert_eq!(again.heard("r1").0, "w0 w1 w2 w3 ");
    assert_eq!(up.agent("ada").turns(&[]).await.unwrap().len(), 1);
    assert_eq!(up.agent("ada").messages().await.unwrap().len(), 2);
    up.down().await;
}

#[tokio::test]
async fn an_error_is_told_to_everybody_who_comes_until_something_else_is_asked() {
    let place = Place::new();
    let mut up = place.up().await;
    let mut asker = up.settled("ada").await;
    asker.ask("r1", json!({ "script": [{ "say": "half " }, { "error": "the provider said no" }] })).await;
    let error = asker.until(|frame| frame["error"] == true).await;
    assert_eq!((&error["body"], &error["done"]), (&json!("the provider said no"), &json!(false)));
    assert_eq!(asker.done("r1").await["outcome"], "error");
    for life in 0..2 {
        for n in 0..2 {
            let mut late = up.settled("ada").await;
            late.send(probe("p")).await;
            assert_eq!(late.until(|frame| frame["probeId"] == "p").await, json!({ "type": RESUMING, "id": "r1", "probeId": "p" }));
            late.acknowledge("r1").await;
            let end = late.done("r1").await;
            assert_eq!((&end["body"], &end["error"]), (&json!("the provider said no"), &json!(true)), "life {life}, client {n}");
            assert_eq!(late.heard("r1").0, "half ");
        }
        if life == 0 {
            up.down().await;
            up = place.up().await;
        }
    }
    let mut next = up.settled("ada").await;
    next.ask("r2", says(&["well "])).await;
    next.done("r2").await;
    let mut late = up.settled("ada").await;
    late.send(probe("p")).await;
    assert_eq!(late.until(|frame| frame["probeId"] == "p").await["type"], NONE);
    up.down().await;
}

#[tokio::test]
async fn an_acknowledgement_that_comes_late_or_for_nothing_is_answered_with_an_end() {
    let place = Place::new();
    let up = place.up().await;
    let mut asker = up.settled("ada").await;
    asker.ask("r1", says(&["all "])).await;
    asker.done("r1").await;
    asker.ask("r2", json!({ "script": [{ "say": "some " }, { "wait": "never" }] })).await;
    asker.until(|frame| frame["body"].as_str().is_some_and(|body| body.contains("some "))).await;
    asker.send(json!({ "type": "cf_agent_chat_request_cancel", "id": "r2" })).await;
    assert_eq!(asker.done("r2").await["outcome"], "aborted");
    let mut late = up.settled("ada").await;
    late.acknowledge("r1").await;
    let end = json!({ "type": RESPONSE, "id": "r1", "body": "", "done": true, "replay": true, "messageIds": ["u-r1"] });
    assert_eq!(late.next().await.unwrap(), end);
    late.acknowledge("r2").await;
    let aborted = late.next().await.unwrap();
    assert_eq!((&aborted["outcome"], &aborted["replay"]), (&json!("aborted"), &json!(true)));
    late.acknowledge("nobody has asked this").await;
    let end = json!({ "type": RESPONSE, "id": "nobody has asked this", "body": "", "done": true, "replay": true });
    assert_eq!(late.next().await.unwrap(), end);
    up.down().await;
}

#[tokio::test]
async fn numbers_go_on_in_the_next_process() {
    let place = Place::new();
    let up = place.up().await;
    let address = up.address;
    let mut asker = halfway(&up).await;
    up.down().await;
    assert_eq!(asker.closed().await, 1012);
    let before = asker.heard("r1");
    let up = place.up_at(address, |server| server).await;
    let mut again = up.client("ada").await;
    again.of_type(RESUMING).await;
    again.acknowledge("r1").await;
    again.until(|frame| frame["replayComplete"] == true).await;
    place.gates.open("half");
    again.done("r1").await;
    let (text, numbers) = again.heard("r1");
    assert_eq!(text, "w0 w1 w2 w3 ");
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
    assert_eq!(numbers[..before.1.len()], before.1, "what was shown has kept its numbers");
    // From a cursor: what the first connection had, and the rest of the second.
    let rest = numbers[before.1.len()..].to_vec();
    assert!(!rest.is_empty());
    up.down().await;
}

#[tokio::test]
async fn what_adds_to_an_answer_is_taken_by_the_page_and_not_by_the_stream_that_asks() {
    let place = Place::new();
    let up = place.up().await;
    let mut asker = up.settled("ada").await;
    let script = json!({ "script": [{ "say": "let me see " }, { "tool": "call1" }], "then": [{ "wait": "then" }, { "say": "seen " }] });
    asker.ask("r1", script).await;
    asker.done("r1").await;
    let mut other = up.settled("ada").await;
    let result =
        json!({ "type": "cf_agent_tool_result", "toolCallId": "call1", "toolName": "look", "output": { "x": 1 }, "autoContinue": true });
    asker.send(result.clone()).await;
    asker.send(probe("p")).await;
    place.gates.reached("then").await;
    let updated = asker.of_type("cf_agent_message_updated").await;
    assert_eq!(updated["message"]["parts"][1]["state"], "output-available");
    // Once for the request, if it came when the turn was running, and once when it begins; always in this pair.
    asker.send(probe("q")).await;
    let none = asker.until(|frame| frame["probeId"] == "q").await;
    assert_eq!(none, json!({ "type": NONE, "reason": "continuation-owned", "probeId": "q" }));
    let resuming = asker.next().await.unwrap();
    let id = resuming["id"].as_str().unwrap().to_owned();
    assert_eq!(resuming, json!({ "type": RESUMING, "id": id }));
    asker.acknowledge(&id).await;
    // The first answer won; a second one is passed over.
    asker.send(result).await;
    asker.settled().await;
    place.gates.open("then");
    asker.done(&id).await;
    let pieces: Vec<&Value> = asker.seen.iter().filter(|frame| frame["id"] == id.as_str() && frame["type"] == RESPONSE).collect();
    assert!(pieces.iter().all(|frame| frame["continuation"] == true), "{pieces:#?}");
    assert_eq!(asker.heard(&id).0, "seen ");
    // The other tab has it as it comes, without asking.
    other.done(&id).await;
    assert_eq!(other.heard(&id).0, "seen ");
    let messages = up.agent("ada").messages().await.unwrap();
    assert_eq!((messages.len(), messages[1].text().as_str()), (2, "let me see seen "));
    up.down().await;
}

#[tokio::test]
async fn another_tab_is_told_the_question_the_answer_and_the_message_before_the_end() {
    let place = Place::new();
    let up = place.up().await;
    let (mut asker, mut other) = (up.settled("ada").await, up.settled("ada").await);
    other.send(probe("p")).await;
    other.settled().await;
    asker.ask("r1", says(&["one ", "two "])).await;
    asker.done("r1").await;
    other.done("r1").await;
    assert!(asker.seen.iter().all(|frame| frame["type"] != MESSAGES), "who has asked has the messages");
    let told = &other.seen[other.seen.iter().position(|frame| frame["type"] == MESSAGES).unwrap()..];
    assert_eq!(told[0]["messages"][0]["id"], "u-r1");
    assert_eq!(types(&told[told.len() - 2..]), [UPDATED, RESPONSE]);
    let stored = serde_json::to_value(&up.agent("ada").messages().await.unwrap()[1]).unwrap();
    assert_eq!(told[told.len() - 2]["message"], stored);
    assert_eq!(other.heard("r1"), asker.heard("r1"));
    assert_eq!(other.heard("r1").0, "one two ");
    up.down().await;
}

#[tokio::test]
async fn turns_that_ended_meanwhile_are_told_before_the_one_that_is_under_way() {
    let place = Place::new();
    let up = place.up().await;
    let mut asker = up.settled("ada").await;
    asker.ask("r0", says(&["whole "])).await;
    asker.done("r0").await;
    asker.ask("stopped", json!({ "script": [{ "wait": "never" }] })).await;
    place.gates.reached("never").await;
    asker.send(json!({ "type": "cf_agent_chat_request_cancel", "id": "stopped" })).await;
    asker.done("stopped").await;
    asker.ask("r1", halved()).await;
    place.gates.reached("half").await;
    // A client that comes again may have been shown the beginning of one that has ended, and would wait for its end.
    let mut late = up.client("ada").await;
    let ended = |id: &str| json!({ "type": RESPONSE, "id": id, "body": "", "done": true, "replay": true, "connect": true, "messageIds": [format!("u-{id}")] });
    assert_eq!(late.next().await.unwrap(), ended("r0"));
    let mut stopped = ended("stopped");
    stopped["outcome"] = json!("aborted");
    assert_eq!(late.next().await.unwrap(), stopped);
    assert_eq!(late.next().await.unwrap(), json!({ "type": RESUMING, "id": "r1" }));
    up.down().await;
}

#[tokio::test]
async fn turns_before_an_error_that_is_played_back_are_told_to_have_ended() {
    let place = Place::new();
    let up = place.up().await;
    let mut asker = up.settled("ada").await;
    for (id, script) in [("r0", says(&["whole "])), ("r1", json!({ "script": [{ "error": "no" }] }))] {
        asker.ask(id, script).await;
        asker.done(id).await;
    }
    let late = up.settled("ada").await;
    let ended: Vec<_> = late.seen.iter().filter(|frame| frame["type"] == RESPONSE).map(|frame| frame["id"].clone()).collect();
    assert_eq!(ended, ["r0"]);
    // Where nothing can be resumed the probe is told so, and no end is.
    asker.ask("r2", says(&["well "])).await;
    asker.done("r2").await;
    let late = up.settled("ada").await;
    assert!(late.seen.iter().all(|frame| frame["type"] != RESPONSE), "{:?}", late.seen);
    up.down().await;
}

#[tokio::test]
async fn of_many_turns_that_have_ended_the_newest_are_told() {
    let place = Place::in_memory();
    let up = place.up().await;
    let mut asker = up.settled("ada").await;
    for n in 0..40 {
        asker.ask(&format!("r{n}"), says(&["a "])).await;
        asker.done(&format!("r{n}")).await;
    }
    asker.ask("last", halved()).await;
    place.gates.reached("half").await;
    let late = up.settled("ada").await;
    let ended: Vec<_> =
        late.seen.iter().filter(|frame| frame["done"] == true && frame["replay"] == true).map(|frame| frame["id"].clone()).collect();
    assert_eq!(ended, (8..40).map(|n| json!(format!("r{n}"))).collect::<Vec<_>>());
    up.down().await;
}

#[tokio::test]
async fn a_request_that_was_told_to_wait_is_answered_when_the_turn_ends_without_having_begun() {
    use forever::chat::Queueing;
    use forever::chat::message::UiMessage;
    let place = Place::new();
    let up = place.up().await;
    let waits = |id: &'static str| {
        let asked = up.agent("ada").save_messages([UiMessage::user(format!("u-{id}"), "hi")]).id(id);
        asked.queueing(Queueing::Debounce(std::time::Duration::from_secs(3600)))
    };
    waits("r1").await.unwrap();
    let mut client = up.settled("ada").await;
    client.send(probe("p")).await;
    assert_eq!(client.until(|frame| frame["probeId"] == "p").await, json!({ "type": PENDING, "id": "r1", "probeId": "p" }));
    // What the request waits for then is the next one.
    waits("r2").await.unwrap();
    up.agent("ada").cancel("r1", "no more").await.unwrap();
    assert_eq!(client.until(|frame| frame["probeId"] == "p").await, json!({ "type": PENDING, "id": "r2", "probeId": "p" }));
    up.agent("ada").cancel("r2", "no more").await.unwrap();
    assert_eq!(client.until(|frame| frame["probeId"] == "p").await, json!({ "type": NONE, "reason": "idle", "probeId": "p" }));
    // It is answered once.
    assert!(client.settled().await.iter().all(|frame| frame["probeId"].is_null()));
    up.down().await;
}
