//! One connection that the JSON API is asked over, whatever is at its other end.
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::failure::Failure;

/// Where the other end of a connection is.
#[derive(Debug, Clone)]
pub(crate) enum Way {
    /// Behind a Unix socket.
    #[cfg(unix)]
    Socket(std::path::PathBuf),
    /// At an address with a port.
    Address(String),
    /// In this process.
    Here,
}

/// A client of one inspector.
#[derive(Debug)]
pub(crate) struct Client {
    way: Way,
    send: SendRequest<Full<Bytes>>,
    /// The `Host` header, and the path before `api/`.
    host: String,
    base: String,
    headers: Vec<(String, String)>,
}

impl Client {
    pub(crate) async fn over(
        way: Way,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        host: &str,
        base: &str,
        headers: Vec<(String, String)>,
    ) -> Result<Self, Failure> {
        let (send, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|why| lost(&why))?;
        // An error ends the request under way, which says so.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Client { way, send, host: host.to_owned(), base: base.trim_end_matches('/').to_owned(), headers })
    }

    /// A second connection to the same inspector.
    pub(crate) async fn again(&self) -> Result<Self, Failure> {
        let (way, host, base, headers) = (self.way.clone(), &self.host, &self.base, self.headers.clone());
        let failed = |why: std::io::Error| Failure::unreachable(format!("the owner cannot be reached a second time: {why}"));
        match &self.way {
            #[cfg(unix)]
            Way::Socket(path) => Client::over(way, tokio::net::UnixStream::connect(path).await.map_err(failed)?, host, base, headers).await,
            Way::Address(address) => {
                Client::over(way, tokio::net::TcpStream::connect(address).await.map_err(failed)?, host, base, headers).await
            }
            Way::Here => Err(Failure::refused("this database was opened here, where nothing happens")),
        }
    }

    /// Asks; an error of the API is a failure.
    pub(crate) async fn get(&mut self, path: &str) -> Result<Value, Failure> {
        let answer = self.ask("GET", path, None).await?;
        read(answer).await
    }

    /// Gives a command.
    pub(crate) async fn post(&mut self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.post_text(path, body.to_string()).await
    }

    /// Gives a command whose body is JSON already.
    pub(crate) async fn post_text(&mut self, path: &str, body: String) -> Result<Value, Failure> {
        let answer = read(self.ask("POST", path, Some(body)).await?).await?;
        match &answer["done"] {
            Value::Bool(true) | Value::Number(_) => Ok(answer),
            _ => Err(Failure::unreachable("this is no inspector: its answer does not say that anything was done")),
        }
    }

    /// Reads an answer as the text that it is, with numbers as they are written.
    pub(crate) async fn get_text(&mut self, path: &str) -> Result<String, Failure> {
        let answer = self.ask("GET", path, None).await?;
        if answer.status() != StatusCode::OK {
            return Err(read(answer).await.err().unwrap_or_else(|| Failure::refused("there is no answer")));
        }
        let body = answer.into_body().collect().await.map_err(|why| lost(&why))?.to_bytes();
        String::from_utf8(body.to_vec()).map_err(|_| Failure::refused("the answer is no text"))
    }

    /// Opens a stream of events.
    pub(crate) async fn stream(&mut self, path: &str) -> Result<Incoming, Failure> {
        let answer = self.ask("GET", path, None).await?;
        if answer.status() == StatusCode::OK { Ok(answer.into_body()) } else { read(answer).await.and(Err(Failure::refused("no stream"))) }
    }

    async fn ask(&mut self, method: &str, path: &str, body: Option<String>) -> Result<Response<Incoming>, Failure> {
        let mut request = Request::builder().method(method).uri(format!("{}/api/{path}", self.base)).header("host", &self.host);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if body.is_some() {
            request = request.header("content-type", "application/json").header("x-forever-inspect", "1");
        }
        let body = Bytes::from(body.unwrap_or_default());
        let request = request.body(Full::new(body)).map_err(|why| Failure::usage(why.to_string()))?;
        self.send.ready().await.map_err(|why| lost(&why))?;
        self.send.send_request(request).await.map_err(|why| lost(&why))
    }
}

async fn read(answer: Response<Incoming>) -> Result<Value, Failure> {
    let status = answer.status();
    let body = answer.into_body().collect().await.map_err(|why| lost(&why))?.to_bytes();
    let value: Value =
        serde_json::from_slice(&body).map_err(|_| Failure::unreachable(format!("this is no inspector: it answered {status}")))?;
    if status.is_success() {
        return Ok(value);
    }
    let error = value["error"].as_str().map_or_else(|| format!("the inspector answered {status}"), str::to_owned);
    Err(match status {
        StatusCode::NOT_FOUND if value["kind"] == "no_such_path" => Failure::unreachable(format!("this is no inspector: {error}")),
        StatusCode::NOT_FOUND => Failure::not_found(error),
        StatusCode::BAD_REQUEST => Failure::usage(error),
        _ => Failure::refused(error),
    })
}

fn lost(why: &hyper::Error) -> Failure {
    Failure::unreachable(format!("the connection to the owner was lost: {why}"))
}
