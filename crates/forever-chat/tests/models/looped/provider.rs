//! A provider that answers by its transcripts: a question with two calls, and their results with text. One answer can be cut off.
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::sync::oneshot;

use crate::support::server::{Reply, Request, Server};
use crate::support::{Provider, Recorded, recorded};

/// Which answer is cut off, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut {
    /// 0 for the one with the calls, 1 for the one with the text.
    pub(crate) round: usize,
    /// After how many events.
    pub(crate) after: usize,
    pub(crate) how: How,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// The connection is closed.
    Lost,
    /// Nothing comes any more.
    Silent,
}

/// The transcripts of a provider: with calls, and with text.
pub(crate) fn rounds(by: Provider) -> [Recorded; 2] {
    let name = match by {
        Provider::Responses => "responses",
        Provider::Completions => "completions",
        Provider::Anthropic => "anthropic",
    };
    [recorded(&format!("{name}-tools")), recorded(&format!("{name}-text"))]
}

/// A provider that cuts off at most one answer.
pub(crate) async fn provider(by: Provider, cut: Option<Cut>) -> Server {
    let cut = Arc::new(Mutex::new(cut));
    Server::by(move |request| Some(reply(by, request, &cut))).await
}

fn reply(by: Provider, request: &Request, cut: &Mutex<Option<Cut>>) -> Reply {
    if let Some(id) = request.line.strip_prefix("GET /v1/responses/") {
        return stored(id);
    }
    let round = usize::from(has_results(by, &request.body));
    let events = events(&rounds(by)[round]);
    let mut cut = cut.lock().expect("nobody panics with it");
    match cut.take_if(|cut| cut.round == round) {
        None => Reply::Stream(events),
        Some(Cut { after, how: How::Lost, .. }) => Reply::Cut(events[..after].to_vec()),
        Some(Cut { after, how: How::Silent, .. }) => Reply::Silent(events[..after].to_vec(), oneshot::channel().0),
    }
}

/// What the provider keeps under an id.
fn stored(id: &str) -> Reply {
    let body = match id {
        "resp_tools_01" => include_str!("../recorded/responses-tools.stored.json"),
        "resp_text_01" => include_str!("../recorded/responses-text.stored.json"),
        other => panic!("nothing is stored as {other}"),
    };
    Reply::Plain(200, "content-type: application/json\r\n", body.to_owned())
}

/// The events of a transcript, each a write.
pub(crate) fn events(recorded: &Recorded) -> Vec<Vec<u8>> {
    recorded.text.split_inclusive("\n\n").map(|event| event.as_bytes().to_vec()).collect()
}

fn has_results(by: Provider, body: &Value) -> bool {
    let list = |field: &str| body[field].as_array().into_iter().flatten().cloned().collect::<Vec<_>>();
    match by {
        Provider::Responses => list("input").iter().any(|item| item["type"] == "function_call_output"),
        Provider::Completions => list("messages").iter().any(|message| message["role"] == "tool"),
        Provider::Anthropic => list("messages").iter().any(|message| message["content"][0]["type"] == "tool_result"),
    }
}
