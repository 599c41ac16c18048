//! Requests as text, and answers as they come.
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::soon;

#[derive(Debug)]
pub(crate) struct Answered {
    /// 0 if the connection was closed without an answer.
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answered {
    /// Everything that was received.
    pub(crate) fn all(&self) -> String {
        format!("{}{}", self.head, self.body)
    }
}

/// Sends bytes, and reads until the server closes.
pub(crate) async fn request(address: SocketAddr, text: impl AsRef<[u8]>) -> Answered {
    let mut socket = TcpStream::connect(address).await.unwrap();
    // The server may refuse before everything is sent.
    let _ = socket.write_all(text.as_ref()).await;
    let mut all = Vec::new();
    let _ = soon("a request is answered", socket.read_to_end(&mut all)).await;
    parse(&all)
}

fn parse(all: &[u8]) -> Answered {
    let text = String::from_utf8_lossy(all).into_owned();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return Answered { status: 0, head: text, body: String::new() } };
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let chunked = head.to_lowercase().contains("transfer-encoding: chunked");
    let body = if chunked { unchunked(body).0 } else { body.to_owned() };
    Answered { status, head: head.to_owned(), body }
}

/// What the chunks of a body say that are whole, and whether the last one has come.
pub(crate) fn unchunked(mut body: &str) -> (String, bool) {
    let mut text = String::new();
    while let Some((length, rest)) = body.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        if length == 0 {
            return (text, true);
        }
        let Some(chunk) = rest.get(..length) else { break };
        text += chunk;
        body = rest.get(length + 2..).unwrap_or_default();
    }
    (text, false)
}
