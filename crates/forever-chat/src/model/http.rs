//! HTTP requests to providers: the common part of the adaptors for requests.
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_core::Stream;
use futures_util::stream;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, RequestBuilder, Response};
use rustls::crypto::CryptoProvider;
use rustls_platform_verifier::BuilderVerifierExt;
use serde_json::Value;

use crate::model::chat_model::{ModelError, ModelErrorKind, ModelRequest};
use crate::model::classify::{classify, shortened};
use crate::model::sse::MAX_EVENT;

/// Maximum time to connect to a provider.
const CONNECT: Duration = Duration::from_secs(15);
/// Maximum time without data: models that think may be silent for minutes. To give up sooner, drop
/// the stream.
const SILENCE: Duration = Duration::from_secs(600);
/// Maximum number of bytes that are read of the body of an error.
const MAX_ERROR_BODY: usize = 64 << 10;

/// User message that asks a model that was cut off to continue.
const GO_ON: &str = "Your last answer was cut off because the connection was lost. Go on exactly where it stopped: do not repeat anything, do not \
                     begin again, and do not mention the interruption.";

/// Address of a provider, and the settings of requests to it.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    pub(super) model: String,
    pub(super) base_url: String,
    headers: HeaderMap,
    /// Secrets, which must not be in any error.
    secrets: Secrets,
    /// Error about a header that cannot be sent.
    wrong: Option<String>,
    extra: Value,
    pub(super) instructions: Option<String>,
    pub(super) go_on: String,
    client: Arc<OnceLock<Client>>,
}

#[derive(Clone, Default)]
struct Secrets(Vec<String>);

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} secrets", self.0.len())
    }
}

impl Endpoint {
    pub(super) fn new(model: String, base_url: &str) -> Self {
        Endpoint {
            model,
            base_url: base_url.to_owned(),
            headers: HeaderMap::new(),
            secrets: Secrets::default(),
            wrong: None,
            extra: Value::Null,
            instructions: None,
            go_on: GO_ON.to_owned(),
            client: Arc::default(),
        }
    }

    pub(super) fn set_client(&mut self, client: Client) {
        self.client = Arc::new(OnceLock::from(client));
    }

