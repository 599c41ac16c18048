//! What goes wrong before there is an answer.
use std::time::Duration;

use forever_chat::message::{Role, UiMessage};
use forever_chat::model::{Anthropic, ChatModel, ModelError, ModelErrorKind, ModelRequest, OpenAiCompatible, OpenAiResponses};
use serde_json::json;

use crate::support::server::{Reply, Server};
use crate::support::{ModelOutput, client, part, question};

const KEY: &str = "a-key-of-no-known-form-0123456789";

fn models(url: &str) -> Vec<Box<dyn ChatModel>> {
    vec![
        Box::new(OpenAiResponses::new("m").api_key(KEY).base_url(url).client(client())),
        Box::new(OpenAiCompatible::new("m").api_key(KEY).base_url(url).client(client())),
        Box::new(Anthropic::new("m").api_key(KEY).base_url(url).client(client())),
    ]
}

/// The errors of all models, each of which gets this reply.
async fn errors(reply: impl Fn() -> Reply) -> Vec<ModelError> {
    let mut errors = Vec::new();
    for at in 0..3 {
        let server = Server::with(vec![reply()]).await;
        let told = ModelOutput::soon(models(server.url())[at].answer(question("?"))).await;
        assert_eq!(told.events, [], "nothing has come");
        errors.push(told.end.expect_err("nothing has come"));
    }
    errors
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_no_success_is_an_error_of_its_kind_with_the_wait_that_is_asked_for() {
    let body = r#"{"error":{"type":"rate_limit_error","message":"Slow down"}}"#;
    for error in errors(|| Reply::Plain(429, "retry-after: 17\r\n", body.into())).await {
        assert_eq!((error.kind(), error.wait()), (ModelErrorKind::RateLimited, Some(Duration::from_secs(17))));
        assert_eq!(error.to_string(), "the provider answered 429: Slow down");
    }
    for error in errors(|| Reply::Plain(529, "retry-after-ms: 1500\r\n", String::new())).await {
        assert_eq!((error.kind(), error.wait()), (ModelErrorKind::Transient, Some(Duration::from_millis(1500))));
    }
    for error in errors(|| Reply::Plain(400, "", r#"{"error":{"message":"prompt is too long: 5 tokens > 4 maximum"}}"#.into())).await {
        assert_eq!((error.kind(), error.wait()), (ModelErrorKind::ContextOverflow, None));
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_the_server_repeats_is_not_in_the_error() {
    let body = format!("{{\"error\":{{\"message\":\"the key {KEY} is wrong\"}}}}");
    for error in errors(|| Reply::Plain(401, "", body.clone())).await {
        assert_eq!(error.kind(), ModelErrorKind::Denied);
        assert_eq!(error.to_string(), "the provider answered 401: the key [key] is wrong");
    }
    for model in [
        format!("{:?}", OpenAiResponses::new("m").api_key(KEY)),
        format!("{:?}", OpenAiCompatible::new("m").api_key(KEY).header("x-other", KEY)),
        format!("{:?}", Anthropic::new("m").api_key(KEY)),
    ] {
        assert!(!model.contains(KEY), "{model}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_without_an_end_is_read_no_further_than_an_error_needs() {
    for error in errors(|| Reply::Unending(500)).await {
        assert_eq!(error.kind(), ModelErrorKind::Transient);
        assert!(error.to_string().chars().count() < 500);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_not_there_or_hangs_up_is_a_passing_error() {
    for error in errors(|| Reply::Nothing).await {
        assert_eq!(error.kind(), ModelErrorKind::Transient, "{error}");
    }
    let nobody = Server::with(Vec::new()).await.url().to_owned();
    // The listener goes with its task, which had nothing to do.
    for model in models(&nobody) {
        let error = ModelOutput::soon(model.answer(question("?"))).await.end.expect_err("nobody listens");
        assert_eq!(error.kind(), ModelErrorKind::Transient);
        assert!(!error.to_string().contains("127.0.0.1"), "an address may hold a key: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_no_stream_is_an_error() {
    let json = "content-type: application/json\r\n";
    for error in errors(|| Reply::Plain(200, json, r#"{"id":"x","choices":[]}"#.into())).await {
        assert_eq!(error.kind(), ModelErrorKind::Invalid);
        assert_eq!(error.to_string(), "the provider's response is not an event stream");
    }
    for error in errors(|| Reply::Plain(200, json, r#"{"error":{"code":429,"message":"busy"}}"#.into())).await {
        assert_eq!(error.kind(), ModelErrorKind::RateLimited);
    }
    for error in errors(|| Reply::Plain(200, "content-type: text/html; charset=utf-8\r\n", "<html>".into())).await {
        assert_eq!(error.kind(), ModelErrorKind::Invalid);
    }
    // One that does not say what it is, and is empty.
    for error in errors(|| Reply::Plain(200, "", String::new())).await {
        assert_eq!(error.kind(), ModelErrorKind::Transient);
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_sent_is_an_error_and_no_panic() {
    let mut wrong = models("this is no address");
    wrong.push(Box::new(OpenAiCompatible::new("m").api_key("two\nlines and more of them").client(client())));
    wrong.push(Box::new(Anthropic::new("m").header("no name", "x").client(client())));
    for model in wrong {
        let error = ModelOutput::soon(model.answer(question("?"))).await.end.expect_err("it cannot be sent");
        assert_eq!(error.kind(), ModelErrorKind::Invalid, "{error}");
        assert!(!error.to_string().contains("lines"), "{error}");
    }
    let file = part(json!({ "type": "file", "mediaType": "application/zip", "filename": "a.zip", "url": "blob:1" }));
    let message = UiMessage { parts: vec![file], ..UiMessage::new("u1", Role::User) };
    let request = ModelRequest { messages: vec![message], ..ModelRequest::default() };
    for model in models("http://127.0.0.1:9/v1") {
        let error = ModelOutput::soon(model.answer(request.clone())).await.end.expect_err("it cannot be sent");
        assert_eq!(error.to_string(), "the file `a.zip` of type `application/zip` cannot be sent to this model");
        assert_eq!(error.kind(), ModelErrorKind::Invalid);
    }
}
