//! A client over a WebSocket that remembers everything that it was sent.
use std::net::SocketAddr;

use futures_util::stream::SplitSink;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};

use super::soon;

pub(crate) const RESPONSE: &str = "cf_agent_use_chat_response";
pub(crate) const RESUMING: &str = "cf_agent_stream_resuming";
pub(crate) const PENDING: &str = "cf_agent_stream_pending";
pub(crate) const NONE: &str = "cf_agent_stream_resume_none";
pub(crate) const UPDATED: &str = "cf_agent_message_updated";
pub(crate) const MESSAGES: &str = "cf_agent_chat_messages";

/// It takes what it is sent whether or not a test looks, and so it answers pings and farewells.
pub(crate) struct Client {
    sends: SplitSink<WebSocketStream<TcpStream>, Message>,
    received: mpsc::UnboundedReceiver<Message>,
    receiving: AbortHandle,
    /// All frames that were received, in order.
    pub(crate) seen: Vec<Value>,
    /// With which code the server has closed, if it has; 0 if it is gone without.
    pub(crate) code: Option<u16>,
    settled: usize,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr, agent: &str) -> Self {
        let tried = Self::try_connect(address, &format!("/agents/chat-agent/{agent}"), &[]).await;
        tried.unwrap_or_else(|(status, said)| panic!("refused: {status} {said}"))
    }

    /// Refused with a status and a body.
    pub(crate) async fn try_connect(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Result<Self, (u16, String)> {
        Self::over(TcpStream::connect(address).await.unwrap(), path, headers).await
    }

    /// Over a socket that there is.
    pub(crate) async fn over(socket: TcpStream, path: &str, headers: &[(&str, &str)]) -> Result<Self, (u16, String)> {
        socket.set_nodelay(true).unwrap();
        let mut request = format!("ws://{}{path}", socket.peer_addr().unwrap()).into_client_request().unwrap();
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            request.headers_mut().insert(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let any_length = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
        match soon("a connection is upgraded", tokio_tungstenite::client_async_with_config(request, socket, Some(any_length))).await {
            Ok((socket, _)) => {
                let (sends, mut receives) = socket.split();
                let (tell, told) = mpsc::unbounded_channel();
                let receiving = tokio::spawn(async move {
                    while let Some(Ok(message)) = receives.next().await {
                        let _ = tell.send(message);
                    }
                });
                Ok(Client { sends, received: told, receiving: receiving.abort_handle(), seen: Vec::new(), code: None, settled: 0 })
            }
            Err(Error::Http(answer)) => {
                let body = answer.body().clone().unwrap_or_default();
                Err((answer.status().as_u16(), String::from_utf8(body).unwrap()))
            }
            // The connection was taken away.
            Err(why) => Err((0, why.to_string())),
        }
    }

    pub(crate) async fn send(&mut self, frame: Value) {
        self.put(Message::text(frame.to_string())).await;
    }

    pub(crate) async fn put(&mut self, message: Message) {
        // One that the server has closed is noticed when it is read from.
        let _ = soon("the server takes a frame", self.sends.send(message)).await;
    }

    /// Asks, with this body beside the message.
    pub(crate) async fn ask(&mut self, id: &str, body: Value) {
        self.send(asks(id, &format!("u-{id}"), body)).await;
    }

    pub(crate) async fn acknowledge(&mut self, id: &str) {
        self.send(json!({ "type": "cf_agent_stream_resume_ack", "id": id })).await;
    }

    /// The next frame; none when the connection is at its end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        soon("the server says something", self.receive()).await
    }

    async fn receive(&mut self) -> Option<Value> {
        loop {
            match self.received.recv().await {
                Some(Message::Text(text)) => {
                    let frame: Value = serde_json::from_str(&text).unwrap();
                    self.seen.push(frame.clone());
                    return Some(frame);
                }
                Some(Message::Close(close)) => self.code = Some(close.map_or(1005, |close| close.code.into())),
                Some(_) => {}
                None => {
                    self.code.get_or_insert(0);
                    return None;
                }
            }
        }
    }

    /// Reads until a frame is the one that is waited for.
    pub(crate) async fn until(&mut self, is_it: impl Fn(&Value) -> bool) -> Value {
        loop {
            let Some(frame) = self.next().await else { panic!("closed with {:?} after {:?}", self.code, types(&self.seen)) };
            if is_it(&frame) {
                return frame;
            }
        }
    }

    pub(crate) async fn of_type(&mut self, of: &str) -> Value {
        self.until(|frame| frame["type"] == of).await
    }

    /// Reads to the end of a turn.
    pub(crate) async fn done(&mut self, id: &str) -> Value {
        self.until(|frame| frame["id"] == id && frame["done"] == true && frame["type"] == RESPONSE).await
    }

    /// Reads until the server has answered everything that was sent so far, and gives what came meanwhile.
    pub(crate) async fn settled(&mut self) -> Vec<Value> {
        let from = self.seen.len();
        self.settled += 1;
        let id = format!("settled-{}", self.settled);
        self.send(json!({ "type": "rpc", "id": id, "method": "nobody has this name", "args": [] })).await;
        self.until(|frame| frame["type"] == "rpc" && frame["id"] == id.as_str()).await;
        self.seen[from..self.seen.len() - 1].to_vec()
    }

    /// Reads to the end of the connection, and gives the code with which it was closed.
    pub(crate) async fn closed(&mut self) -> u16 {
        while self.next().await.is_some() {}
        self.code.unwrap()
    }

    pub(crate) async fn leave(mut self) {
        let _ = self.sends.send(Message::Close(None)).await;
        while self.next().await.is_some() {}
    }

    /// The words of an answer as it was received, and the numbers of the chunks that had some.
    pub(crate) fn heard(&self, id: &str) -> (String, Vec<u64>) {
        heard(&self.seen, id)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.receiving.abort();
    }
}

/// The text of an answer in these frames, and the numbers of its chunks.
pub(crate) fn heard(frames: &[Value], id: &str) -> (String, Vec<u64>) {
    let (mut text, mut numbers) = (String::new(), Vec::new());
    for frame in frames.iter().filter(|frame| frame["type"] == RESPONSE && frame["id"] == id) {
        let Some(number) = frame["seq"].as_u64() else { continue };
        numbers.push(number);
        let chunk: Value = serde_json::from_str(frame["body"].as_str().unwrap()).unwrap();
        text += chunk["delta"].as_str().unwrap_or_default();
    }
    (text, numbers)
}

/// A question.
pub(crate) fn asks(id: &str, message: &str, mut body: Value) -> Value {
    body["messages"] = json!([{ "id": message, "role": "user", "parts": [{ "type": "text", "text": format!("question {message}") }] }]);
    json!({ "type": "cf_agent_use_chat_request", "id": id, "init": { "method": "POST", "body": body.to_string() } })
}

pub(crate) fn types(frames: &[Value]) -> Vec<&str> {
    frames.iter().map(|frame| frame["type"].as_str().unwrap()).collect()
}
