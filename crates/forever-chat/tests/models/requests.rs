//! What is sent.
use forever_chat::message::{Part, Role, UiMessage};
use forever_chat::model::{Anthropic, ChatModel, ModelRequest, OpenAiCompatible, OpenAiResponses, ToolSpec};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::server::{Reply, Server};
use crate::support::{ModelOutput, client, part, question, recorded};

fn message(role: Role, parts: impl IntoIterator<Item = Value>) -> UiMessage {
    UiMessage { parts: parts.into_iter().map(part).collect(), ..UiMessage::new("m", role) }
}

/// A conversation with everything in it.
fn conversation() -> ModelRequest {
    let step = || json!({ "type": "step-start" });
    let tools = vec![
        ToolSpec {
            name: "search".into(),
            description: "Looks things up.".into(),
            parameters: json!({ "type": "object", "properties": { "query": { "type": "string" } }, "required": ["query"] }),
        },
        ToolSpec { name: "now".into(), description: String::new(), parameters: Value::Null },
    ];
    let messages = vec![
        message(
            Role::User,
            [
                json!({ "type": "text", "text": "What is on these?" }),
                json!({ "type": "file", "mediaType": "image/png", "url": "data:image/png;base64,iVBORw0KGgo=" }),
                json!({ "type": "file", "mediaType": "image/jpeg", "url": "https://example.org/a.jpg" }),
                json!({ "type": "file", "mediaType": "application/pdf", "filename": "b.pdf", "url": "data:application/pdf;base64,JVBERi0=" }),
                json!({ "type": "data-note", "data": { "unknown": true } }),
            ],
        ),
        message(
            Role::Assistant,
            [
                step(),
                json!({ "type": "reasoning", "text": "First thought.", "providerMetadata": { "openai": { "itemId": "rs_1" } } }),
                json!({ "type": "reasoning", "text": "Second.", "providerMetadata": { "openai": { "itemId": "rs_1", "reasoningEncryptedContent": "gAAA" } } }),
                json!({ "type": "reasoning", "text": "Signed.", "providerMetadata": { "anthropic": { "signature": "Eq==" } } }),
                json!({ "type": "reasoning", "text": "", "providerMetadata": { "anthropic": { "redactedData": "Em==" } } }),
                json!({ "type": "reasoning", "text": "Cut off, so nobody's." }),
                json!({ "type": "text", "text": "I look three things up.", "state": "done" }),
                json!({ "type": "tool-search", "toolCallId": "call:1", "state": "output-available", "input": { "query": "a" }, "output": { "hits": [1, 2] } }),
                json!({ "type": "dynamic-tool", "toolName": "now", "toolCallId": "call_2", "state": "output-error", "input": null, "errorText": "no clock" }),
                json!({ "type": "tool-search", "toolCallId": "call_3", "state": "output-denied", "input": { "query": "c" }, "approval": { "id": "x", "approved": false, "reason": "too dear" } }),
                json!({ "type": "tool-search", "toolCallId": "call_4", "state": "output-error", "rawInput": "{\"query", "errorText": "the input is no JSON" }),
                json!({ "type": "tool-web", "toolCallId": "call_5", "state": "output-available", "providerExecuted": true, "input": {}, "output": {} }),
                json!({ "type": "source-url", "sourceId": "s", "url": "https://example.org" }),
                step(),
                json!({ "type": "text", "text": "" }),
                json!({ "type": "tool-search", "toolCallId": "call_6", "state": "input-streaming", "input": { "query": "d" } }),
                json!({ "type": "tool-search", "toolCallId": "call_7", "state": "input-available", "input": { "query": "e" } }),
                step(),
                json!({ "type": "text", "text": "There is" }),
                json!({ "type": "text", "text": " " }),
                json!({ "type": "text", "text": "nothing." }),
                step(),
            ],
        ),
        message(Role::User, [json!({ "type": "text", "text": "  " })]),
        message(Role::System, [json!({ "type": "text", "text": "From now on in French." })]),
        message(Role::User, [json!({ "type": "text", "text": "Thanks." }), json!({ "type": "text", "text": "And now?" })]),
        message(
            Role::Assistant,
            [json!({ "type": "tool-now", "toolCallId": "call_8", "state": "output-available", "input": {}, "output": "noon" })],
        ),
    ];
    ModelRequest { system: Some("Be brief.".into()), messages, tools, interrupted: None }
}

#[test]
fn a_conversation_with_everything_in_it_is_sent_like_this() {
    let pretty = |body: Result<Value, _>| serde_json::to_string_pretty(&body.expect("it can be sent")).expect("it is JSON");
    let request = conversation();
    insta::assert_snapshot!("responses-body", pretty(OpenAiResponses::new("gpt-5").body(&request)));
    insta::assert_snapshot!("completions-body", pretty(OpenAiCompatible::new("gpt-4.1").body(&request)));
    insta::assert_snapshot!("anthropic-body", pretty(Anthropic::new("claude-sonnet-4-5").body(&request)));
}

