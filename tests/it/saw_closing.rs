//! Code of a fiber that learns from a call of the library that its runtime closes, and ends early with
//! a value: that may be a part, so it is not stored, and the code runs again.
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forever::BoxError;
use forever::agent::{Agent, AgentHandle};
use forever::chat::message::UiMessage;
use forever::chat::{ChatAgent, Turn};
use forever::prelude::*;
use forever_testkit::waiting::{eventually, soon};
use tokio::sync::watch;

/// An agent whose turns and calls do not end.
struct Clerk;

impl Agent for Clerk {
    const CLASS: &'static str = "clerk";
    type State = u32;
}

impl ChatAgent for Clerk {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        turn.closing().await;
        Ok(())
    }
}

impl Clerk {
    async fn add(self: Arc<Self>, n: u32) -> Result<u32, BoxError> {
        tokio::task::yield_now().await;
        Ok(n + 1)
    }
}

/// One process of the program.
#[derive(Clone)]
struct Life {
    /// Whether its bodies end early when they learn that it closes.
    closes: bool,
    forever: Arc<Mutex<Option<Forever>>>,
    /// The ways whose bodies have begun.
    begun: Arc<Mutex<Vec<String>>>,
    /// Tells bodies that the runtime closes, without the library.
    told: watch::Sender<bool>,
}

/// The ways in which code learns of a close from the library, besides `Op` and `FiberContext`.
const WAYS: [&str; 16] = [
    "Forever::closing",
    "Forever::is_closing",
    "wait, begun before",
    "wait",
    "await of a spawn",
    "spawn",
    "spawn of an agent",
    "spawn_closure",
    "run",
    "stream",
    "wake",
    "connect",
    "recv of a connection",
    "call",
    "submit",
    "turn",
];

impl Life {
    fn forever(&self) -> Forever {
        self.forever.lock().unwrap().clone().expect("it is open")
    }

    /// Ends early when it learns from the library that the runtime closes; an `Err` says what it has
    /// learnt instead.
    async fn learns(&self, way: &str) -> Result<(), String> {
        let forever = self.forever();
        let clerk = forever.agent::<Clerk>("ada");
        let mut told = self.told.subscribe();
        let mut connection = clerk.connect().await.map_err(|error| error.to_string())?;
        let mut turn = None;
        if way == "turn" {
            let submitted = clerk.submit("first", [UiMessage::user("u1", "hello")]).await.map_err(|error| error.to_string())?;
            turn = Some(submitted.follow(0).await.map_err(|error| error.to_string())?);
        }
        self.begun.lock().unwrap().push(way.to_owned());
        let waits_itself = ["Forever::closing", "wait, begun before", "stream", "recv of a connection", "turn"].contains(&way);
        if !waits_itself {
            let _ = told.wait_for(|told| *told).await;
        }
        let is_closed = |closed: bool, what: String| if closed { Ok(()) } else { Err(what) };
        let of_fiber = |error: forever::fiber::FiberError| is_closed(error.is_closed(), format!("{error:?}"));
        let of_call = |error: forever::Error| is_closed(error.is_closed(), format!("{error:?}"));
        match way {
            "Forever::closing" => {
                forever.closing().await;
                Ok(())
            }
            "Forever::is_closing" => is_closed(forever.is_closing(), "it runs on".to_owned()),
            "wait, begun before" | "wait" => {
                forever.fiber::<waits_for_ever>("other").wait().await.map_or_else(of_fiber, |()| Err("it ended".into()))
            }
            "await of a spawn" | "run" => forever.run(waits_for_ever()).await.map_or_else(of_fiber, |()| Err("it ended".into())),
            "spawn" => forever.spawn(waits_for_ever()).await.map_or_else(of_call, |_| Err("it was spawned".into())),
            "spawn of an agent" => clerk.spawn(waits_for_ever()).await.map_or_else(of_call, |_| Err("it was spawned".into())),
            "spawn_closure" => {
                let spawned = forever.spawn_closure("one", async |_| Ok::<_, forever::Error>(())).start().await;
                spawned.map_or_else(of_call, |_| Err("it was spawned".into()))
            }
            "stream" => forever.stream::<u32>("other", "lines", 0).next().await.map_or_else(of_call, |item| Err(format!("{item:?}"))),
            "wake" => clerk.wake().await.map(drop).map_or_else(of_call, |()| Err("it was woken".into())),
            "connect" => clerk.connect().await.map(drop).map_or_else(of_call, |()| Err("it is connected".into())),
            "recv of a connection" => {
                while connection.recv().await.is_some() {}
                Ok(())
            }
            "call" => clerk.call::<u32>("add", 1).await.map_or_else(of_call, |sum| Err(format!("{sum}"))),
            "submit" => {
                let submitted = clerk.submit("second", [UiMessage::user("u2", "hello")]).await;
                submitted.map(drop).map_or_else(of_call, |()| Err("it was accepted".into()))
            }
            "turn" => loop {
                match turn.as_mut().expect("it is followed").next().await {
                    Ok(Some(_)) => {}
                    Ok(None) => break Err("it ended".into()),
                    Err(error) => break of_call(error),
                }
            },
            other => unreachable!("{other}"),
        }
    }