    /// Sets a header, replacing one of the same name. Its value counts as a secret, and so does
    /// everything after its first word.
    pub(super) fn set_header(&mut self, name: &str, value: &str) {
        match (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value)) {
            (Ok(header), Ok(mut sent)) => {
                sent.set_sensitive(true);
                self.headers.insert(header, sent);
            }
            // The value is not shown.
            _ => self.wrong = Some(format!("the header `{name}` for the model cannot be sent")),
        }
        // A shorter value would match ordinary text.
        let secret = value.split_once(' ').map_or(value, |(_, rest)| rest);
        if secret.len() >= 12 {
            self.secrets.0.push(secret.to_owned());
        }
    }

    /// Adds to the extra fields. `null` is kept, since it removes a field that the adaptor sets.
    pub(super) fn add_extra(&mut self, fields: Value) {
        if self.extra.is_null() {
            self.extra = fields;
        } else if let (Value::Object(extra), Value::Object(fields)) = (&mut self.extra, fields) {
            for (field, value) in fields {
                match extra.get_mut(&field) {
                    Some(there) if !value.is_null() => merge(there, &value),
                    _ => {
                        extra.insert(field, value);
                    }
                }
            }
        }
    }

    /// The body of a request: the adaptor's own, with the user's extra fields.
    pub(super) fn with_extra(&self, mut body: Value) -> Value {
        merge(&mut body, &self.extra);
        body
    }

    /// The system prompt of a request.
    pub(super) fn system<'a>(&'a self, request: &'a ModelRequest) -> Option<&'a str> {
        request.system.as_deref().or(self.instructions.as_deref()).filter(|text| !text.is_empty())
    }

    /// Requests a stream of events.
    pub(super) async fn ask(&self, path: &str, body: &Value) -> Result<Response, ModelError> {
        let text = serde_json::to_vec(body).map_err(|why| ModelError::new(ModelErrorKind::Invalid, why.to_string()))?;
        let request = self.request(Method::POST, path)?.header(CONTENT_TYPE, "application/json").header(ACCEPT, "text/event-stream");
        let response = self.send(request.body(text)).await?;
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        // Some servers do not declare a stream, but one that declares another type does not send
        // one.
        if kind.starts_with("application/json") || kind.starts_with("text/html") {
            let body = self.body_of_error(response).await;
            let is_error = serde_json::from_str::<Value>(&body).is_ok_and(|json| json.get("error").is_some_and(|error| !error.is_null()));
            return Err(if is_error {
                classify(200, &body)
            } else {
                ModelError::new(ModelErrorKind::Invalid, "the provider's response is not an event stream")
            });
        }
        Ok(response)
    }

    /// Requests JSON, in at most `wait`.
    pub(super) async fn get(&self, path: &str, wait: Duration) -> Result<Value, Refused> {
        let response = self.send(self.request(Method::GET, path)?.timeout(wait)).await?;
        let body = self.whole(response).await?;
        let wrong = |_| ModelError::new(ModelErrorKind::Transient, "the provider's response is not JSON");
        Ok(serde_json::from_slice(&body).map_err(wrong)?)
    }

    fn request(&self, method: Method, path: &str) -> Result<RequestBuilder, ModelError> {
        if let Some(wrong) = &self.wrong {
            return Err(ModelError::new(ModelErrorKind::Invalid, wrong.as_str()));
        }
        let url = format!("{}/{path}", self.base_url.trim_end_matches('/'));
        Ok(self.client()?.request(method, url).headers(self.headers.clone()))
    }

    fn client(&self) -> Result<&Client, ModelError> {
        if self.client.get().is_none() {
            let made = client().map_err(|why| ModelError::new(ModelErrorKind::Other, format!("there is no TLS: {why}")))?;
            return Ok(self.client.get_or_init(|| made));
        }
        Ok(self.client.get().expect("it was there a moment ago, and nothing takes it away"))
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, Refused> {
        let response = request.send().await.map_err(|why| self.broken(why))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let wait = wait(response.headers());
        let body = self.body_of_error(response).await;
        let error = classify(status.as_u16(), &body);
        let error = wait.into_iter().fold(error, ModelError::retry_after);
        Err(Refused { status: Some(status.as_u16()), error })
    }

    async fn whole(&self, mut response: Response) -> Result<Vec<u8>, ModelError> {
        let mut body = Vec::new();
        while let Some(bytes) = response.chunk().await.map_err(|why| self.broken(why))? {
            body.extend_from_slice(&bytes);
            if body.len() > MAX_EVENT {
                return Err(ModelError::new(ModelErrorKind::Other, format!("the stored answer is longer than {} MiB", MAX_EVENT >> 20)));
            }
        }
        Ok(body)
    }

    /// Body of an error as far as it was received, without this endpoint's secrets.
    async fn body_of_error(&self, mut response: Response) -> String {
        let mut body = Vec::new();
        while let Ok(Some(bytes)) = response.chunk().await {
            body.extend_from_slice(&bytes);
            if body.len() > MAX_ERROR_BODY {
                break;
            }
        }
        self.clean(&String::from_utf8_lossy(&body))
    }

    /// Removes this endpoint's secrets from a text.
    pub(super) fn clean(&self, text: &str) -> String {
        self.secrets.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret, "[key]"))
    }

    /// Error of a request that was not sent, or whose response was not received.
    fn broken(&self, why: reqwest::Error) -> ModelError {
        let kind = if why.is_builder() {
            ModelErrorKind::Invalid
        } else if why.is_redirect() {
            ModelErrorKind::Other
        } else {
            ModelErrorKind::Transient
        };
        // A URL may contain a key. The innermost cause is the informative one.
        let why = why.without_url();
        let mut text = format!("the model cannot be reached: {why}");
        let mut source = std::error::Error::source(&why);
        while let Some(inner) = source {
            text = format!("{text}: {inner}");
            source = inner.source();
        }
        ModelError::new(kind, shortened(&self.clean(&text)))
    }

    /// The bytes of a response, as a stream. Dropping it closes the connection.
    pub(super) fn bytes(self, response: Response) -> impl Stream<Item = Result<impl AsRef<[u8]>, ModelError>> + Send {
        stream::unfold((response, self), |(mut response, endpoint)| async move {
            let bytes = response.chunk().await.map_err(|why| endpoint.broken(why)).transpose()?;
            Some((bytes, (response, endpoint)))
        })
    }
}

/// Error of a request.
pub(super) struct Refused {
    /// Status of the response, if there was one.
    pub(super) status: Option<u16>,
    pub(super) error: ModelError,
}

impl From<ModelError> for Refused {
    fn from(error: ModelError) -> Self {
        Refused { status: None, error }
    }
}

impl From<Refused> for ModelError {
    fn from(refused: Refused) -> Self {
        refused.error
    }
}

/// Default client: TLS by `ring`, unless the process has installed another provider, with the
/// certificates of the system.
fn client() -> Result<Client, Box<dyn std::error::Error>> {
    let provider = CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(rustls::crypto::ring::default_provider()));
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_platform_verifier()?
        .with_no_client_auth();
    // A redirect would pass on the key.
    let client = Client::builder().tls_backend_preconfigured(tls).redirect(Policy::none());
    Ok(client.connect_timeout(CONNECT).read_timeout(SILENCE).tcp_keepalive(CONNECT).build()?)
}