#[tokio::test(start_paused = true)]
async fn a_request_has_the_providers_path_and_key_and_what_the_user_adds() {
    let reply = |name: &str| Reply::Stream(vec![recorded(name).text.into()]);
    let server = Server::with(vec![reply("responses-text"), reply("completions-text"), reply("anthropic-text")]).await;
    let url = format!("{}/", server.url());
    let models: [Box<dyn ChatModel>; 3] = [
        Box::new(
            OpenAiResponses::new("m1")
                .api_key("k1")
                .base_url(&url)
                .client(client())
                .header("openai-project", "p")
                .extra(json!({ "store": false })),
        ),
        Box::new(
            OpenAiCompatible::new("m2").api_key("k2").base_url(&url).client(client()).extra(json!({ "stream_options": null, "seed": 1 })),
        ),
        Box::new(
            Anthropic::new("m3")
                .api_key("k3")
                .base_url(&url)
                .client(client())
                .max_tokens(7)
                .header("anthropic-version", "2030-01-01")
                .instructions("Sing."),
        ),
    ];
    for model in models {
        ModelOutput::soon(model.answer(question("?"))).await.end.expect("it is answered");
    }
    let asked = server.asked();
    assert_eq!(server.lines(), ["POST /v1/responses", "POST /v1/chat/completions", "POST /v1/messages"]);
    for request in &asked {
        assert_eq!(request.header("content-type"), Some("application/json"));
        assert_eq!(request.header("accept"), Some("text/event-stream"));
        assert_eq!(request.body["stream"], true);
    }
    assert_eq!((asked[0].header("authorization"), asked[0].header("openai-project")), (Some("Bearer k1"), Some("p")));
    assert_eq!((&asked[0].body["model"], &asked[0].body["store"]), (&json!("m1"), &json!(false)));
    assert_eq!(asked[1].header("authorization"), Some("Bearer k2"));
    assert_eq!((asked[1].body.get("stream_options"), &asked[1].body["seed"]), (None, &json!(1)));
    assert_eq!((asked[2].header("x-api-key"), asked[2].header("anthropic-version")), (Some("k3"), Some("2030-01-01")));
    assert_eq!((&asked[2].body["max_tokens"], &asked[2].body["system"]), (&json!(7), &json!("Sing.")));
}

#[test]
fn an_answer_in_the_last_place_is_followed_by_the_request_to_go_on() {
    let request = ModelRequest {
        messages: vec![UiMessage::user("u", "Hi"), message(Role::Assistant, [json!({ "type": "text", "text": "Hello" })])],
        ..ModelRequest::default()
    };
    let last = |list: &Value| list.as_array().and_then(|list| list.last()).expect("there are messages")["role"].clone();
    assert_eq!(last(&OpenAiResponses::new("m").body(&request).expect("it can be sent")["input"]), "user");
    assert_eq!(last(&OpenAiCompatible::new("m").body(&request).expect("it can be sent")["messages"]), "user");
    assert_eq!(last(&OpenAiCompatible::new("m").prefill().body(&request).expect("it can be sent")["messages"]), "assistant");
    assert_eq!(last(&Anthropic::new("m").body(&request).expect("it can be sent")["messages"]), "user");
}

/// Ids that were used in the conversation are not given to calls of a server that has none of its own.
#[test]
fn a_call_without_an_id_gets_one_that_is_new() {
    let loose = recorded("completions-loose");
    let taken = |id: &str| json!({ "type": "tool-search", "toolCallId": id, "state": "output-available", "input": {}, "output": 1 });
    let request = ModelRequest { messages: vec![message(Role::Assistant, [taken("call_2"), taken("call_4")])], ..ModelRequest::default() };
    let bytes = futures_util::stream::iter([Ok(loose.text.as_bytes())]);
    let told =
        futures_util::FutureExt::now_or_never(ModelOutput::by(OpenAiCompatible::read(&request, bytes))).expect("the bytes are there");
    let lines = told.lines();
    assert!(lines.contains("call_3") && lines.contains("call_5") && !lines.contains("call_2") && !lines.contains("call_4"), "{lines}");
}

fn any_part() -> impl Strategy<Value = Value> {
    let tool = (0..40_u32, prop::sample::select(vec!["input-streaming", "input-available", "approval-requested", "output-available", "output-error", "output-denied"]))
        .prop_map(|(id, state)| json!({ "type": "tool-search", "toolCallId": format!("call_{id}"), "state": state, "input": { "query": id }, "output": id, "errorText": "e" }));
    prop_oneof![
        3 => prop::sample::select(vec!["", " ", "a", "b\n"]).prop_map(|text| json!({ "type": "text", "text": text })),
        1 => Just(json!({ "type": "reasoning", "text": "r", "providerMetadata": { "anthropic": { "signature": "s" } } })),
        1 => Just(json!({ "type": "step-start" })),
        1 => Just(json!({ "type": "data-x", "data": 1 })),
        3 => tool,
    ]
}

