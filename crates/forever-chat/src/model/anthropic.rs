//! Anthropic's Messages API.
//!
//! `body` is the request, `stream` the response. The provider stores nothing: a model that was cut
//! off gets the answer so far and a request to continue, since newer models do not continue an
//! assistant message in the last place.
mod body;
mod stream;

use futures_core::Stream;
use serde_json::Value;

use crate::model::anthropic::stream::Messages;
use crate::model::chat_model::{ChatModel, FinishReason, Finished, ModelError, ModelEvent, ModelRequest, ModelStream};
use crate::model::conversation::waits_for_tools;
use crate::model::http::{Endpoint, settings};
use crate::model::read::{asked, given, read};

/// A model behind Anthropic's Messages API.
///
/// ```
/// use forever::chat::model::Anthropic;
/// use serde_json::json;
///
/// let model = Anthropic::new("claude-sonnet-4-5")
///     .api_key("the key")
///     .max_tokens(32_000)
///     .extra(json!({ "thinking": { "type": "enabled", "budget_tokens": 8_000 } }));
/// ```
///
/// An answer that was cut off is continued by a new request: the answer so far, followed by a user
/// message that asks to continue. If the answer had reached a tool call, no request is made: the
/// tools run first.
#[derive(Debug, Clone)]
pub struct Anthropic {
    endpoint: Endpoint,
    max_tokens: u32,
}

impl Anthropic {
    /// The model of this name, at Anthropic's own address by default.
    pub fn new(model: impl Into<String>) -> Self {
        let mut endpoint = Endpoint::new(model.into(), "https://api.anthropic.com/v1");
        endpoint.set_header("anthropic-version", "2023-06-01");
        Anthropic { endpoint, max_tokens: 8192 }
    }

    /// Sets the key, sent as `x-api-key`.
    pub fn api_key(self, key: &str) -> Self {
        self.header("x-api-key", key)
    }

    /// Sets the maximum number of tokens of one answer, thinking included. Defaults to 8192.
    pub fn max_tokens(mut self, tokens: u32) -> Self {
        self.max_tokens = tokens;
        self
    }

    settings!();

    /// The JSON body of a request, for programs that send it themselves.
    ///
    /// # Errors
    /// Of kind [`Invalid`](super::ModelErrorKind::Invalid) if there is a file that cannot be sent.
    pub fn body(&self, request: &ModelRequest) -> Result<Value, ModelError> {
        let system = self.endpoint.system(request);
        let body = body::body(&self.endpoint.model, self.max_tokens, system, request, &self.endpoint.go_on)?;
        Ok(self.endpoint.with_extra(body))
    }

    /// Reads an answer from the bytes of a response, for programs that send requests themselves.
    pub fn read<S, B>(bytes: S) -> ModelStream
    where
        S: Stream<Item = Result<B, ModelError>> + Send + 'static,
        B: AsRef<[u8]>,
    {
        read(bytes, Messages::default())
    }
}

impl ChatModel for Anthropic {
    fn answer(&self, request: ModelRequest) -> ModelStream {
        if waits_for_tools(&request) {
            return given(vec![ModelEvent::Finished(Finished::because(FinishReason::ToolCalls))]);
        }
        let model = self.clone();
        asked(async move {
            let body = model.body(&request)?;
            let response = model.endpoint.ask("messages", &body).await?;
            Ok(Self::read(model.endpoint.bytes(response)))
        })
    }
}
