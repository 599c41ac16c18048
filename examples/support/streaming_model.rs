//! A streaming model, with its client. It receives its answer so far and continues it, with a line
//! of JSON for each chunk.
use std::convert::Infallible;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::sleep;

/// The time between two chunks.
const PACE: Duration = Duration::from_millis(if cfg!(test) { 0 } else { 6 });

/// The model's answer, with one word in each chunk.
pub(crate) fn chunks() -> Vec<String> {
    let answer = "Because a model is paid by the word, and is slow. Anyone waiting for its answer has half of it when the process dies; and \
        if nothing was kept, all of it is asked for again, is paid for again, and comes out different. A log keeps each piece when it \
        arrives. The next process reads it, hands the model what it has said so far, and takes the rest. What is lost is what was on its \
        way, a word or so.";
    answer.split_inclusive(' ').map(str::to_owned).collect()
}

#[derive(Serialize, Deserialize)]
struct Request {
    question: String,
    so_far: Vec<String>,
}

/// The server.
#[derive(Clone)]
pub(crate) struct Model {
    script: Arc<Mutex<Script>>,
    /// Number of chunks that have left it, when it is silent.
    silent: Arc<watch::Sender<Option<usize>>>,
}

#[derive(Default)]
struct Script {
    /// Number of chunks after which it stops, once.
    silent_at: usize,
    /// Number of chunks that have left it.
    sent: usize,
    repeated: usize,
    /// Number of chunks after which it must be asked to continue.
    expected: usize,
    /// The expected number, and the requested one.
    unexpected: Option<(usize, usize)>,
}

impl Model {
    /// Starts the server, and returns its URL. It runs as long as the tokio runtime.
    pub(crate) async fn start() -> std::io::Result<(Self, String)> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/answer", listener.local_addr()?);
        let model = Model { script: Arc::default(), silent: Arc::default() };
        let app = Router::new().route("/answer", post(answer)).with_state(model.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok((model, url))
    }

    /// Makes the next answer stop after `chunks` chunks, but never before the first one and never
    /// at the end.
    pub(crate) fn falls_silent_at(&self, chunks: usize) {
        self.script().silent_at = chunks;
        self.silent.send_replace(None);
    }

    /// Waits until it has stopped; returns how many chunks have left it.
    pub(crate) async fn silent(&self) -> usize {
        let silent = self.silent.subscribe().wait_for(Option::is_some).await.map(|chunks| *chunks);
        match silent {
            Ok(Some(chunks)) => chunks,
            // The sender is in `self`.
            _ => pending().await,
        }
    }

    /// Sets the number of chunks that the next request has to bring.
    pub(crate) fn expects(&self, stored: usize) {
        self.script().expected = stored;
    }

    /// The expected and the requested number of the first wrong request, if there was one.
    pub(crate) fn unexpected(&self) -> Option<(usize, usize)> {
        self.script().unexpected
    }

    /// Number of chunks that it has made again.
    pub(crate) fn repeated(&self) -> usize {
        self.script().repeated
    }

    /// Counts a request; returns the chunk after which it falls silent.
    fn asked(&self, so_far: usize, of: usize) -> Option<usize> {
        let mut script = self.script();
        if so_far != script.expected {
            script.unexpected = Some((script.expected, so_far));
        }
        script.repeated += script.sent.saturating_sub(so_far);
        script.sent = so_far;
        (script.silent_at < usize::MAX).then(|| script.silent_at.max(so_far + 1).min(of - 1).max(so_far))
    }

    /// Locks the script. No panic under this lock leaves it inconsistent, so poison is ignored.
    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `POST /answer`
async fn answer(State(model): State<Model>, Json(request): Json<Request>) -> Response {
    let chunks = chunks();
    let so_far = request.so_far.len();
    if !chunks.starts_with(&request.so_far) {
        return (axum::http::StatusCode::BAD_REQUEST, "that is not what it has said").into_response();
    }
    let silent_at = model.asked(so_far, chunks.len());
    let rest = stream::unfold((model, chunks, so_far), move |(model, chunks, n)| async move {
        if silent_at == Some(n) {
            model.silent.send_replace(Some(n));
            pending::<()>().await;
        }
        if !PACE.is_zero() {
            sleep(PACE).await;
        }
        let line = serde_json::to_string(chunks.get(n)?).ok()? + "\n";
        model.script().sent = n + 1;
        Some((Ok::<_, Infallible>(line), (model, chunks, n + 1)))
    });
    Body::from_stream(rest).into_response()
}

/// A client of the model.
pub(crate) struct Client {
    http: reqwest::Client,
    url: String,
}

/// Answer that is streamed.
pub(crate) struct Chunks {
    answer: reqwest::Response,
    rest: Vec<u8>,
}

impl Client {
    pub(crate) fn at(url: &str) -> anyhow::Result<Self> {
        // Fails if a provider is installed already, which will do.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Ok(Client { http: reqwest::Client::builder().no_proxy().build()?, url: url.to_owned() })
    }

    /// Requests the answer after the given chunks.
    pub(crate) async fn go_on(&self, question: &str, so_far: &[String]) -> anyhow::Result<Chunks> {
        let request = Request { question: question.to_owned(), so_far: so_far.to_vec() };
        let request = self.http.post(&self.url).header("Content-Type", "application/json").body(serde_json::to_vec(&request)?);
        Ok(Chunks { answer: request.send().await?.error_for_status()?, rest: Vec::new() })
    }
}

impl Chunks {
    /// The next chunk; `None` at the end.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Option<String>> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return serde_json::from_slice(&line).map(Some).context("a line of the model cannot be read");
            }
            let Some(bytes) = self.answer.chunk().await? else {
                ensure!(self.rest.is_empty(), "the model has stopped in the middle of a line");
                return Ok(None);
            };
            self.rest.extend_from_slice(&bytes);
        }
    }
}