fn any_request() -> impl Strategy<Value = ModelRequest> {
    let role = prop::sample::select(vec![Role::User, Role::Assistant, Role::System]);
    let message = (role, prop::collection::vec(any_part(), 0..6)).prop_map(|(role, parts)| message(role, parts));
    let text = prop::option::of(prop::sample::select(vec!["", "cut of"]));
    (prop::collection::vec(message, 0..6), text).prop_map(|(messages, text)| ModelRequest {
        messages,
        interrupted: text.map(|text| forever_chat::model::Interrupted { response: None, parts: vec![Part::text(text)] }),
        ..ModelRequest::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// What the Messages API insists on, for whatever is in a conversation.
    #[test]
    fn roles_take_turns_and_results_follow_their_calls_first(request in any_request()) {
        let body = Anthropic::new("m").body(&request).expect("it can be sent");
        let messages = body["messages"].as_array().expect("a list");
        for (at, message) in messages.iter().enumerate() {
            prop_assert_eq!(&message["role"], if at % 2 == 0 { "user" } else { "assistant" });
            let blocks = message["content"].as_array().expect("a list");
            prop_assert!(!blocks.is_empty());
            for block in blocks.iter().filter(|block| block["type"] == "text") {
                prop_assert!(!block["text"].as_str().expect("text").trim().is_empty());
            }
            let calls: Vec<&Value> = blocks.iter().filter(|block| block["type"] == "tool_use").map(|block| &block["id"]).collect();
            let after = messages.get(at + 1).map_or(&[][..], |next| next["content"].as_array().expect("a list"));
            let results: Vec<&Value> = after.iter().take_while(|block| block["type"] == "tool_result").map(|block| &block["tool_use_id"]).collect();
            prop_assert_eq!(results.len(), after.iter().filter(|block| block["type"] == "tool_result").count());
            prop_assert_eq!(calls, results);
        }
        prop_assert!(messages.last().is_none_or(|last| last["role"] == "user"));
    }

    #[test]
    fn each_call_has_its_result_behind_it(request in any_request()) {
        let body = OpenAiResponses::new("m").body(&request).expect("it can be sent");
        let ids = |kind: &str| -> Vec<Value> {
            body["input"].as_array().expect("a list").iter().filter(|item| item["type"] == kind).map(|item| item["call_id"].clone()).collect()
        };
        prop_assert_eq!(ids("function_call"), ids("function_call_output"));
        let body = OpenAiCompatible::new("m").body(&request).expect("it can be sent");
        let mut open: Vec<Value> = Vec::new();
        for message in body["messages"].as_array().expect("a list") {
            if message["role"] == "tool" {
                prop_assert_eq!(&open.remove(0), &message["tool_call_id"]);
            } else {
                prop_assert!(open.is_empty());
                open = message["tool_calls"].as_array().into_iter().flatten().map(|call| call["id"].clone()).collect();
                prop_assert!(message["content"].is_string() || !open.is_empty());
            }
        }
        prop_assert!(open.is_empty());
    }
}

/// As it is after an answer was cut off in its text and the model has thought again before it went on.
#[test]
fn thoughts_behind_text_begin_a_message_of_their_own() {
    let thought = |of: Value| json!({ "type": "reasoning", "text": "Hm.", "state": "done", "providerMetadata": { "anthropic": of } });
    let said = json!({ "type": "text", "text": "I sea" });
    let call = json!({ "type": "tool-search", "toolCallId": "c1", "state": "output-available", "input": {}, "output": "found" });
    let messages = |parts: &[&Value]| {
        let mut message = UiMessage::new("a1", Role::Assistant);
        message.parts = parts.iter().map(|part| crate::support::part((*part).clone())).collect();
        let request = ModelRequest { messages: vec![UiMessage::user("u1", "?"), message], ..ModelRequest::default() };
        Anthropic::new("m").go_on("On!").body(&request).expect("it can be sent")["messages"].clone()
    };
    let (signed, cut) = (thought(json!({ "signature": "s" })), thought(json!({})));
    let thinking = json!({ "type": "thinking", "thinking": "Hm.", "signature": "s" });
    let (text, tool) =
        (|words: &str| json!({ "type": "text", "text": words }), json!({ "type": "tool_use", "id": "c1", "name": "search", "input": {} }));
    let result = json!({ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "c1", "content": "found" }] });
    let user = |words: &str| json!({ "role": "user", "content": [text(words)] });
    let model = |blocks: &[&Value]| json!({ "role": "assistant", "content": blocks });
    // A thought that is not whole is not sent, so it is not what a message begins with.
    for begun in [vec![&said], vec![&cut, &said]] {
        let parts: Vec<&Value> = begun.into_iter().chain([&signed, &call]).collect();
        assert_eq!(messages(&parts), json!([user("?"), model(&[&text("I sea")]), user("On!"), model(&[&thinking, &tool]), result]));
    }
    assert_eq!(
        messages(&[&signed, &said, &signed, &call]),
        json!([user("?"), model(&[&thinking, &text("I sea"), &thinking, &tool]), result])
    );
    assert_eq!(messages(&[&said, &call]), json!([user("?"), model(&[&text("I sea"), &tool]), result]));
}
