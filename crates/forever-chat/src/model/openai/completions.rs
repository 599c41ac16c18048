//! Chat completions, the protocol of OpenAI, vLLM, llama.cpp, Ollama, OpenRouter, Groq, DeepSeek,
//! Mistral and many more.
//!
//! `body` is the request, `stream` the response. The provider stores nothing: a model that was cut
//! off gets the answer so far and a request to continue.
mod body;
mod stream;

use futures_core::Stream;
use serde_json::Value;

use crate::model::chat_model::{ChatModel, FinishReason, Finished, ModelError, ModelEvent, ModelRequest, ModelStream};
use crate::model::conversation::{Continue, waits_for_tools};
use crate::model::http::{Endpoint, settings};
use crate::model::openai::BASE_URL;
use crate::model::openai::completions::stream::Completions;
use crate::model::read::{asked, given, read};

/// A model behind an OpenAI-compatible endpoint for chat completions.
///
/// ```
/// use forever::chat::model::OpenAiCompatible;
///
/// let model = OpenAiCompatible::new("qwen3:8b").base_url("http://localhost:11434/v1");
/// ```
///
/// An answer that was cut off is continued by a new request: the answer so far, followed by a user
/// message that asks to continue, or by nothing with [`prefill`](Self::prefill). If the answer had
/// reached a tool call, no request is made: the tools run first.
#[derive(Debug, Clone)]
pub struct OpenAiCompatible {
    endpoint: Endpoint,
    prefill: bool,
}

impl OpenAiCompatible {
    /// The model of this name, at OpenAI's own address by default.
    pub fn new(model: impl Into<String>) -> Self {
        OpenAiCompatible { endpoint: Endpoint::new(model.into(), BASE_URL), prefill: false }
    }

    /// Sets the key, sent as `Authorization: Bearer`.
    pub fn api_key(self, key: &str) -> Self {
        self.header("authorization", &format!("Bearer {key}"))
    }

    settings!();

    /// Declares that the server continues an assistant message in the last place, so that no
    /// message has to ask it to. For some servers [`extra`](Self::extra) has to request this as
    /// well (`"continue_final_message": true, "add_generation_prompt": false` for vLLM, which then
    /// does so with every request).
    pub fn prefill(mut self) -> Self {
        self.prefill = true;
        self
    }

    /// The JSON body of a request, for programs that send it themselves.
    ///
    /// # Errors
    /// Of kind [`Invalid`](super::super::ModelErrorKind::Invalid) if there is a file that cannot be sent.
    pub fn body(&self, request: &ModelRequest) -> Result<Value, ModelError> {
        let continued = if self.prefill { Continue::Prefill } else { Continue::Ask(&self.endpoint.go_on) };
        let body = body::body(&self.endpoint.model, self.endpoint.system(request), request, continued)?;
        Ok(self.endpoint.with_extra(body))
    }

    /// Reads an answer from the bytes of a response, for programs that send requests themselves.
    pub fn read<S, B>(request: &ModelRequest, bytes: S) -> ModelStream
    where
        S: Stream<Item = Result<B, ModelError>> + Send + 'static,
        B: AsRef<[u8]>,
    {
        read(bytes, Completions::after(request))
    }
}

impl ChatModel for OpenAiCompatible {
    fn answer(&self, request: ModelRequest) -> ModelStream {
        if waits_for_tools(&request) {
            return given(vec![ModelEvent::Finished(Finished::because(FinishReason::ToolCalls))]);
        }
        let model = self.clone();
        asked(async move {
            let body = model.body(&request)?;
            let response = model.endpoint.ask("chat/completions", &body).await?;
            Ok(Self::read(&request, model.endpoint.bytes(response)))
        })
    }
}
