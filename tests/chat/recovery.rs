//! Interruptions: who is asked, what they are told, and when it is over. The numbers are those of the cases in docs/guarantees.md.
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use forever::chat::message::{Chunk, Part, Role, ToolState, UiMessage};
use forever::chat::model::ToolSpec;
use forever::chat::{
    ChatAgent, ChatRecovery, ChatRecoveryOptions, ErrorClass, Exhausted, RecoveryKind, RecoveryPolicy, Turn, TurnHandle, TurnState,
};
use forever::testing::VirtualClock;
use forever::{Agent, AgentHandle, BoxError, Builder, Forever};
use serde_json::{Value, json};

use crate::scripted::{Passing, Seen, told};

type Answers = dyn Fn(Turn, u32) -> Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>> + Send + Sync;
type Decides = dyn Fn(&ChatRecovery) -> Result<ChatRecoveryOptions, BoxError> + Send + Sync;

/// An agent whose hooks a test brings along.
#[derive(Clone)]
struct Hooks {
    seen: Seen,
    /// Given the turn, and how often it was asked before.
    answers: Arc<Answers>,
    decides: Arc<Decides>,
    starts: Arc<dyn Fn(usize) -> Result<(), BoxError> + Send + Sync>,
}

impl Hooks {
    fn new<B: Future<Output = Result<(), BoxError>> + Send + 'static>(answers: impl Fn(Turn, u32) -> B + Send + Sync + 'static) -> Self {
        Hooks {
            seen: Seen::default(),
            answers: Arc::new(move |turn, before| Box::pin(answers(turn, before))),
            decides: Arc::new(|_| Ok(ChatRecoveryOptions::default())),
            starts: Arc::new(|_| Ok(())),
        }
    }

    fn decides(mut self, decides: impl Fn(&ChatRecovery) -> Result<ChatRecoveryOptions, BoxError> + Send + Sync + 'static) -> Self {
        self.decides = Arc::new(decides);
        self
    }

    fn builder(&self) -> Builder {
        let hooks = self.clone();
        Forever::builder().turn_batching(1, Duration::ZERO).chat_agent(move |_| Hooked(hooks.clone()))
    }
}

struct Hooked(Hooks);

thread_local! {
    /// The policy of the test; its runtime has one thread.
    static POLICY: RefCell<RecoveryPolicy> = RefCell::new(RecoveryPolicy::default());
}

