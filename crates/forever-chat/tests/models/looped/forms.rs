//! What a provider would refuse of a request.
use std::collections::HashSet;

use serde_json::Value;

use crate::support::Provider;
use crate::support::server::Request;

/// # Panics
/// If one of the requests would be refused.
pub(crate) fn check_all(by: Provider, requests: &[Request]) {
    for request in requests.iter().filter(|request| request.line.starts_with("POST")) {
        match by {
            Provider::Responses => responses(&request.body),
            Provider::Completions => completions(&request.body),
            Provider::Anthropic => anthropic(&request.body),
        }
    }
}

/// Each call has one result behind it, and each result its call.
fn responses(body: &Value) {
    let (mut open, mut known) = (HashSet::new(), HashSet::new());
    for item in list(&body["input"]) {
        let call = item["call_id"].as_str().unwrap_or_default();
        match item["type"].as_str() {
            Some("function_call") => assert!(known.insert(call) && open.insert(call), "{call} is called twice: {body:#}"),
            Some("function_call_output") => assert!(open.remove(call), "{call} has a result and no call: {body:#}"),
            Some("reasoning") => assert!(item["encrypted_content"].is_string(), "{body:#}"),
            // Results need not follow their calls at once.
            _ => {}
        }
    }
    assert!(open.is_empty(), "a call has no result: {body:#}");
}

/// The results of calls follow the message that makes them, and calls are named once.
fn completions(body: &Value) {
    let (mut open, mut known) = (HashSet::new(), HashSet::new());
    for message in list(&body["messages"]) {
        if message["role"] == "tool" {
            let call = message["tool_call_id"].as_str().unwrap_or_default();
            assert!(open.remove(call), "{call} has a result and no call: {body:#}");
            continue;
        }
        assert!(open.is_empty(), "a call has no result: {body:#}");
        for call in list(&message["tool_calls"]) {
            let id = call["id"].as_str().unwrap_or_default();
            assert!(known.insert(id) && open.insert(id), "{id} is called twice: {body:#}");
        }
    }
    assert!(open.is_empty(), "a call has no result: {body:#}");
}

/// Roles take turns, the message after calls begins with their results, thoughts are whole, and where there are thoughts they come first.
fn anthropic(body: &Value) {
    let (mut before, mut known) = ("assistant", HashSet::new());
    let mut open: Vec<&str> = Vec::new();
    for message in list(&body["messages"]) {
        let role = message["role"].as_str().unwrap_or_default();
        assert_ne!(role, before, "roles do not take turns: {body:#}");
        before = role;
        let blocks: Vec<&Value> = list(&message["content"]).collect();
        let kind = |block: &Value| block["type"].as_str().unwrap_or_default().to_owned();
        let results: Vec<&str> =
            blocks.iter().take_while(|block| kind(block) == "tool_result").filter_map(|block| block["tool_use_id"].as_str()).collect();
        assert_eq!(results, open, "results do not follow their calls: {body:#}");
        assert!(blocks.iter().skip(results.len()).all(|block| kind(block) != "tool_result"), "a result stands behind something: {body:#}");
        open = blocks.iter().filter(|block| kind(block) == "tool_use").filter_map(|block| block["id"].as_str()).collect();
        assert!(open.iter().all(|call| known.insert(*call)), "a call is made twice: {body:#}");
        let is_thought = |block: &&&Value| kind(block).ends_with("thinking");
        if blocks.iter().any(|block| is_thought(&block)) {
            assert!(blocks.first().is_some_and(|block| is_thought(&block)), "thoughts do not come first: {body:#}");
        }
        for block in blocks {
            match kind(block).as_str() {
                "text" => assert!(!block["text"].as_str().unwrap_or_default().trim().is_empty(), "text is empty: {body:#}"),
                "thinking" => {
                    assert_eq!(block["thinking"], "Both heights are needed.", "a thought is not what was signed: {body:#}");
                    assert_eq!(block["signature"], "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgyzdXg", "{body:#}");
                }
                _ => {}
            }
        }
    }
    assert!(open.is_empty(), "a call has no result: {body:#}");
    assert_eq!(before, "user", "the model speaks last: {body:#}");
}

fn list(json: &Value) -> impl Iterator<Item = &Value> {
    json.as_array().into_iter().flatten()
}
