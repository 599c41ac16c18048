//! `agent.call(..)`: what clients may call, and what they are told of it.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use forever::agent::{Agent, AgentHandle};
use forever::prelude::*;
use forever::serve::{Rejection, Server};
use forever_testkit::gates::Gates;
use serde_json::{Value, json};

use crate::support::place::{Place, Up};
use crate::support::scripted::Scripted;
use crate::support::{client::Client, until};

/// What is left of those who were called.
#[derive(Clone, Default)]
struct Under(Arc<AtomicUsize>);

struct Way(Under);

impl Under {
    fn way(&self) -> Way {
        self.0.fetch_add(1, Ordering::SeqCst);
        Way(self.clone())
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn callables(server: Server, gates: Gates, under: Under) -> Server {
    server
        .callable("sum", async |agent: AgentHandle<Scripted>, args: Vec<Value>| {
            let numbers: Vec<u64> = args.into_iter().map(serde_json::from_value).collect::<Result<_, _>>()?;
            Ok(json!({ "of": agent.name(), "sum": numbers.iter().sum::<u64>() }))
        })
        .callable("fail", async |_: AgentHandle<Scripted>, _| Err("a secret of the program at /etc/secret".into()))
        .callable("refuse", async |_: AgentHandle<Scripted>, _| Err(Rejection::forbidden("not on Sundays").into()))
        .callable("slow", move |_: AgentHandle<Scripted>, args| {
            let (gates, way) = (gates.clone(), under.way());
            async move {
                let _way = way;
                gates.pass(args[0].as_str().unwrap_or_default()).await;
                Ok(args[0].clone())
            }
        })
}

async fn up(place: &Place, under: &Under) -> Up {
    let (gates, under) = (place.gates.clone(), under.clone());
    place.up_with(|server| callables(server, gates, under)).await
}

async fn call(client: &mut Client, id: &str, method: &str, args: Value) {
    client.send(json!({ "type": "rpc", "id": id, "method": method, "args": args })).await;
}

async fn called(client: &mut Client, id: &str) -> Value {
    client.until(|frame| frame["type"] == "rpc" && frame["id"] == id).await
}

#[tokio::test]
async fn a_call_is_given_its_agent_and_its_arguments_and_answered_with_what_it_gives() {
    let place = Place::new();
    let up = up(&place, &Under::default()).await;
    let mut client = up.settled("ada").await;
    call(&mut client, "c1", "sum", json!([1, 2, 39])).await;
    let answer = json!({ "type": "rpc", "id": "c1", "success": true, "result": { "of": "ada", "sum": 42 }, "done": true });
    assert_eq!(called(&mut client, "c1").await, answer);
    // Without arguments at all.
    client.send(json!({ "type": "rpc", "id": "c2", "method": "sum" })).await;
    assert_eq!(called(&mut client, "c2").await["result"]["sum"], 0);
    up.down().await;
}

#[tokio::test]
async fn why_a_call_failed_stays_inside() {
    let place = Place::new();
    let up = up(&place, &Under::default()).await;
    let mut client = up.settled("ada").await;
    call(&mut client, "c1", "fail", json!([])).await;
    assert_eq!(called(&mut client, "c1").await, json!({ "type": "rpc", "id": "c1", "success": false, "error": "the call failed" }));
    // What does not fit fails as the program's own errors do.
    for args in [json!(["one"]), json!([-1]), json!([null, {}])] {
        call(&mut client, "c2", "sum", args.clone()).await;
        assert_eq!(called(&mut client, "c2").await["error"], "the call failed", "{args}");
    }
    // Unless it is meant for clients.
    call(&mut client, "r", "refuse", json!([])).await;
    assert_eq!(called(&mut client, "r").await, json!({ "type": "rpc", "id": "r", "success": false, "error": "not on Sundays" }));
    call(&mut client, "c3", "nope", json!([])).await;
    let unknown = json!({ "type": "rpc", "id": "c3", "success": false, "error": "Method nope does not exist" });
    assert_eq!(called(&mut client, "c3").await, unknown);
    up.down().await;
}

#[tokio::test]
async fn slow_calls_keep_nobody_waiting() {
    let (place, under) = (Place::new(), Under::default());
    let up = up(&place, &under).await;
    let mut client = up.settled("ada").await;
    for name in ["a", "b", "c"] {
        call(&mut client, name, "slow", json!([name])).await;
    }
    for name in ["a", "b", "c"] {
        place.gates.reached(name).await;
    }
    client.ask("r1", json!({})).await;
    client.done("r1").await;
    for name in ["c", "a", "b"] {
        place.gates.open(name);
        assert_eq!(called(&mut client, name).await["result"], name);
    }
    assert_eq!(under.count(), 0);
    up.down().await;
}

#[tokio::test]
async fn the_calls_of_a_client_that_goes_are_given_up() {
    let (place, under) = (Place::new(), Under::default());
    let up = up(&place, &under).await;
    let (mut gone, mut stays) = (up.settled("ada").await, up.settled("ada").await);
    call(&mut gone, "c", "slow", json!(["never"])).await;
    call(&mut stays, "s", "slow", json!(["later"])).await;
    place.gates.reached("never").await;
    place.gates.reached("later").await;
    assert_eq!(under.count(), 2);
    gone.leave().await;
    until("the call of who has gone is dropped", async || under.count() == 1).await;
    place.gates.open("later");
    assert_eq!(called(&mut stays, "s").await["success"], true);
    up.down().await;
}

#[tokio::test]
async fn a_call_is_of_one_class() {
    struct Other;
    impl Agent for Other {
        const CLASS: &'static str = "Other";
        type State = ();
    }
    impl forever::chat::ChatAgent for Other {
        async fn on_chat_message(&self, _: &forever::chat::Turn) -> Result<(), forever::BoxError> {
            Ok(())
        }
    }
    let place = Place::new();
    let forever = place.builder().chat_agent(|_| Other).open().await.unwrap();
    let server = callables(Server::new(&forever), place.gates.clone(), Under::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let up = Up { serving: tokio::spawn(server.listen(listener)), forever, address };
    let mut client = Client::try_connect(address, "/agents/other/ada", &[]).await.ok().unwrap();
    call(&mut client, "c", "sum", json!([1])).await;
    assert_eq!(called(&mut client, "c").await["error"], "Method sum does not exist");
    up.down().await;
}
