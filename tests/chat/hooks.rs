//! An agent whose hooks a test brings along, and a database that its processes come and go over.
use std::cell::RefCell;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use forever::agent::{Agent, AgentHandle};
use forever::chat::message::{Chunk, UiMessage};
use forever::chat::{
    ChatAgent, ChatRecovery, ChatRecoveryOptions, Entry, ErrorClass, RecoveryPolicy, Turn, TurnEnd, TurnHandle, TurnState,
};
use forever::prelude::*;
use forever::testing::VirtualClock;
use forever::{BoxError, Builder, Forever};
use forever_testkit::notes::Notes;
use forever_testkit::waiting::{eventually, over_time};
use serde_json::Value;

use crate::scripted::Passing;

type Answers = dyn Fn(Turn, u32) -> Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>> + Send + Sync;
type Decides = dyn Fn(&ChatRecovery) -> Result<ChatRecoveryOptions, BoxError> + Send + Sync;

/// An agent whose hooks a test brings along.
#[derive(Clone)]
pub(crate) struct Hooks {
    pub(crate) seen: Notes,
    /// Given the turn, and how often it was asked before.
    answers: Arc<Answers>,
    decides: Arc<Decides>,
    /// Whether the hook is asked what becomes of a turn, and never says.
    silent: bool,
    pub(crate) starts: Arc<dyn Fn(usize) -> Result<(), BoxError> + Send + Sync>,
}

impl Hooks {
    pub(crate) fn new<B: Future<Output = Result<(), BoxError>> + Send + 'static>(
        answers: impl Fn(Turn, u32) -> B + Send + Sync + 'static,
    ) -> Self {
        Hooks {
            seen: Notes::default(),
            answers: Arc::new(move |turn, before| Box::pin(answers(turn, before))),
            decides: Arc::new(|_| Ok(ChatRecoveryOptions::default())),
            silent: false,
            starts: Arc::new(|_| Ok(())),
        }
    }

    pub(crate) fn decides(
        mut self,
        decides: impl Fn(&ChatRecovery) -> Result<ChatRecoveryOptions, BoxError> + Send + Sync + 'static,
    ) -> Self {
        self.decides = Arc::new(decides);
        self
    }

    pub(crate) fn recovers_never(mut self) -> Self {
        self.silent = true;
        self
    }

    pub(crate) fn builder(&self) -> Builder {
        let hooks = self.clone();
        Forever::builder().turn_batching(1, Duration::ZERO).chat_agent(move |_| Hooked(hooks.clone()))
    }
}

pub(crate) struct Hooked(Hooks);

thread_local! {
    /// The policy of the test; its runtime has one thread.
    static POLICY: RefCell<RecoveryPolicy> = RefCell::new(RecoveryPolicy::default());
}

pub(crate) fn policy(policy: RecoveryPolicy) {
    POLICY.set(policy);
}

impl Agent for Hooked {
    const CLASS: &'static str = "hooked";
    type State = ();

    async fn on_start(&self) -> Result<(), BoxError> {
        self.0.seen.note("starts");
        (self.0.starts)(self.0.seen.count("starts"))
    }
}

impl ChatAgent for Hooked {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        let before = u32::try_from(self.0.seen.count("asked")).unwrap();
        self.0.seen.note("asked");
        (self.0.answers)(turn.clone(), before).await
    }

    async fn on_chat_recovery(&self, recovery: &ChatRecovery) -> Result<ChatRecoveryOptions, BoxError> {
        self.0.seen.note(format!("recovers {}", recovery.attempt()));
        if self.0.silent {
            std::future::pending::<()>().await;
        }
        (self.0.decides)(recovery)
    }

    fn recovery() -> RecoveryPolicy {
        POLICY.with_borrow(Clone::clone)
    }

    fn classify_error(&self, error: &BoxError) -> ErrorClass {
        if error.is::<Passing>() { ErrorClass::Transient(None) } else { ErrorClass::of(error) }
    }
}

/// A database that processes come and go over.
pub(crate) struct Place {
    folder: tempfile::TempDir,
    pub(crate) clock: VirtualClock,
}

impl Place {
    pub(crate) fn new() -> Self {
        Place { folder: tempfile::tempdir().unwrap(), clock: VirtualClock::new() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("chat.db")
    }

    pub(crate) async fn open(&self, hooks: &Hooks) -> (Forever, AgentHandle<Hooked>) {
        let forever = hooks.builder().sqlite(self.path()).clock(self.clock.clone()).open().await.unwrap();
        let agent = forever.agent::<Hooked>("a");
        (forever, agent)
    }

    /// Lets time pass until the turn has ended.
    pub(crate) async fn ended(&self, turn: &TurnHandle) -> TurnEnd {
        self.ended_after(turn, Duration::from_millis(500)).await
    }

    /// The same, so much time at once.
    pub(crate) async fn ended_after(&self, turn: &TurnHandle, step: Duration) -> TurnEnd {
        over_time("the end of a turn", turn.wait(), || self.clock.advance(step)).await.unwrap()
    }
}

pub(crate) async fn ask(agent: &AgentHandle<Hooked>, body: Value) -> TurnHandle {
    agent.save_messages([UiMessage::user("u", "hi")]).id("r").body(&body).await.unwrap()
}

pub(crate) async fn says(turn: &Turn, words: &[&str]) -> Result<(), BoxError> {
    turn.write(Chunk::text_start("t")).await?;
    for word in words {
        turn.write(Chunk::text_delta("t", *word)).await?;
    }
    turn.flush().await?;
    Ok(())
}

/// Waits until so many entries of a log are stored.
pub(crate) async fn shown(turn: &TurnHandle, count: usize) -> Vec<Entry> {
    let (mut follow, mut entries) = (turn.follow(0).await.unwrap(), Vec::new());
    while entries.len() < count {
        entries.push(follow.next().await.unwrap().expect("the turn ends before"));
    }
    entries
}

/// What is left of a log, from an entry on to the end.
pub(crate) async fn rest(turn: &TurnHandle, from: u64) -> Vec<Entry> {
    let (mut follow, mut entries) = (turn.follow(from).await.unwrap(), Vec::new());
    while let Some(entry) = follow.next().await.unwrap() {
        entries.push(entry);
    }
    entries
}

/// Waits until the hook has been asked so often.
pub(crate) async fn asked(hooks: &Hooks, times: usize) {
    eventually("a question to the hook", async || hooks.seen.count("asked") >= times).await;
}

/// Waits until a turn is being answered.
pub(crate) async fn begun(turn: &TurnHandle) {
    eventually("the beginning of a turn", async || turn.status().await.unwrap().state() == TurnState::Running).await;
}

/// The first process: a turn `r` that is interrupted, as by a SIGKILL, when it has shown so many entries.
pub(crate) async fn killed(place: &Place, hooks: &Hooks, entries: usize) -> Vec<Entry> {
    let (_forever, agent) = place.open(hooks).await;
    let turn = ask(&agent, Value::Null).await;
    asked(hooks, 1).await;
    shown(&turn, entries).await
}

/// The turn `r`.
pub(crate) async fn turn(agent: &AgentHandle<Hooked>) -> TurnHandle {
    agent.turn("r").await.unwrap().unwrap()
}

pub(crate) async fn last(agent: &AgentHandle<Hooked>) -> UiMessage {
    agent.messages().await.unwrap().pop().unwrap()
}
