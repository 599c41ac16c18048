//! Calls of methods by name, in one process.
use std::sync::{Arc, Mutex};

use forever_runtime::agent::{Agent, AgentHandle};
use forever_runtime::testing::VirtualClock;
use forever_runtime::{BoxError, Builder, ErrorKind, Forever};
use forever_testkit::waiting::settled;
use tokio::sync::Semaphore;

use super::SECOND;

/// Writes down the words that it is told, each when there is a permit.
struct Scribe {
    me: AgentHandle<Scribe>,
    permits: Arc<Semaphore>,
    begun: Arc<Mutex<Vec<String>>>,
}

impl Agent for Scribe {
    const CLASS: &'static str = "scribe";
    type State = Vec<String>;
}

impl Scribe {
    async fn write(self: Arc<Self>, word: String) -> Result<usize, BoxError> {
        self.begun.lock().unwrap().push(word.clone());
        self.permits.acquire().await?.forget();
        let mut words = self.me.state().await?;
        words.push(word);
        self.me.set_state(&words).await?;
        Ok(words.len())
    }

    /// Calls the agents one after the other: the first of them calls the rest.
    async fn pass(self: Arc<Self>, mut names: Vec<String>) -> Result<String, BoxError> {
        if names.is_empty() {
            return Ok(self.me.name().to_owned());
        }
        let next: AgentHandle<Scribe> = Self::other(&names.remove(0));
        Ok(next.call("pass", names).await?)
    }

    fn other(name: &str) -> AgentHandle<Scribe> {
        OTHERS.with_borrow(|forever| forever.as_ref().unwrap().agent(name))
    }
}

thread_local! {
    /// Tests run on one thread each.
    static OTHERS: std::cell::RefCell<Option<Forever>> = const { std::cell::RefCell::new(None) };
}

#[derive(Clone)]
struct Desk {
    clock: VirtualClock,
    permits: Arc<Semaphore>,
    begun: Arc<Mutex<Vec<String>>>,
}

impl Desk {
    fn new(permits: usize) -> Self {
        Desk { clock: VirtualClock::new(), permits: Arc::new(Semaphore::new(permits)), begun: Arc::default() }
    }

    fn builder(&self) -> Builder {
        let (permits, begun) = (Arc::clone(&self.permits), Arc::clone(&self.begun));
        let make = move |me| Scribe { me, permits: Arc::clone(&permits), begun: Arc::clone(&begun) };
        Forever::builder().clock(self.clock.clone()).in_memory().agent(make)
    }

    async fn open(&self) -> Forever {
        let forever = self.builder().callable("write", Scribe::write).callable("pass", Scribe::pass).open().await.unwrap();
        OTHERS.with_borrow_mut(|others| *others = Some(forever.clone()));
        forever
    }

    fn begun(&self) -> Vec<String> {
        self.begun.lock().unwrap().clone()
    }

    async fn until_begun(&self, words: &[&str]) {
        while self.begun() != words {
            settled().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn calls_of_one_agent_are_carried_out_one_at_a_time_in_their_order() {
    let desk = Desk::new(0);
    let forever = desk.open().await;
    let ada = forever.agent::<Scribe>("ada");
    let _awake = ada.wake().await.unwrap();
    let calls: Vec<_> = ["a", "b", "c"].map(|word| tokio::spawn(ada.call::<usize>("write", word).into_future())).into();
    desk.until_begun(&["a"]).await;
    // Those of another agent do not wait for it.
    let other = tokio::spawn(forever.agent::<Scribe>("tom").call::<usize>("write", "t").into_future());
    desk.until_begun(&["a", "t"]).await;
    desk.permits.add_permits(4);
    for (call, sum) in calls.into_iter().zip(1..) {
        assert_eq!(call.await.unwrap().unwrap(), sum);
    }
    assert_eq!(other.await.unwrap().unwrap(), 1);
    assert_eq!(ada.state().await.unwrap(), ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn call_that_is_late_or_dropped_never_begins_and_one_that_has_begun_ends() {
    let desk = Desk::new(0);
    let forever = desk.open().await;
    let ada = forever.agent::<Scribe>("ada");
    let call = |word: &str| tokio::spawn(ada.call::<usize>("write", word).within(10 * SECOND).into_future());
    let first = call("first");
    desk.until_begun(&["first"]).await;
    let (late, dropped) = (call("late"), call("dropped"));
    settled().await;
    dropped.abort();
    assert!(dropped.await.is_err());
    desk.clock.advance(11 * SECOND);
    let late = late.await.unwrap().unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Timeout, "{late}");
    assert_eq!(late.to_string(), "method `write` of agent `scribe/ada` did not begin within 10s, and never will");
    let first = first.await.unwrap().unwrap_err();
    assert!(first.is_outcome_unknown(), "{first}");
    desk.permits.add_permits(10);
    assert_eq!(ada.call::<usize>("write", "last").await.unwrap(), 2, "the first one has ended");
    assert_eq!(desk.begun(), ["first", "last"]);
}

#[tokio::test(start_paused = true)]
async fn circle_of_calls_is_an_error() {
    let desk = Desk::new(0);
    let forever = desk.open().await;
    let pass = async |names: &[&str]| forever.agent::<Scribe>("a").call::<String>("pass", names).within(10 * SECOND).await;
    assert_eq!(pass(&["b", "c"]).await.unwrap(), "c");
    for circle in [&["a"][..], &["b", "a"], &["b", "c", "b"]] {
        let error = pass(circle).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Agent);
        assert!(error.to_string().contains("is called by a method of its own, which would wait for itself"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn names_of_methods_are_checked_when_the_runtime_opens() {
    let desk = Desk::new(0);
    for (builder, wrong) in [
        (desk.builder().callable("", Scribe::write), "the name of a method of agent class `scribe` must not be empty"),
        (desk.builder().callable("forever.write", Scribe::write), "the name of a method must not begin with `forever.`: `forever.write`"),
        (
            desk.builder().callable("write", Scribe::write).callable("write", Scribe::pass),
            "two methods of agent class `scribe` are called `write`",
        ),
    ] {
        let error = builder.open().await.unwrap_err();
        assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Setup, wrong));
    }
}
