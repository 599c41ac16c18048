//! Answers that were cut off, and go on.
use std::time::Duration;

use forever_chat::message::Part;
use forever_chat::model::{Anthropic, ChatModel, FinishReason, ModelErrorKind, ModelEvent, OpenAiCompatible, OpenAiResponses};
use serde_json::{Value, json};

use crate::support::chunks::Fitting;
use crate::support::server::{Reply, Server};
use crate::support::{ModelOutput, client, interrupted, part, recorded};

const STORED: &str = include_str!("recorded/responses-text.stored.json");
const STORED_TOOLS: &str = include_str!("recorded/responses-tools.stored.json");
const TEXT: &str = "The Seine is 777 km long, über 300 more than the Thames. 🌊";

fn responses(server: &Server) -> OpenAiResponses {
    OpenAiResponses::new("gpt-5").api_key("k").base_url(server.url()).client(client())
}

fn stored(status: &str) -> Reply {
    let mut json: Value = serde_json::from_str(STORED).expect("it is JSON");
    json["status"] = status.into();
    if status != "completed" {
        json["output"] = json!([]);
    }
    plain(200, json.to_string())
}

fn plain(status: u16, body: impl Into<String>) -> Reply {
    Reply::Plain(status, "content-type: application/json\r\n", body.into())
}

fn anew(name: &str) -> Reply {
    Reply::Stream(vec![recorded(name).text.into()])
}

fn of_item(text: &str, item: &str) -> Part {
    part(json!({ "type": "text", "text": text, "providerMetadata": { "openai": { "itemId": item } } }))
}

/// What a stored answer adds to what was shown.
async fn rest(shown: Vec<Part>, stored: Reply) -> ModelOutput {
    let server = Server::with(vec![stored]).await;
    let told = ModelOutput::soon(responses(&server).answer(interrupted("How long?", Some("resp_text_01"), shown))).await;
    assert_eq!(server.lines(), ["GET /v1/responses/resp_text_01"], "nothing else is asked");
    assert!(Fitting::of(&told.events).is_closed());
    told
}

#[tokio::test(start_paused = true)]
async fn a_stored_answer_gives_what_was_not_shown_wherever_it_was_cut() {
    for cut in (0..=TEXT.len()).filter(|&cut| TEXT.is_char_boundary(cut)).step_by(3).chain([TEXT.len()]) {
        for shown in [of_item(&TEXT[..cut], "msg_text_01"), Part::text(&TEXT[..cut])] {
            let told = rest(vec![shown], stored("completed")).await;
            assert_eq!(told.text(), TEXT[cut..], "cut at {cut}");
            let end = told.end.expect("it is complete");
            assert_eq!((end.reason, end.input_tokens, end.output_tokens), (FinishReason::Stop, Some(36), Some(87)));
        }
    }
    assert_eq!(rest(Vec::new(), stored("completed")).await.text(), TEXT);
}

#[tokio::test(start_paused = true)]
async fn text_of_earlier_attempts_is_no_part_of_the_stored_answer() {
    // It ends in what the stored one begins with.
    let shown = vec![of_item("As I said: The S", "msg_earlier"), of_item("The", "msg_text_01"), of_item(" Seine", "msg_text_01")];
    assert_eq!(rest(shown, stored("completed")).await.text(), TEXT["The Seine".len()..]);
    assert_eq!(rest(vec![of_item("The", "msg_earlier")], stored("completed")).await.text(), TEXT);
}

#[tokio::test(start_paused = true)]
async fn text_that_is_not_what_is_stored_goes_on_after_what_both_have_in_common() {
    assert_eq!(rest(vec![Part::text("The Seine was")], stored("completed")).await.text(), TEXT["The Seine ".len()..]);
    assert_eq!(rest(vec![of_item(&format!("{TEXT} And"), "msg_text_01")], stored("completed")).await.text(), "");
}

