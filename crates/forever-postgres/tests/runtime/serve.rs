//! A WebSocket client of one worker, of an agent whose calls another worker carries out.
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use forever::BoxError;
use forever::agent::{Agent, AgentHandle};
use forever::chat::{ChatAgent, Turn};
use forever::prelude::*;
use forever::serve::Server;
use forever_testkit::waiting::soon;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use crate::{cluster, store};

const LEASE: Duration = Duration::from_secs(3600);

/// Adds, and remembers in which worker it did.
struct Room {
    me: AgentHandle<Room>,
    worker: char,
    added: Arc<Mutex<Vec<char>>>,
}

impl Agent for Room {
    const CLASS: &'static str = "room";
    type State = u64;
}

impl ChatAgent for Room {
    async fn on_chat_message(&self, _: &Turn) -> Result<(), BoxError> {
        Ok(())
    }
}

#[allow(clippy::unused_async, reason = "methods of agents are async")]
impl Room {
    async fn add(self: Arc<Self>, (a, b): (u64, u64)) -> Result<u64, BoxError> {
        self.added.lock().unwrap().push(self.worker);
        let sum = self.me.state().await? + a + b;
        self.me.set_state(&sum).await?;
        Ok(sum)
    }

    async fn hidden(self: Arc<Self>, (): ()) -> Result<(), BoxError> {
        self.added.lock().unwrap().push('!');
        Ok(())
    }
}

async fn open(url: &str, schema: &str, worker: char, added: &Arc<Mutex<Vec<char>>>) -> Forever {
    let added = Arc::clone(added);
    let make = move |me| Room { me, worker, added: Arc::clone(&added) };
    let builder = Forever::builder().store(store(url, schema, LEASE).await).chat_agent(make);
    builder.callable("add", Room::add).callable("hidden", Room::hidden).open().await.unwrap()
}

struct Client(WebSocketStream<TcpStream>);

impl Client {
    async fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).await.unwrap();
        let (socket, _) = tokio_tungstenite::client_async(format!("ws://{address}/agents/room/ada"), socket).await.unwrap();
        Client(socket)
    }

    async fn call(&mut self, id: &str, method: &str, args: Value) {
        let frame = json!({ "type": "rpc", "id": id, "method": method, "args": args });
        self.0.send(Message::text(frame.to_string())).await.unwrap();
    }

    /// Reads until a frame is the one that is waited for.
    async fn until(&mut self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let found = async {
            loop {
                if let Message::Text(text) = self.0.next().await.unwrap().unwrap() {
                    let frame: Value = serde_json::from_str(&text).unwrap();
                    if is_it(&frame) {
                        return frame;
                    }
                }
            }
        };
        soon(what, found).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_of_another_worker_calls_methods_and_is_shown_states_and_broadcasts() {
    let Some(url) = cluster::url() else { return };
    let (schema, added) = (cluster::schema(), Arc::default());
    let (a, b) = (open(&url, &schema, 'a', &added).await, open(&url, &schema, 'b', &added).await);
    // From here on, a carries out the calls of the agent.
    let by_a = a.agent::<Room>("ada");
    let awake = by_a.wake().await.unwrap();
    assert_eq!(by_a.call::<u64>("add", (1, 0)).await.unwrap(), 1);

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(Server::new(&b).expose::<Room>("add").listen(listener));
    let mut client = Client::connect(address).await;
    client.until("it is shown the state", |frame| frame["type"] == "cf_agent_state" && frame["state"] == 1).await;
    client.call("c1", "add", json!([2, 3])).await;
    let answer = client.until("it is answered", |frame| frame["type"] == "rpc").await;
    assert_eq!((&answer["id"], &answer["success"], &answer["result"]), (&json!("c1"), &json!(true), &json!(6)));
    by_a.set_state(&9).await.unwrap();
    client.until("it is shown the new state", |frame| frame["type"] == "cf_agent_state" && frame["state"] == 9).await;
    awake.me.broadcast(&json!({ "news": "hello" })).unwrap();
    client.until("it is shown the broadcast", |frame| frame["news"] == "hello").await;

    for (id, method, args) in [("c2", "add", json!(["x", {}])), ("c3", "add", json!([])), ("c4", "hidden", json!([]))] {
        client.call(id, method, args).await;
        let refused = client.until("it is refused", |frame| frame["id"] == id).await;
        assert_eq!(refused["success"], false, "{refused}");
        assert_eq!(refused.get("result"), None, "{refused}");
    }
    assert_eq!(*added.lock().unwrap(), ['a', 'a'], "where the calls of the agent are carried out");
    a.close().await.unwrap();
    b.close().await.unwrap();
    server.await.unwrap().unwrap();
}
