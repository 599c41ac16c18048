//! OpenAI's Responses API, which stores answers: one that was cut off is fetched, not requested
//! again.
//!
//! `body` is the request, `stream` the response, `stored` the rest of a stored answer that was not
//! shown yet.
mod body;
mod stored;
mod stream;

use std::time::Duration;

use futures_core::Stream;
use futures_util::stream::unfold;
use futures_util::{StreamExt, TryStreamExt};
use serde_json::Value;

use crate::model::chat_model::{ChatModel, FinishReason, Finished, ModelError, ModelEvent, ModelRequest, ModelStream};
use crate::model::conversation::waits_for_tools;
use crate::model::http::{Endpoint, Refused, settings};
use crate::model::openai::BASE_URL;
use crate::model::openai::responses::stored::Stored;
use crate::model::openai::responses::stream::Responses;
use crate::model::read::{asked, given, read};

/// Maximum time of one request for a stored answer.
const LOOK: Duration = Duration::from_secs(30);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A model behind OpenAI's Responses API.
///
/// ```
/// use forever::chat::model::OpenAiResponses;
/// use serde_json::json;
///
/// let model = OpenAiResponses::new("gpt-5")
///     .api_key("the key")
///     .extra(json!({ "reasoning": { "effort": "low", "summary": "auto" } }));
/// ```
///
/// # An answer that was cut off
/// Answers are stored (`"store": true`), and their id is known from the first event. If an answer
/// was cut off, the stored one is fetched. When it is complete, the part that was not shown yet
/// follows, matched by the ids of its pieces. When it is still being written, it is fetched again,
/// for at most [`fetch_for`](Self::fetch_for). If there is none, or it has failed, the model is
/// called again: the answer so far is followed by a user message that asks to continue. If the
/// answer had reached a tool call, no new request is made: the tools run first.
///
/// Text that was shown and is not the start of the stored answer cannot be taken back; the output
/// continues after the part that both share.
///
/// Reasoning is sent back only with `"include": ["reasoning.encrypted_content"]` in
/// [`extra`](Self::extra). Use that also for models whose answers must not be stored
/// (`"store": false`).
#[derive(Debug, Clone)]
pub struct OpenAiResponses {
    endpoint: Endpoint,
    fetch_for: Duration,
}

impl OpenAiResponses {
    /// The model of this name, at OpenAI's own address by default.
    pub fn new(model: impl Into<String>) -> Self {
        OpenAiResponses { endpoint: Endpoint::new(model.into(), BASE_URL), fetch_for: Duration::from_secs(60) }
    }

    /// Sets the key, sent as `Authorization: Bearer`.
    pub fn api_key(self, key: &str) -> Self {
        self.header("authorization", &format!("Bearer {key}"))
    }

    settings!();

    /// Sets how long to wait for a stored answer that is still being written, before the model is
    /// called again. Defaults to a minute. Only the pauses between requests count.
    pub fn fetch_for(mut self, wait: Duration) -> Self {
        self.fetch_for = wait;
        self
    }

    /// The JSON body of a request, for programs that send it themselves.
    ///
    /// # Errors
    /// Of kind [`Invalid`](super::super::ModelErrorKind::Invalid) if there is a file that cannot be sent.
    pub fn body(&self, request: &ModelRequest) -> Result<Value, ModelError> {
        let body = body::body(&self.endpoint.model, self.endpoint.system(request), request, &self.endpoint.go_on)?;
        Ok(self.endpoint.with_extra(body))
    }

    /// Reads an answer from the bytes of a response, for programs that send requests themselves.
    pub fn read<S, B>(bytes: S) -> ModelStream
    where
        S: Stream<Item = Result<B, ModelError>> + Send + 'static,
        B: AsRef<[u8]>,
    {
        read(bytes, Responses::default())
    }

    async fn ask(self, request: ModelRequest) -> Result<ModelStream, ModelError> {
        if waits_for_tools(&request) {
            return Ok(given(vec![ModelEvent::Finished(Finished::because(FinishReason::ToolCalls))]));
        }
        let body = self.body(&request)?;
        let response = self.endpoint.ask("responses", &body).await?;
        Ok(Self::read(self.endpoint.bytes(response)))
    }
}

/// Polls a stored answer until it is complete.
struct Looks {
    model: OpenAiResponses,
    request: ModelRequest,
    path: String,
    /// Pause before the next request.
    next: Duration,
    pause: Duration,
    /// Time left for pauses.
    left: Duration,
}

impl Looks {
    /// Returns the rest of the answer, and the next poll unless that is all of it.
    ///
    /// # Errors
    /// If the provider cannot be reached all that time, or refuses access: calling it again would
    /// fail as well.
    async fn look(mut self) -> (Result<ModelStream, ModelError>, Option<Self>) {
        tokio::time::sleep(self.next).await;
        self.left -= self.next;
        let shown = self.request.interrupted.as_ref().map_or(&[][..], |interrupted| &interrupted.parts);
        let mut unreached = None;
        match self.model.endpoint.get(&self.path, LOOK).await {
            Ok(json) => match Stored::of(&json) {
                Stored::Complete(end) => return (Ok(given(stored::rest(&json, end, shown))), None),
                Stored::Lost => return (Ok(self.anew()), None),
                Stored::Written => {}
            },
            Err(Refused { error, .. }) if error.kind().is_transient() => unreached = Some(error),
            // The provider has no such answer, or stores none.
            Err(Refused { status: Some(status), .. }) if !matches!(status, 401 | 403) => return (Ok(self.anew()), None),
            Err(refused) => return (Err(refused.error), None),
        }
        if self.left.is_zero() {
            return (unreached.map_or_else(|| Ok(self.anew()), Err), None);
        }
        let asked_for = unreached.as_ref().and_then(ModelError::wait).unwrap_or_default();
        self.next = self.pause.max(asked_for).min(self.left);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        (Ok(given(vec![ModelEvent::Waiting(self.next + LOOK)])), Some(self))
    }

    fn anew(self) -> ModelStream {
        Box::pin(given(vec![ModelEvent::Waiting(Duration::ZERO)]).chain(asked(self.model.ask(self.request))))
    }
}

/// Whether an id is safe in a path. It comes from a provider, and back from a database.
fn is_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= 256 && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

impl ChatModel for OpenAiResponses {
    fn answer(&self, request: ModelRequest) -> ModelStream {
        let id = request.interrupted.as_ref().and_then(|interrupted| interrupted.response.as_deref()).filter(|id| is_id(id));
        let Some(path) = id.map(|id| format!("responses/{id}")) else { return asked(self.clone().ask(request)) };
        let model = self.clone();
        let looks = Looks { left: model.fetch_for, model, request, path, next: Duration::ZERO, pause: FIRST_PAUSE };
        let all = unfold(Some(looks), |looks| async move { Some(looks?.look().await) });
        Box::pin(given(vec![ModelEvent::Waiting(LOOK)]).chain(all.try_flatten()))
    }
}