#[tokio::test(start_paused = true)]
async fn reasoning_and_calls_that_were_shown_are_not_given_again() {
    let whole = recorded("responses-tools").whole();
    let metadata = json!({ "openai": { "itemId": "rs_tools_01" } });
    let thought = |text: &str, metadata: &Value| part(json!({ "type": "reasoning", "text": text, "providerMetadata": metadata }));
    let first = "**Comparing heights**\n\nI need both numbers.";
    let second = "**Searching**\n\nTwo searches, side by side.";
    let call = |state: &str| {
        part(json!({ "type": "tool-search", "toolCallId": "call_Tool01", "state": state, "input": { "query": "height Eiffel Tower" } }))
    };
    let ended = json!({ "openai": { "itemId": "rs_tools_01", "reasoningEncryptedContent": "gAAAAABthe-whole-of-it" } });
    let ids = |told: &ModelOutput| -> Vec<String> {
        let of = |event: &ModelEvent| match event {
            ModelEvent::Chunk(chunk) if chunk.kind() == "tool-input-available" => Some(chunk.get("toolCallId")?.as_str()?.to_owned()),
            _ => None,
        };
        told.events.iter().filter_map(of).collect()
    };
    let kinds = |told: &ModelOutput| -> Vec<String> {
        told.events
            .iter()
            .filter_map(|event| if let ModelEvent::Chunk(chunk) = event { Some(chunk.kind().to_owned()) } else { None })
            .collect()
    };

    // In the middle of the second thought.
    let told = rest(vec![thought(first, &metadata), thought(&second[..10], &metadata)], plain(200, STORED_TOOLS)).await;
    assert_eq!(kinds(&told)[..3], ["reasoning-start", "reasoning-delta", "reasoning-end"]);
    assert!(told.lines().contains(&second[10..].replace('\n', "\\n")) && !told.lines().contains("heights"), "{}", told.lines());
    assert_eq!(
        (told.text(), ids(&told), told.end.map(|end| end.reason)),
        ("I look both up.".into(), ids(&whole), Ok(FinishReason::ToolCalls))
    );

    // Between the two calls, the second of which had begun.
    let shown =
        vec![thought(first, &metadata), thought(second, &ended), of_item("I look both up.", "msg_tools_01"), call("input-available")];
    let told = rest(shown.clone(), plain(200, STORED_TOOLS)).await;
    assert_eq!((kinds(&told), ids(&told)), (vec!["tool-input-start".into(), "tool-input-available".into()], vec!["call_Tool02".into()]));

    // A call whose input had not come whole comes again.
    let told = rest([&shown[..3], &[call("input-streaming")]].concat(), plain(200, STORED_TOOLS)).await;
    assert_eq!(ids(&told), ["call_Tool01", "call_Tool02"]);

    // All of it: the tools are still to be called.
    let second = part(json!({ "type": "tool-search", "toolCallId": "call_Tool02", "state": "input-available", "input": {} }));
    let told = rest([&shown[..], &[second]].concat(), plain(200, STORED_TOOLS)).await;
    assert_eq!((told.events, told.end.map(|end| end.reason)), (vec![], Ok(FinishReason::ToolCalls)));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_still_being_written_is_looked_at_again() {
    let server = Server::with(vec![stored("queued"), Reply::Plain(503, "", String::new()), stored("completed")]).await;
    let model = responses(&server);
    let told =
        ModelOutput::soon(model.answer(interrupted("How long?", Some("resp_text_01"), vec![of_item("The Seine", "msg_text_01")]))).await;
    assert_eq!(told.text(), TEXT["The Seine".len()..]);
    assert_eq!(server.lines(), ["GET /v1/responses/resp_text_01"; 3]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_lost_is_asked_for_anew_after_what_had_come() {
    let incomplete = plain(200, r#"{"id":"resp_text_01","status":"incomplete","incomplete_details":null,"output":[]}"#);
    let lost = [plain(404, r#"{"error":{"message":"Response with id 'resp_text_01' not found."}}"#), plain(405, "")];
    let lost = lost.into_iter().chain([stored("failed"), stored("cancelled"), stored("something new"), incomplete, stored("in_progress")]);
    for reply in lost {
        let what = format!("{reply:?}");
        let server = Server::with(vec![reply, anew("responses-text")]).await;
        // Being written, and not waited for.
        let model = responses(&server).fetch_for(Duration::ZERO);
        let shown = vec![of_item("Once", "msg_1"), of_item(" upon", "msg_1")];
        let told = ModelOutput::soon(model.answer(interrupted("How long?", Some("resp_text_01"), shown))).await;
        assert_eq!(told.lines(), recorded("responses-text").whole().lines(), "{what}");
        assert_eq!(server.lines(), ["GET /v1/responses/resp_text_01", "POST /v1/responses"]);
        insta::assert_snapshot!("responses-asked-anew", pretty(&server.asked()[1].body));
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_reached_its_limit_while_nobody_read_ends_as_it_would_have() {
    let mut json: Value = serde_json::from_str(STORED).expect("it is JSON");
    json["status"] = "incomplete".into();
    json["incomplete_details"] = json!({ "reason": "max_output_tokens" });
    let told = rest(vec![of_item("The Seine", "msg_text_01")], plain(200, json.to_string())).await;
    assert_eq!((told.text().as_str(), told.end.map(|end| end.reason)), (&TEXT["The Seine".len()..], Ok(FinishReason::Length)));
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_cannot_be_asked_for_the_stored_answer_is_not_asked_for_a_new_one() {
    for (reply, kind) in
        [(plain(401, ""), ModelErrorKind::Denied), (plain(503, ""), ModelErrorKind::Transient), (Reply::Nothing, ModelErrorKind::Transient)]
    {
        let server = Server::with(vec![reply, anew("responses-text")]).await;
        let model = responses(&server).fetch_for(Duration::ZERO);
        let told = ModelOutput::soon(model.answer(interrupted("How long?", Some("resp_text_01"), vec![Part::text("The")]))).await;
        assert_eq!((told.events, told.end.map_err(|error| error.kind())), (vec![], Err(kind)));
        assert_eq!(server.asked().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_id_that_would_change_the_path_is_not_asked_for() {
    for id in ["../files", "a?b=c", "", "a/b", "a b"] {
        let server = Server::with(vec![anew("responses-text")]).await;
        ModelOutput::soon(responses(&server).answer(interrupted("How long?", Some(id), Vec::new()))).await.end.expect("it is asked anew");
        assert_eq!(server.lines(), ["POST /v1/responses"], "{id}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_without_a_store_is_shown_what_had_come_and_asked_to_go_on() {
    let shown = || {
        interrupted(
            "How long?",
            None,
            vec![part(json!({ "type": "reasoning", "text": "Hm." })), Part::text("The Se"), Part::text("ine is")],
        )
    };

    let server = Server::with(vec![anew("completions-text")]).await;
    let told = ModelOutput::soon(OpenAiCompatible::new("m").base_url(server.url()).client(client()).answer(shown())).await;
    assert_eq!(told, recorded("completions-text").whole());
    insta::assert_snapshot!("completions-asked-to-go-on", pretty(&server.asked()[0].body));

    let server = Server::with(vec![anew("completions-text")]).await;
    ModelOutput::soon(OpenAiCompatible::new("m").base_url(server.url()).client(client()).prefill().answer(shown()))
        .await
        .end
        .expect("it ends");
    let messages = server.asked()[0].body["messages"].clone();
    assert_eq!(messages, json!([{ "role": "user", "content": "How long?" }, { "role": "assistant", "content": "The Seine is" }]));

    let server = Server::with(vec![anew("anthropic-text")]).await;
    let told = ModelOutput::soon(Anthropic::new("m").base_url(server.url()).client(client()).go_on("On!").answer(shown())).await;
    assert_eq!(told, recorded("anthropic-text").whole());
    insta::assert_snapshot!("anthropic-asked-to-go-on", pretty(&server.asked()[0].body));
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_which_nothing_but_thoughts_had_come_is_asked_for_as_if_for_the_first_time() {
    let thought = || vec![part(json!({ "type": "reasoning", "text": "Hm." }))];
    for parts in [Vec::new(), thought(), vec![Part::text("")]] {
        for prefill in [false, true] {
            let model = OpenAiCompatible::new("m");
            let model = if prefill { model.prefill() } else { model };
            let body = |request| model.body(&request).expect("it can be sent");
            assert_eq!(body(interrupted("?", None, parts.clone())), body(crate::support::question("?")));
        }
        let body = |request| Anthropic::new("m").body(&request).expect("it can be sent");
        assert_eq!(body(interrupted("?", None, parts.clone())), body(crate::support::question("?")));
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_had_come_as_far_as_a_tool_call_is_not_asked_for_again() {
    let call = part(json!({ "type": "tool-search", "toolCallId": "c1", "state": "input-available", "input": {} }));
    let shown = || interrupted("?", None, vec![Part::text("I look."), call.clone()]);
    let server = Server::with(Vec::new()).await;
    let models: [Box<dyn ChatModel>; 3] = [
        Box::new(responses(&server)),
        Box::new(OpenAiCompatible::new("m").base_url(server.url()).client(client())),
        Box::new(Anthropic::new("m").base_url(server.url()).client(client())),
    ];
    for model in models {
        let told = ModelOutput::soon(model.answer(shown())).await;
        assert_eq!((told.events, told.end.map(|end| end.reason)), (vec![], Ok(FinishReason::ToolCalls)));
    }
    // One that is lost from the store as well.
    let server = Server::with(vec![plain(404, "")]).await;
    let told = ModelOutput::soon(responses(&server).answer(interrupted("?", Some("resp_1"), vec![call.clone()]))).await;
    assert_eq!(told.end.map(|end| end.reason), Ok(FinishReason::ToolCalls));
    assert_eq!(server.asked().len(), 1);
}

fn pretty(json: &Value) -> String {
    serde_json::to_string_pretty(json).expect("it is JSON")
}
