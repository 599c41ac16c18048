//! Chat completions, as spoken by OpenAI, vLLM, llama.cpp, Ollama, OpenRouter, Groq, DeepSeek, Mistral and many more.
//!
//! `body` is what is sent, `stream` what comes back. Nothing is kept by the provider: a model that was cut off is shown what had come and asked to
//! go on.
mod body;
mod stream;

use futures_core::Stream;
use serde_json::Value;

use crate::chat::model::chat_model::{ChatModel, FinishReason, Finished, ModelError, ModelEvent, ModelRequest, ModelStream};
use crate::chat::model::http::{Endpoint, settings};
use crate::chat::model::openai::BASE_URL;
use crate::chat::model::openai::completions::stream::Completions;
use crate::chat::model::read::{asked, given, read};
use crate::chat::model::said::{Continue, waits_for_tools};

/// A model behind an endpoint for chat completions in the manner of OpenAI.
///
/// ```
/// use forever_runtime::chat::model::OpenAiCompatible;
///
/// let model = OpenAiCompatible::new("qwen3:8b").base_url("http://localhost:11434/v1");
/// ```
///
/// An answer that was cut off goes on with a request of its own: what had come of it is followed by the words of a person who asks to go on, or by
/// nothing with [`prefill`](Self::prefill). If it had come as far as a tool call, no request is made: the tools come first.
#[derive(Debug, Clone)]
pub struct OpenAiCompatible {
    endpoint: Endpoint,
    prefill: bool,
}

impl OpenAiCompatible {
    /// The model of this name, at OpenAI's own address unless another is given.
    pub fn new(model: impl Into<String>) -> Self {
        OpenAiCompatible { endpoint: Endpoint::new(model.into(), BASE_URL), prefill: false }
    }

    /// The key, sent as `Authorization: Bearer`.
    pub fn api_key(self, key: &str) -> Self {
        self.header("authorization", &format!("Bearer {key}"))
    }

    settings!();

    /// The server continues an assistant message that is the last one, so it needs no words to go on. For some servers
    /// [`extra`](Self::extra) has to say so as well (`"continue_final_message": true, "add_generation_prompt": false` for vLLM, which then
    /// does so with every request).
    pub fn prefill(mut self) -> Self {
        self.prefill = true;
        self
    }

    /// The JSON that is sent, for those who send it themselves.
    ///
    /// # Errors
    /// Of kind [`Invalid`](super::super::ModelErrorKind::Invalid) if there is a file that cannot be sent.
    pub fn body(&self, request: &ModelRequest) -> Result<Value, ModelError> {
        let continued = if self.prefill { Continue::Prefill } else { Continue::Ask(&self.endpoint.go_on) };
        let body = body::body(&self.endpoint.model, self.endpoint.system(request), request, continued)?;
        Ok(self.endpoint.with_extra(body))
    }

    /// Reads an answer from the bytes that came back, for those who send requests themselves.
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