/// How long the provider asks to wait, in seconds or milliseconds; dates are not supported.
fn wait(headers: &HeaderMap) -> Option<Duration> {
    let number = |name| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let seconds = number(HeaderName::from_static("retry-after-ms")).map(|ms| ms / 1000.0).or_else(|| number(RETRY_AFTER))?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// Merges the user's extra fields into a body: objects are merged, lists are appended to, `null`
/// removes a field, and any other value replaces it.
pub(super) fn merge(body: &mut Value, extra: &Value) {
    match (body, extra) {
        (_, Value::Null) => {}
        (Value::Object(body), Value::Object(extra)) => {
            for (field, value) in extra {
                if value.is_null() {
                    body.remove(field);
                } else {
                    merge(body.entry(field).or_insert(Value::Null), value);
                }
            }
        }
        (Value::Array(body), Value::Array(extra)) => body.extend(extra.iter().cloned()),
        (body, extra) => *body = extra.clone(),
    }
}

/// Settings shared by the models of all providers.
macro_rules! settings {
    () => {
        /// Sets the address of the provider, with the version in the path and without a slash at
        /// the end.
        pub fn base_url(mut self, url: impl Into<String>) -> Self {
            self.endpoint.base_url = url.into();
            self
        }

        /// Sets a header for every request, replacing one of the same name. Its value is kept out
        /// of errors and of `Debug`.
        pub fn header(mut self, name: &str, value: &str) -> Self {
            self.endpoint.set_header(name, value);
            self
        }

        /// Sets the HTTP client, for proxies, certificates and timeouts of your own. It should have
        /// no timeout for a whole request, and follow no redirects, which would pass on the key.
        ///
        /// The default client allows 15 seconds to connect and 10 minutes of silence, and uses the
        /// system's certificates.
        pub fn client(mut self, client: reqwest::Client) -> Self {
            self.endpoint.set_client(client);
            self
        }

        /// Sets the system prompt for requests without a [`system`](ModelRequest::system).
        pub fn instructions(mut self, text: impl Into<String>) -> Self {
            self.endpoint.instructions = Some(text.into());
            self
        }

        /// Sets the user message that asks a model that was cut off to continue, after the answer
        /// so far.
        pub fn go_on(mut self, text: impl Into<String>) -> Self {
            self.endpoint.go_on = text.into();
            self
        }

        /// Adds fields to the body of each request. Objects are merged, lists are appended to, and
        /// `null` removes a field; any other value replaces the one that would be sent.
        pub fn extra(mut self, fields: serde_json::Value) -> Self {
            self.endpoint.add_extra(fields);
            self
        }
    };
}
pub(super) use settings;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_client_can_be_made_though_the_process_has_chosen_no_cryptography() {
        assert!(CryptoProvider::get_default().is_none());
        let endpoint = Endpoint::new("m".into(), "https://localhost");
        assert!(std::ptr::eq(endpoint.client().expect("it can be made"), endpoint.clone().client().expect("it is kept")));
        assert!(CryptoProvider::get_default().is_none(), "others choose for themselves");
    }

    #[test]
    fn what_the_user_adds_is_merged() {
        let mut endpoint = Endpoint::new("m".into(), "");
        endpoint.add_extra(json!({ "a": { "x": 1 }, "tools": [{ "type": "web_search" }], "gone": null, "back": null }));
        endpoint.add_extra(json!({ "a": { "y": 2 }, "n": 3, "tools": [1], "back": true }));
        let body = endpoint.with_extra(json!({ "a": { "x": 0, "z": 0 }, "n": "text", "tools": ["own"], "gone": 1, "stays": 1 }));
        assert_eq!(
            body,
            json!({ "a": { "x": 1, "y": 2, "z": 0 }, "n": 3, "tools": ["own", { "type": "web_search" }, 1], "stays": 1, "back": true })
        );
    }

    #[test]
    fn secrets_are_found_without_the_word_before_them_and_never_shown() {
        let mut endpoint = Endpoint::new("m".into(), "");
        endpoint.set_header("authorization", "Bearer abcdefghijklmnop");
        endpoint.set_header("x-team", "short");
        assert_eq!(endpoint.clean("a short abcdefghijklmnop."), "a short [key].");
        let shown = format!("{endpoint:?}");
        assert!(!shown.contains("abcdefgh") && !shown.contains("short"), "{shown}");
    }

    #[test]
    fn seconds_and_milliseconds_are_understood_as_a_wait() {
        let wait = |name: &'static str, value: &'static str| {
            wait(&HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static(value))]))
        };
        assert_eq!(wait("retry-after", "7"), Some(Duration::from_secs(7)));
        assert_eq!(wait("retry-after", "0.5"), Some(Duration::from_millis(500)));
        assert_eq!(wait("retry-after-ms", "250"), Some(Duration::from_millis(250)));
        for nonsense in ["-1", "NaN", "inf", "1e300", "Wed, 21 Oct 2015 07:28:00 GMT", ""] {
            assert_eq!(wait("retry-after", nonsense), None, "{nonsense}");
        }
    }
}
