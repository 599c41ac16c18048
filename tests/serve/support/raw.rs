//! A WebSocket by hand: frames as bytes, whatever they say.
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::soon;

pub(crate) const TEXT: u8 = 0x1;
pub(crate) const BINARY: u8 = 0x2;
pub(crate) const CLOSE: u8 = 0x8;
pub(crate) const PING: u8 = 0x9;
/// The bit that says that a frame is the last of its message.
pub(crate) const FIN: u8 = 0x80;

/// A frame: its first byte, its payload, whether it is masked, and the length that it claims, if not its own.
pub(crate) fn frame(first: u8, payload: &[u8], masked: bool, claims: Option<u64>) -> Vec<u8> {
    let mut bytes = vec![first];
    let mask = if masked { 0x80 } else { 0 };
    let length = claims.unwrap_or(payload.len() as u64);
    match length {
        0..=125 => bytes.push(mask | u8::try_from(length).unwrap()),
        126..=0xffff => {
            bytes.push(mask | 0x7e);
            bytes.extend(u16::try_from(length).unwrap().to_be_bytes());
        }
        _ => {
            bytes.push(mask | 0x7f);
            bytes.extend(length.to_be_bytes());
        }
    }
    let key = [0x5a, 0xa5, 0x3c, 0xc3];
    if masked {
        bytes.extend(key);
        bytes.extend(payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key));
    } else {
        bytes.extend(payload);
    }
    bytes
}

/// A whole text message.
pub(crate) fn text(payload: impl AsRef<[u8]>) -> Vec<u8> {
    frame(FIN | TEXT, payload.as_ref(), true, None)
}

pub(crate) struct Raw {
    pub(crate) socket: TcpStream,
    /// Everything that was received since the upgrade.
    pub(crate) received: Vec<u8>,
}

impl Raw {
    pub(crate) async fn upgraded(address: SocketAddr, path: &str) -> Self {
        Self::try_upgraded(address, path).await.unwrap_or_else(|said| panic!("not upgraded: {said}"))
    }

    /// What was said instead.
    pub(crate) async fn try_upgraded(address: SocketAddr, path: &str) -> Result<Self, String> {
        Self::over(TcpStream::connect(address).await.unwrap(), path).await
    }

    /// Over a socket that there is.
    pub(crate) async fn over(mut socket: TcpStream, path: &str) -> Result<Self, String> {
        socket.set_nodelay(true).unwrap();
        let address = socket.peer_addr().unwrap();
        socket.write_all(upgrade(address, path).as_bytes()).await.map_err(|why| why.to_string())?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match soon("an upgrade is answered", socket.read_u8()).await {
                Ok(byte) => head.push(byte),
                Err(_) => break,
            }
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        if head.starts_with("HTTP/1.1 101") { Ok(Raw { socket, received: Vec::new() }) } else { Err(head) }
    }

    /// Sends, if the server still takes it. What it sends meanwhile is received, so that neither waits for the other.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        let (mut reads, mut writes) = self.socket.split();
        let mut buffer = vec![0; 64 << 10];
        let mut sent = 0;
        while sent < bytes.len() {
            let received = soon("the server takes bytes", async {
                tokio::select! {
                    wrote = writes.write(&bytes[sent..]) => { sent = wrote.map_or(usize::MAX, |wrote| sent + wrote); 0 }
                    read = reads.read(&mut buffer) => read.ok().filter(|read| *read > 0).unwrap_or(usize::MAX),
                }
            })
            .await;
            match buffer.get(..received) {
                Some(bytes) => self.received.extend(bytes),
                None => return,
            }
        }
    }

    /// Says that nothing more will be sent, and receives until the server closes.
    pub(crate) async fn end(&mut self) {
        let _ = self.socket.shutdown().await;
        self.received_all().await;
    }

    /// Receives until the server closes, and answers its farewell.
    pub(crate) async fn received_all(&mut self) {
        soon("the server closes", async {
            loop {
                if self.code().is_some() {
                    let _ = self.socket.shutdown().await;
                }
                if !self.socket.read_buf(&mut self.received).await.is_ok_and(|read| read > 0) {
                    return;
                }
            }
        })
        .await;
    }

    /// Receives the server's farewell, which is not answered.
    pub(crate) async fn told_to_go(&mut self) -> u16 {
        loop {
            if let Some(code) = self.code() {
                return code;
            }
            let read = soon("a farewell", self.socket.read_buf(&mut self.received)).await.unwrap();
            assert!(read > 0, "the server is gone without a word");
        }
    }

    /// Receives until a text has come.
    pub(crate) async fn received_until(&mut self, text: &str) {
        while !self.text().contains(text) {
            let read = soon(text, self.socket.read_buf(&mut self.received)).await.unwrap_or(0);
            assert!(read > 0, "the server has closed: {}", self.text());
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.received).into_owned()
    }

    /// With which code the server has closed, if it has said so.
    pub(crate) fn code(&self) -> Option<u16> {
        let mut at = 0;
        while let [first, second, rest @ ..] = self.received.get(at..)? {
            let (length, header) = match second & 0x7f {
                126 => (usize::from(u16::from_be_bytes([*rest.first()?, *rest.get(1)?])), 4),
                127 => (usize::try_from(u64::from_be_bytes(rest.get(..8)?.try_into().unwrap())).unwrap(), 10),
                length => (usize::from(length), 2),
            };
            if first & 0x0f == CLOSE {
                let payload = self.received.get(at + header..at + header + length)?;
                // 1005 stands for a farewell without a code.
                return Some(payload.first_chunk().map_or(1005, |code| u16::from_be_bytes(*code)));
            }
            at += header + length;
        }
        None
    }
}

pub(crate) fn upgrade(address: SocketAddr, path: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
}