    async fn value(&self, way: &str) -> String {
        if !self.closes {
            return "whole".to_owned();
        }
        match self.learns(way).await {
            Ok(()) => "a part".to_owned(),
            Err(other) => other,
        }
    }

    /// Ends when the runtime closes, of which it learns elsewhere, after a call that succeeds.
    async fn value_of_code_that_does_not_learn(&self) -> String {
        if !self.closes {
            return "run again".to_owned();
        }
        let (forever, mut told) = (self.forever(), self.told.subscribe());
        self.begun.lock().unwrap().push("does not learn".to_owned());
        let _ = told.wait_for(|told| *told).await;
        match forever.agent::<Clerk>("ada").state().await {
            Ok(_) => "stored".to_owned(),
            Err(error) => error.to_string(),
        }
    }
}

#[fiber]
async fn waits_for_ever() -> Result<(), BoxError> {
    let _: u32 = recv!("nothing");
    Ok(())
}

#[fiber]
async fn learns(life: Res<Life>, way: String) -> Result<String, BoxError> {
    let value = step!("learn", life.value(&way).await);
    Ok(value)
}

#[fiber]
async fn learns_in_an_effect(life: Res<Life>, way: String) -> Result<String, BoxError> {
    let value = step!("learn", effect, life.value(&way).await);
    Ok(value)
}

#[fiber]
async fn does_not_learn(life: Res<Life>) -> Result<String, BoxError> {
    let value = step!("work", life.value_of_code_that_does_not_learn().await);
    Ok(value)
}

async fn open(folder: &std::path::Path, closes: bool) -> (Forever, Life) {
    let life = Life { closes, forever: Arc::default(), begun: Arc::default(), told: watch::Sender::new(false) };
    let builder = Forever::builder().sqlite(folder.join("fibers.db")).resource(life.clone()).chat_agent(|_: AgentHandle<Clerk>| Clerk);
    let builder = builder.callable("add", Clerk::add).fiber::<waits_for_ever>();
    let forever = builder.fiber::<learns>().fiber::<learns_in_an_effect>().fiber::<does_not_learn>().open().await.unwrap();
    *life.forever.lock().unwrap() = Some(forever.clone());
    let (closing, told) = (forever.clone(), life.told.clone());
    tokio::spawn(async move {
        closing.closing().await;
        told.send_replace(true);
    });
    (forever, life)
}

/// Closes the runtime while `fiber` is under way, and gives its value in the next one.
async fn over_a_close<F: forever::fiber::Fiber<Output = String>>(way: &str, call: F) -> String {
    let folder = tempfile::tempdir().unwrap();
    let (forever, life) = open(folder.path(), true).await;
    forever.spawn(waits_for_ever()).id("other").await.unwrap();
    forever.spawn(call).id("f").await.unwrap();
    eventually(way, async || !life.begun.lock().unwrap().is_empty()).await;
    life.forever.lock().unwrap().take();
    soon(way, forever.close().deadline(Duration::from_secs(60))).await.unwrap();
    drop(forever);
    let (forever, life) = open(folder.path(), false).await;
    let value = soon(way, forever.fiber::<F>("f").wait()).await.unwrap();
    life.forever.lock().unwrap().take();
    forever.close().await.unwrap();
    value
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn value_of_code_that_learns_of_the_close_by_any_call_is_not_stored() {
    let mut stored = Vec::new();
    for way in WAYS {
        let value = over_a_close(way, learns(way.to_owned())).await;
        if value != "whole" {
            stored.push(format!("{way}: {value}"));
        }
    }
    assert_eq!(stored, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn value_of_an_effect_and_of_code_that_does_not_learn_of_the_close_is_stored() {
    assert_eq!(over_a_close("spawn", learns_in_an_effect("spawn".to_owned())).await, "a part");
    assert_eq!(over_a_close("does not learn", does_not_learn()).await, "stored");
}
