//! What the tests have in common: transcripts, collecting an answer, and a server.
pub(crate) mod chunks;
pub(crate) mod server;

use forever_chat::message::{Part, UiMessage};
use forever_chat::model::{
    Anthropic, Finished, Interrupted, ModelError, ModelEvent, ModelRequest, ModelStream, OpenAiCompatible, OpenAiResponses, reqwest,
};
use forever_testkit::waiting::soon;
use futures_util::{FutureExt, StreamExt, stream};
use serde_json::Value;

/// A recorded answer, and whose it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recorded {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
    pub(crate) by: Provider,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Provider {
    Responses,
    Completions,
    Anthropic,
}

macro_rules! recorded {
    ($($by:ident $name:literal,)*) => {
        pub(crate) const RECORDED: &[Recorded] =
            &[$(Recorded { name: $name, text: include_str!(concat!("../recorded/", $name, ".sse")), by: Provider::$by }),*];
    };
}

recorded! {
    Responses "responses-text",
    Responses "responses-tools",
    Responses "responses-web-search",
    Responses "responses-incomplete",
    Responses "responses-failed",
    Responses "responses-error",
    Completions "completions-text",
    Completions "completions-tools",
    Completions "completions-reasoning",
    Completions "completions-loose",
    Completions "completions-error",
    Anthropic "anthropic-text",
    Anthropic "anthropic-tools",
    Anthropic "anthropic-web-search",
    Anthropic "anthropic-max-tokens",
    Anthropic "anthropic-overloaded",
}

pub(crate) fn recorded(name: &str) -> Recorded {
    *RECORDED.iter().find(|recorded| recorded.name == name).unwrap_or_else(|| panic!("there is no transcript `{name}`"))
}

impl Recorded {
    /// Reads bytes that come in these pieces, and then `end`.
    pub(crate) fn read<'a>(&self, pieces: impl IntoIterator<Item = &'a [u8]>, end: Option<ModelError>) -> ModelOutput {
        let reads: Vec<Result<Vec<u8>, ModelError>> = pieces.into_iter().map(|piece| Ok(piece.to_vec())).chain(end.map(Err)).collect();
        let bytes = stream::iter(reads);
        ModelOutput::now(match self.by {
            Provider::Responses => OpenAiResponses::read(bytes),
            Provider::Completions => OpenAiCompatible::read(&ModelRequest::default(), bytes),
            Provider::Anthropic => Anthropic::read(bytes),
        })
    }

    pub(crate) fn whole(&self) -> ModelOutput {
        self.read([self.text.as_bytes()], None)
    }
}

/// All that a model has told.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ModelOutput {
    /// What came before the end.
    pub(crate) events: Vec<ModelEvent>,
    pub(crate) end: Result<Finished, ModelError>,
}

impl ModelOutput {
    /// Of a stream that does not wait for anything.
    fn now(stream: ModelStream) -> Self {
        ModelOutput::by(stream).now_or_never().expect("the bytes are there")
    }

    /// # Panics
    /// If the answer does not end as it should: with one end, last. Waits a minute at most, so that a stream without an end is no endless test.
    pub(crate) async fn by(stream: ModelStream) -> Self {
        let mut all: Vec<Result<ModelEvent, ModelError>> = stream.collect().await;
        // Nothing is told by it.
        all.retain(|event| !matches!(event, Ok(ModelEvent::Waiting(_))));
        let end = match all.pop().expect("an answer has an end") {
            Ok(ModelEvent::Finished(finished)) => Ok(finished),
            Ok(other) => panic!("an answer ends with {other:?}"),
            Err(error) => Err(error),
        };
        let events: Vec<ModelEvent> = all.into_iter().collect::<Result<_, _>>().expect("an error is the last");
        assert!(!events.iter().any(|event| matches!(event, ModelEvent::Finished(_))), "an answer has one end");
        ModelOutput { events, end }
    }

    /// With a limit, for answers that come by a socket.
    pub(crate) async fn soon(stream: ModelStream) -> Self {
        soon("the end of the answer", ModelOutput::by(stream)).await
    }

    /// One line for each event.
    pub(crate) fn lines(&self) -> String {
        let mut lines: Vec<String> = self
            .events
            .iter()
            .map(|event| match event {
                ModelEvent::Response(id) => format!("response {id}"),
                ModelEvent::Chunk(chunk) => chunk.to_text(),
                other => panic!("{other:?} is the end"),
            })
            .collect();
        lines.push(match &self.end {
            Ok(end) => format!("finished: {:?}, {:?} tokens read, {:?} written", end.reason, end.input_tokens, end.output_tokens),
            Err(error) => format!("error: {:?}, {error}", error.kind()),
        });
        lines.join("\n")
    }

    /// The text that was told.
    pub(crate) fn text(&self) -> String {
        let text = |event: &ModelEvent| match event {
            ModelEvent::Chunk(chunk) if chunk.kind() == "text-delta" => Some(chunk.get("delta")?.as_str()?.to_owned()),
            _ => None,
        };
        self.events.iter().filter_map(text).collect()
    }
}

/// A client for a server on this machine, whatever proxy is set.
pub(crate) fn client() -> reqwest::Client {
    // Fails when there is a provider already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().expect("a client can be made")
}

/// What the user asks.
pub(crate) fn question(text: &str) -> ModelRequest {
    ModelRequest { messages: vec![UiMessage::user("u1", text)], ..ModelRequest::default() }
}

/// The same, answered as far as these parts.
pub(crate) fn interrupted(text: &str, response: Option<&str>, parts: Vec<Part>) -> ModelRequest {
    let interrupted = Interrupted { response: response.map(str::to_owned), parts };
    ModelRequest { interrupted: Some(interrupted), ..question(text) }
}

pub(crate) fn part(json: Value) -> Part {
    Part::from_json(json).expect("it is a part")
}
