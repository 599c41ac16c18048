//! The frames of the WebSocket, in the JSON of the client packages.
//! docs/guide/src/reference/wire.md lists them.
use std::borrow::Cow;

use forever_chat::message::UiMessage;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::auth::RequestKind;

/// Frame from a client.
#[derive(Debug, Deserialize)]
#[serde(tag = "type")]
pub(super) enum FromClient {
    #[serde(rename = "cf_agent_use_chat_request")]
    Ask { id: String, init: Init },
    #[serde(rename = "cf_agent_chat_request_cancel")]
    Cancel { id: String },
    #[serde(rename = "cf_agent_chat_clear")]
    Clear,
    #[serde(rename = "cf_agent_chat_messages")]
    Messages { messages: Vec<UiMessage> },
    #[serde(rename = "cf_agent_stream_resume_request", rename_all = "camelCase")]
    ResumeRequest { probe_id: Option<String> },
    #[serde(rename = "cf_agent_stream_resume_ack")]
    ResumeAck {
        id: String,
        /// Number of the first chunk to send; an extension, which other clients leave out.
        from: Option<u64>,
    },
    #[serde(rename = "cf_agent_tool_result", rename_all = "camelCase")]
    ToolResult {
        tool_call_id: String,
        #[serde(default)]
        output: Value,
        state: Option<String>,
        error_text: Option<String>,
        #[serde(default)]
        auto_continue: bool,
    },
    #[serde(rename = "cf_agent_tool_approval", rename_all = "camelCase")]
    ToolApproval {
        tool_call_id: String,
        approved: bool,
        /// The input that was shown; an extension, which other clients leave out.
        #[serde(default, deserialize_with = "some")]
        input: Option<Value>,
        #[serde(default)]
        auto_continue: bool,
    },
    #[serde(rename = "cf_agent_state")]
    State { state: Value },
    #[serde(rename = "rpc")]
    Call {
        id: String,
        method: String,
        #[serde(default)]
        args: Vec<Value>,
    },
    #[serde(other)]
    Unknown,
}

impl FromClient {
    /// Kind of the change that the frame requests; `None` for a frame that changes nothing.
    pub(super) fn changes(&self) -> Option<RequestKind> {
        Some(match self {
            FromClient::Ask { .. } => RequestKind::Ask,
            FromClient::Cancel { .. } => RequestKind::Cancel,
            FromClient::Clear => RequestKind::Clear,
            FromClient::Messages { .. } => RequestKind::ReplaceMessages,
            FromClient::ToolResult { .. } => RequestKind::ToolResult,
            FromClient::ToolApproval { .. } => RequestKind::Approve,
            FromClient::State { .. } => RequestKind::SetState,
            FromClient::Call { method, .. } => RequestKind::Call(method.clone()),
            FromClient::ResumeRequest { .. } | FromClient::ResumeAck { .. } | FromClient::Unknown => return None,
        })
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Init {
    pub(super) body: Option<String>,
}

/// The readable part of a frame that is none of those above.
#[derive(Debug, Deserialize)]
pub(super) struct Malformed<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow, rename = "toolCallId")]
    tool_call_id: Option<&'a RawValue>,
}

impl<'a> Malformed<'a> {
    pub(super) fn read(frame: &'a str) -> Option<Self> {
        serde_json::from_str(frame).ok()
    }

    pub(super) fn kind(&self) -> Option<String> {
        text(self.kind)
    }

    pub(super) fn id(&self) -> Option<String> {
        text(self.id)
    }

    pub(super) fn tool_call_id(&self) -> Option<String> {
        text(self.tool_call_id)
    }
}

fn text(raw: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(raw?.get()).ok()
}

/// A field that is present, also with the value `null`.
fn some<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// The JSON body of a request.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Body {
    #[serde(default)]
    pub(super) messages: Vec<UiMessage>,
    pub(super) trigger: Option<String>,
    #[serde(default)]
    pub(super) client_tools: Vec<forever_chat::model::ToolSpec>,
    /// Other fields of the program.
    #[serde(flatten)]
    pub(super) other: serde_json::Map<String, Value>,
}

/// Frame to a client.
#[derive(Debug, Serialize)]
#[serde(tag = "type")]
pub(super) enum ToClient<'a> {
    #[serde(rename = "cf_agent_identity", rename_all = "camelCase")]
    Identity { name: &'a str, agent: &'a str, state_follows: bool },
    #[serde(rename = "cf_agent_state")]
    State { state: &'a RawValue },
    #[serde(rename = "cf_agent_state_error")]
    StateError { error: &'a str },
    #[serde(rename = "cf_agent_use_chat_response")]
    Response(Response<'a>),
    #[serde(rename = "cf_agent_chat_messages")]
    Messages {
        messages: &'a RawValue,
        #[serde(skip_serializing_if = "is_false")]
        connect: bool,
    },
    #[serde(rename = "cf_agent_message_updated")]
    Updated { message: &'a RawValue },
    #[serde(rename = "cf_agent_chat_clear")]
    Clear,
    #[serde(rename = "cf_agent_stream_resuming", rename_all = "camelCase")]
    Resuming {
        id: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        probe_id: Option<&'a str>,
    },
    #[serde(rename = "cf_agent_stream_resume_none", rename_all = "camelCase")]
    ResumeNone {
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        probe_id: Option<&'a str>,
    },
    #[serde(rename = "cf_agent_stream_pending", rename_all = "camelCase")]
    Pending {
        id: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        probe_id: Option<&'a str>,
    },
    #[serde(rename = "forever_refused", rename_all = "camelCase")]
    Refused {
        of: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        tool_call_id: Option<&'a str>,
        error: &'a str,
    },
    #[serde(rename = "forever_truncated")]
    Truncated { messages: usize, sent: usize },
    #[serde(rename = "cf_agent_chat_recovering")]
    Recovering {
        recovering: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<&'a str>,
        #[serde(skip_serializing_if = "is_false")]
        connect: bool,
    },
    #[serde(rename = "rpc")]
    Called {
        id: &'a str,
        success: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<&'a Value>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        done: Option<bool>,
    },
}

/// A piece of an answer, or its end.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "it is the clients' frame")]
pub(super) struct Response<'a> {
    pub(super) id: &'a str,
    pub(super) body: Cow<'a, str>,
    pub(super) done: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) error: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) continuation: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) replay: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) replay_complete: bool,
    /// Whether it is sent at the connect, about a turn whose end the client may have missed.
    #[serde(skip_serializing_if = "is_false")]
    pub(super) connect: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) seq: Option<u64>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) message_ids: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) outcome: Option<&'a str>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde asks")]
fn is_false(value: &bool) -> bool {
    !value
}
