//! A client of server-sent events.
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::request::unchunked;
use super::soon;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Event {
    pub(crate) id: Option<u64>,
    pub(crate) name: Option<String>,
    pub(crate) data: String,
}

pub(crate) struct Events {
    socket: TcpStream,
    received: Vec<u8>,
    pub(crate) status: u16,
    pub(crate) head: String,
    /// How many events were given so far.
    given: usize,
}

impl Events {
    /// Asks for the log of a turn, behind a chunk.
    pub(crate) async fn of(address: SocketAddr, agent: &str, turn: &str, last: Option<&str>) -> Self {
        let mut socket = TcpStream::connect(address).await.unwrap();
        let last = last.map_or_else(String::new, |last| format!("Last-Event-ID: {last}\r\n"));
        let request = format!("GET /agents/chat-agent/{agent}/stream/{turn} HTTP/1.1\r\nHost: {address}\r\n{last}\r\n");
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut received = Vec::new();
        while !received.ends_with(b"\r\n\r\n") {
            received.push(soon("a head", socket.read_u8()).await.unwrap());
        }
        let head = String::from_utf8(std::mem::take(&mut received)).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Events { socket, received, status, head, given: 0 }
    }

    /// The next event; none at the end of the response.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        soon("an event", async {
            loop {
                let (text, over) = unchunked(&String::from_utf8_lossy(&self.received));
                if let Some(event) = events(&text).get(self.given) {
                    self.given += 1;
                    return Some(event.clone());
                }
                if over || self.socket.read_buf(&mut self.received).await.unwrap_or(0) == 0 {
                    return None;
                }
            }
        })
        .await
    }

    /// So many, or all that there are.
    pub(crate) async fn some(&mut self, count: usize) -> Vec<Event> {
        let mut some = Vec::new();
        while some.len() < count {
            let Some(event) = self.next().await else { break };
            some.push(event);
        }
        some
    }

    pub(crate) async fn all(&mut self) -> Vec<Event> {
        self.some(usize::MAX).await
    }

    /// Everything that was received, comments too.
    pub(crate) fn text(&self) -> String {
        unchunked(&String::from_utf8_lossy(&self.received)).0
    }
}

/// The events of a text that are whole; comments are none.
fn events(text: &str) -> Vec<Event> {
    let mut events = Vec::new();
    for lines in text.split_inclusive("\n\n").filter_map(|event| event.strip_suffix("\n\n")) {
        let mut event = Event::default();
        for line in lines.lines().filter(|line| !line.starts_with(':')) {
            match line.split_once(": ").unwrap() {
                ("id", id) => event.id = Some(id.parse().unwrap()),
                ("event", name) => event.name = Some(name.to_owned()),
                ("data", data) => event.data += data,
                other => panic!("{other:?}"),
            }
        }
        if event != Event::default() {
            events.push(event);
        }
    }
    events
}
