//! A server on this machine that answers what it is told to, one answer for each request, and keeps what it was asked.
use std::sync::{Arc, Mutex};

use forever_testkit::waiting::soon;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// Method and path.
    pub(crate) line: String,
    /// In lower case, as they came.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Value,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// One answer.
#[derive(Debug)]
pub(crate) enum Reply {
    /// A status with headers (each with its line end), and a body.
    Plain(u16, &'static str, String),
    /// A stream of events in these pieces, each a write and a chunk of HTTP's own; ends as it should.
    Stream(Vec<Vec<u8>>),
    /// The same; then the connection is closed without the end that HTTP asks for.
    Cut(Vec<Vec<u8>>),
    /// The same; then nothing comes any more. Tells when the other side has closed the connection.
    Silent(Vec<Vec<u8>>, oneshot::Sender<()>),
    /// A status, and more of a body than anybody needs, of which the end never comes.
    Unending(u16),
    /// The connection is closed without an answer.
    Nothing,
}

#[derive(Debug)]
pub(crate) struct Server {
    url: String,
    asked: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Gives these answers in turn.
    pub(crate) async fn with(replies: Vec<Reply>) -> Self {
        let mut replies = replies.into_iter();
        Server::by(move |_| replies.next()).await
    }

    /// Gives the answer to each request that this finds; after `None` nobody is answered any more.
    pub(crate) async fn by(mut reply: impl FnMut(&Request) -> Option<Reply> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let url = format!("http://{}/v1", listener.local_addr().expect("it is bound"));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                // Who asks may have gone.
                let Some(request) = read_request(&mut stream).await else { continue };
                let reply = reply(&request);
                kept.lock().expect("nobody panics with it").push(request);
                let Some(reply) = reply else { return };
                // The other side may have gone.
                let _ = answer(stream, reply).await;
            }
        });
        Server { url, asked }
    }

    /// Its address with the version in its path, as `base_url` takes it.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// What it was asked so far.
    pub(crate) fn asked(&self) -> Vec<Request> {
        self.asked.lock().expect("nobody panics with it").clone()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.asked().into_iter().map(|request| request.line).collect()
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        stream.read_buf(&mut bytes).await.ok().filter(|read| *read > 0)?;
    };
    let text = String::from_utf8(bytes[..head].to_vec()).expect("a head is text");
    let (line, headers) = text.split_once("\r\n").expect("there are headers");
    let headers: Vec<(String, String)> =
        headers.lines().filter_map(|line| line.split_once(": ")).map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    let length = headers.iter().find(|(name, _)| name == "content-length").map_or(0, |(_, value)| value.parse().expect("a number"));
    while bytes.len() < head + 4 + length {
        stream.read_buf(&mut bytes).await.ok().filter(|read| *read > 0)?;
    }
    let body = serde_json::from_slice(&bytes[head + 4..]).unwrap_or(Value::Null);
    Some(Request { line: line.trim_end_matches(" HTTP/1.1").to_owned(), headers, body })
}

async fn answer(mut stream: TcpStream, reply: Reply) -> std::io::Result<()> {
    // Each write is to be a read of the other side, as far as that can be had.
    stream.set_nodelay(true)?;
    match reply {
        Reply::Plain(status, headers, body) => {
            let head = format!("HTTP/1.1 {status} -\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n", body.len());
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(body.as_bytes()).await?;
            // A reset would take back what was written.
            stream.shutdown().await
        }
        Reply::Stream(pieces) => {
            write_pieces(&mut stream, pieces).await?;
            stream.write_all(b"0\r\n\r\n").await?;
            stream.shutdown().await
        }
        Reply::Cut(pieces) => {
            write_pieces(&mut stream, pieces).await?;
            stream.shutdown().await
        }
        Reply::Silent(pieces, closed) => {
            write_pieces(&mut stream, pieces).await?;
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
            let _ = closed.send(());
            Ok(())
        }
        Reply::Unending(status) => {
            let head = format!("HTTP/1.1 {status} -\r\ncontent-length: {}\r\n\r\n", u32::MAX);
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(&vec![b'x'; 256 << 10]).await?;
            stream.read_to_end(&mut Vec::new()).await.map(|_| ())
        }
        Reply::Nothing => stream.shutdown().await,
    }
}

async fn write_pieces(stream: &mut TcpStream, pieces: Vec<Vec<u8>>) -> std::io::Result<()> {
    // Without `close` the next request may be sent by a connection that is just being closed.
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
        let mut chunk = format!("{:x}\r\n", piece.len()).into_bytes();
        chunk.extend(piece);
        chunk.extend(b"\r\n");
        stream.write_all(&chunk).await?;
        stream.flush().await?;
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// A signal that has to come, though not when.
pub(crate) async fn come(signal: oneshot::Receiver<()>) {
    soon("the signal", signal).await.expect("the server lives");
}