fn policy(policy: RecoveryPolicy) {
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
struct Place {
    folder: tempfile::TempDir,
    clock: VirtualClock,
}

impl Place {
    fn new() -> Self {
        Place { folder: tempfile::tempdir().unwrap(), clock: VirtualClock::new() }
    }

    async fn open(&self, hooks: &Hooks) -> (Forever, AgentHandle<Hooked>) {
        let forever = hooks.builder().sqlite(self.folder.path().join("chat.db")).clock(self.clock.clone()).open().await.unwrap();
        let agent = forever.agent::<Hooked>("a");
        (forever, agent)
    }

    /// Lets time pass until something is so.
    async fn until(&self, so: impl Fn() -> bool) {
        while !so() {
            self.clock.advance(Duration::from_millis(500));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Lets time pass until the turn has ended.
    async fn ended(&self, turn: &TurnHandle) -> forever::chat::TurnEnd {
        let passes = async {
            loop {
                self.clock.advance(Duration::from_millis(500));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            end = turn.wait() => end.unwrap(),
            () = passes => unreachable!(),
        }
    }
}

async fn ask(agent: &AgentHandle<Hooked>, body: Value) -> TurnHandle {
    agent.save_messages([UiMessage::user("u", "hi")]).id("r").body(&body).await.unwrap()
}

async fn says(turn: &Turn, words: &[&str]) -> Result<(), BoxError> {
    turn.write(Chunk::text_start("t")).await?;
    for word in words {
        turn.write(Chunk::text_delta("t", *word)).await?;
    }
    turn.flush().await?;
    Ok(())
}

async fn last(agent: &AgentHandle<Hooked>) -> UiMessage {
    agent.messages().await.unwrap().pop().unwrap()
}

#[tokio::test]
async fn case_63_117_122_the_recovery_knows_everything_that_there_was() {
    let place = Place::new();
    let hooks = Hooks::new(|turn, before| async move {
        if before == 0 {
            says(&turn, &["half ", "an answer"]).await?;
            turn.stash(&json!({ "cursor": 7 })).await?;
            turn.write(Chunk::data("ready", None, json!(1))).await?;
            turn.flush().await?;
            std::future::pending::<()>().await;
        }
        let recovery = turn.recovery().unwrap();
        assert_eq!(recovery.kind(), RecoveryKind::Continue);
        assert_eq!(recovery.incident_id(), "incident-r");
        assert_eq!((recovery.request_id(), recovery.stream_id()), ("r", "r"));
        assert_eq!((recovery.attempt(), recovery.max_attempts(), recovery.deaths()), (1, 10, 1));
        assert_eq!(recovery.partial_text(), "half an answer");
        assert_eq!(recovery.partial_parts().len(), 2);
        assert_eq!(recovery.recovery_data::<Value>().unwrap(), Some(json!({ "cursor": 7 })));
        assert_eq!(recovery.messages()[0].text(), "hi");
        assert_eq!(recovery.last_body(), Some(&json!({ "model": "m" })));
        assert_eq!(recovery.last_client_tools()[0].name, "location");
        assert_eq!(turn.stashed::<Value>().unwrap(), Some(json!({ "cursor": 7 })));
        assert!(turn.is_continuation());
        says(&turn, &[", and the other half"]).await
    });
    let (forever, agent) = place.open(&hooks).await;
    let location = ToolSpec { name: "location".into(), ..ToolSpec::default() };
    let asked = agent.save_messages([UiMessage::user("u", "hi")]).id("r").body(&json!({ "model": "m" })).client_tools([location]);
    let turn = asked.await.unwrap();
    let mut follow = turn.follow(0).await.unwrap();
    for _ in 0..5 {
        follow.next().await.unwrap();
    }
    drop((follow, turn, agent, forever));
    let (_forever, agent) = place.open(&hooks).await;
    let turn = agent.turn("r").await.unwrap().unwrap();
    let end = turn.wait().await.unwrap();
    assert!(end.is_completed(), "{end:?}");
    assert_eq!(agent.messages().await.unwrap().len(), 2, "the question is not doubled");
    assert!(last(&agent).await.text().starts_with("half an answer, and"));
}

#[tokio::test]
async fn case_70_an_error_of_should_keep_recovering_means_yes() {
    policy(RecoveryPolicy::default().max_attempts(4).should_keep_recovering(|_| async { Err("nobody knows".into()) }));
    let place = Place::new();
    let hooks = Hooks::new(|turn, before| async move { if before < 3 { Err(Passing.into()) } else { says(&turn, &["done"]).await } });
    let (_forever, agent) = place.open(&hooks).await;
    assert!(place.ended(&ask(&agent, json!({})).await).await.is_completed());
}

#[tokio::test]
async fn case_71_should_keep_recovering_is_asked_from_the_second_attempt_on() {
    let asked = Seen::default();
    let of_policy = asked.clone();
    policy(RecoveryPolicy::default().terminal_message("over").should_keep_recovering(move |recovery: ChatRecovery| {
        of_policy.note(format!("{}", recovery.attempt()));
        async { Ok(false) }
    }));
    let place = Place::new();
    let hooks = Hooks::new(|_, _| async { Err(Passing.into()) });
    let (_forever, agent) = place.open(&hooks).await;
    let end = place.ended(&ask(&agent, json!({})).await).await;
    assert_eq!((end.state(), end.reason()), (TurnState::Error, Some("over")));
    assert_eq!(asked.all(), ["2"]);
    assert_eq!(hooks.seen.count("asked"), 2, "once, and once more");
}

#[tokio::test]
async fn case_77_an_agent_that_does_not_wake_is_tried_again_and_then_the_turn_is_given_up() {
    let reasons = Seen::default();
    let of_policy = reasons.clone();
    let given_up = RecoveryPolicy::default().max_attempts(3).terminal_message("not there").on_exhausted(move |exhausted: Exhausted| {
        of_policy.note(exhausted.reason().as_str());
        async { Ok(()) }
    });
    policy(given_up);
    let place = Place::new();
    let mut hooks = Hooks::new(|turn, _| async move { says(&turn, &["here"]).await });
    hooks.starts = Arc::new(|_| Err("no connection".into()));
    let (_forever, agent) = place.open(&hooks).await;
    let end = place.ended(&ask(&agent, json!({})).await).await;
    assert_eq!((end.state(), end.reason()), (TurnState::Error, Some("not there")));
    assert_eq!(reasons.all(), ["stable_timeout"]);
    // One that wakes after a while answers.
    let mut late = Hooks::new(|turn, _| async move { says(&turn, &["here"]).await });
    late.starts = Arc::new(|starts| if starts < 3 { Err("no connection".into()) } else { Ok(()) });
    let place = Place::new();
    let (_forever, agent) = place.open(&late).await;
    assert!(place.ended(&ask(&agent, json!({})).await).await.is_completed());
}

#[tokio::test]
async fn case_81_a_turn_is_given_up_although_on_exhausted_fails() {
    policy(RecoveryPolicy::default().max_attempts(1).terminal_message("over").on_exhausted(|_| async { Err("no".into()) }));
    let place = Place::new();
    let hooks = Hooks::new(|turn, before| async move {
        if before == 0 {
            says(&turn, &["partial"]).await?;
        }
        Err(Passing.into())
    });
    let (_forever, agent) = place.open(&hooks).await;
    let turn = ask(&agent, json!({})).await;
    assert_eq!(place.ended(&turn).await.reason(), Some("over"));
    assert_eq!(told(&turn).await, "start|text-start|partial|error(over)");
    assert_eq!(last(&agent).await.text(), "partial", "what there was is kept");
}

#[tokio::test]
async fn case_83_results_of_tools_are_kept_whatever_the_hook_says_of_the_rest() {
    let place = Place::new();
    let hooks = Hooks::new(|turn, before| async move {
        if before == 0 {
            says(&turn, &["thinking"]).await?;
            turn.write(Chunk::text_end("t")).await?;
            turn.write(Chunk::tool_input_available("c", "charge", json!({}))).await?;
            turn.write(Chunk::tool_output_available("c", json!("charged"))).await?;
            turn.flush().await?;
            return Err(Passing.into());
        }
        assert_eq!(turn.message().await.parts.len(), 1);
        says(&turn, &["done"]).await
    })
    .decides(|_| Ok(ChatRecoveryOptions::default().persist(false)));
    let (_forever, agent) = place.open(&hooks).await;
    assert!(place.ended(&ask(&agent, json!({})).await).await.is_completed());
    let message = last(&agent).await;
    assert_eq!(message.text(), "done");
    assert_eq!(message.parts[0].get("output"), Some(&json!("charged")));
}

#[tokio::test]
async fn a_turn_that_is_not_to_go_on_ends_as_interrupted() {
    let place = Place::new();
    let hooks = Hooks::new(|turn, _| async move {
        says(&turn, &["partial"]).await?;
        Err(Passing.into())
    })
    .decides(|_| Ok(ChatRecoveryOptions::default().continue_turn(false)));
    let (_forever, agent) = place.open(&hooks).await;
    let end = place.ended(&ask(&agent, json!({})).await).await;
    assert_eq!(end.state(), TurnState::Interrupted);
    assert_eq!(last(&agent).await.text(), "partial");
    assert_eq!(hooks.seen.count("asked"), 1);
}

#[tokio::test]
async fn case_84_a_turn_that_is_given_up_asks_nobody_any_more() {
    policy(RecoveryPolicy::default().max_attempts(2));
    let place = Place::new();
    let hooks = Hooks::new(|_, _| async { Err(Passing.into()) });
    let (_forever, agent) = place.open(&hooks).await;
    assert_eq!(place.ended(&ask(&agent, json!({})).await).await.state(), TurnState::Error);
    let attempts: Vec<_> = hooks.seen.all().into_iter().filter(|seen| seen.starts_with("recovers")).collect();
    assert_eq!(attempts, ["recovers 1", "recovers 2"]);
}

#[tokio::test]
async fn case_85_a_recovery_hook_that_fails_is_one_more_interruption() {
    policy(RecoveryPolicy::default().max_attempts(3));
    let place = Place::new();
    let hooks = Hooks::new(|_, _| async { Err(Passing.into()) }).decides(|_| Err("it fails".into()));
    let (_forever, agent) = place.open(&hooks).await;
    assert_eq!(place.ended(&ask(&agent, json!({})).await).await.state(), TurnState::Error);
    assert_eq!(hooks.seen.count("recovers"), 3);
    assert_eq!(hooks.seen.count("asked"), 1);
}

#[tokio::test]
async fn case_96_121_a_stream_that_falls_silent_is_gone_on_with() {
    policy(RecoveryPolicy::default().stall_timeout(Duration::from_secs(20)));
    let place = Place::new();
    let hooks = Hooks::new(|turn, before| async move {
        if before == 0 {
            says(&turn, &["One "]).await?;
            std::future::pending::<()>().await;
        }
        assert_eq!(turn.recovery().unwrap().reason(), "its stream was silent for 20s");
        says(&turn, &["two"]).await
    });
    let (_forever, agent) = place.open(&hooks).await;
    assert!(place.ended(&ask(&agent, json!({})).await).await.is_completed());
    let message = last(&agent).await;
    assert_eq!((message.text().as_str(), message.parts.len()), ("One two", 1), "in the same part");
}

#[tokio::test]
async fn case_104_105_106_a_turn_that_its_fiber_has_left_is_settled_and_keeps_no_other_waiting() {
    let place = Place::new();
    let hooks = Hooks::new(|turn, _| async move {
        if turn.body().is_some_and(|body| body["speaks"] == true) {
            says(&turn, &["partial"]).await?;
        }
        std::future::pending().await
    });
    for (speaks, messages) in [(true, 2), (false, 1)] {
        let (forever, agent) = place.open(&hooks).await;
        let asked = hooks.seen.count("asked");
        let turn = agent.save_messages([UiMessage::user("u", "hi")]).id(format!("r{speaks}")).body(&json!({ "speaks": speaks }));
        let turn = turn.await.unwrap();
        while hooks.seen.count("asked") == asked {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        if speaks {
            while turn.entries().await.unwrap().len() < 3 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        drop((turn, agent, forever));
        // Somebody ends its fiber behind its back.
        let database = rusqlite::Connection::open(place.folder.path().join("chat.db")).unwrap();
        let ended = database.execute("UPDATE fibers SET state = 'failed', finished_ms = 1 WHERE finished_ms IS NULL", ()).unwrap();
        assert_eq!(ended, 1);
        drop(database);
        let (forever, agent) = place.open(&hooks).await;
        let turn = agent.turn(&format!("r{speaks}")).await.unwrap().unwrap();
        assert_eq!(turn.wait().await.unwrap().state(), TurnState::Interrupted);
        assert_eq!(agent.messages().await.unwrap().len(), messages);
        agent.clear().await.unwrap();
        forever.close().await.unwrap();
    }
}

#[tokio::test]
async fn case_113_a_turn_that_comes_further_is_not_ended_by_time_or_attempts() {
    let place = Place::new();
    let hooks = Hooks::new(|turn, before| async move {
        says(&turn, &["word "]).await?;
        if before < 40 { Err(Passing.into()) } else { Ok(()) }
    });
    let (_forever, agent) = place.open(&hooks).await;
    let turn = ask(&agent, json!({})).await;
    let hours = async {
        loop {
            place.clock.advance(Duration::from_secs(600));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        end = turn.wait() => assert!(end.unwrap().is_completed()),
        () = hours => unreachable!(),
    }
    assert_eq!(last(&agent).await.text().matches("word").count(), 41);
}

#[tokio::test]
async fn case_115_a_new_turn_is_its_own_message_after_one_that_was_left() {
    policy(RecoveryPolicy::default().max_attempts(1));
    let place = Place::new();
    let hooks = Hooks::new(|turn, _| async move {
        says(&turn, &["first"]).await?;
        if turn.id() == "r" { Err("broken".into()) } else { Ok(()) }
    });
    let (_forever, agent) = place.open(&hooks).await;
    place.ended(&ask(&agent, json!({})).await).await;
    let second = agent.save_messages([UiMessage::user("v", "again")]).await.unwrap();
    assert!(place.ended(&second).await.is_completed());
    let messages = agent.messages().await.unwrap();
    assert_eq!(messages.iter().map(|m| m.role).collect::<Vec<_>>(), [Role::User, Role::Assistant].repeat(2));
    assert_ne!(messages[1].id, messages[3].id);
}

#[tokio::test]
async fn case_119_a_dead_tool_of_the_server_is_settled_and_the_turn_goes_on() {
    let place = Place::new();
    let hooks = Hooks::new(|turn, before| async move {
        if before == 0 {
            turn.write(Chunk::tool_input_available("c", "search", json!({}))).await?;
            turn.flush().await?;
            return Err(Passing.into());
        }
        says(&turn, &["without it"]).await
    });
    let (_forever, agent) = place.open(&hooks).await;
    assert!(place.ended(&ask(&agent, json!({})).await).await.is_completed());
    let message = last(&agent).await;
    assert_eq!(message.parts[0].tool_state(), Some(ToolState::OutputError));
    assert_eq!(message.text(), "without it");
    let open = |part: &Part| part.tool_state().is_some_and(|state| !state.is_settled());
    assert!(!message.parts.iter().any(open));
}

#[tokio::test]
async fn a_cancelled_turn_does_not_wait_for_its_next_attempt() {
    policy(RecoveryPolicy::default().retry_delay(Duration::from_secs(60)));
    let place = Place::new();
    let hooks = Hooks::new(|_, _| async { Err(Passing.into()) });
    let (_forever, agent) = place.open(&hooks).await;
    let turn = ask(&agent, json!({})).await;
    while hooks.seen.count("asked") == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // No time passes on the clock.
    turn.cancel("enough").await.unwrap();
    assert_eq!(turn.wait().await.unwrap().state(), TurnState::Aborted);
    place.until(|| true).await;
}
