//! How long a turn that is interrupted again and again is gone on with, and who is asked.
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::agent::BoxError;
use crate::chat::message::{Part, UiMessage};
use crate::chat::model::ToolSpec;
use crate::chat::user_code::awaited;
use crate::error::{Error, ErrorKind, Result};
use crate::exact;
use crate::frame::saved::unreadable;
use crate::future::BoxFuture;

/// What a turn that was interrupted is given to go on.
///
/// A turn that comes further, however slowly, is never ended by time or by the number of attempts; it has come further when chunks of it
/// were stored. How many processes have died with it is counted all the same, and what it spends in all is bounded.
#[derive(Clone)]
#[must_use]
pub struct RecoveryPolicy {
    pub(crate) max_attempts: u32,
    pub(crate) stable_timeout: Duration,
    pub(crate) no_progress_timeout: Duration,
    pub(crate) max_recovery_work: u64,
    pub(crate) max_deaths: u32,
    pub(crate) debounce: Duration,
    pub(crate) retry_delay: Duration,
    pub(crate) stall_timeout: Option<Duration>,
    pub(crate) terminal_message: String,
    keep: Option<Keep>,
    exhausted: Option<Told>,
}

type Keep = Arc<dyn Fn(ChatRecovery) -> BoxFuture<'static, Result<bool, BoxError>> + Send + Sync>;
type Told = Arc<dyn Fn(Exhausted) -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>;

impl Default for RecoveryPolicy {
    fn default() -> Self {
        RecoveryPolicy {
            max_attempts: 10,
            stable_timeout: Duration::from_secs(10),
            no_progress_timeout: Duration::from_secs(5 * 60),
            max_recovery_work: 10_000,
            max_deaths: 5,
            debounce: Duration::from_secs(30),
            stall_timeout: None,
            retry_delay: Duration::from_secs(1),
            terminal_message: "The answer was interrupted and could not be completed. Please try again.".to_owned(),
            keep: None,
            exhausted: None,
        }
    }
}

impl RecoveryPolicy {
    /// How many attempts there may be without progress; 10 unless this is called.
    pub fn max_attempts(mut self, max_attempts: u32) -> Self {
        self.max_attempts = max_attempts;
        self
    }

    /// How long the agent may take to come into memory for an attempt; 10 s unless this is called. Then it is tried again, later, which counts as an
    /// attempt.
    pub fn stable_timeout(mut self, stable_timeout: Duration) -> Self {
        self.stable_timeout = stable_timeout;
        self
    }

    /// How long there may be no progress, from the second attempt on; 5 min unless this is called.
    pub fn no_progress_timeout(mut self, no_progress_timeout: Duration) -> Self {
        self.no_progress_timeout = no_progress_timeout;
        self
    }

    /// Sets how many chunks and checkpoints of what the hook runs may be stored after the first
    /// interruption. Defaults to 10 000. A runaway turn ends there.
    pub fn max_recovery_work(mut self, max_recovery_work: u64) -> Self {
        self.max_recovery_work = max_recovery_work;
        self
    }

    /// How many processes may die with the turn under way; 5 unless this is called. Progress does not reset it.
    pub fn max_deaths(mut self, max_deaths: u32) -> Self {
        self.max_deaths = max_deaths;
        self
    }

    /// Interruptions by the end of the process that follow each other within this time count as one attempt; 30 s unless this is called. A deploy may
    /// restart a service several times.
    pub fn debounce(mut self, debounce: Duration) -> Self {
        self.debounce = debounce;
        self
    }

    /// How long to wait before the next attempt after an error that may pass, doubled each time, up to a minute; 1 s unless this is called. A provider
    /// that says how long to wait is believed.
    pub fn retry_delay(mut self, retry_delay: Duration) -> Self {
        self.retry_delay = retry_delay;
        self
    }

    /// How long a stream may be silent before it counts as interrupted; without a limit unless this is called. Of an
    /// [`AgentLoop`](crate::chat::AgentLoop) it is the model's stream: its tools, and its pauses before a model is asked again, take as long as they take.
    pub fn stall_timeout(mut self, gap: Duration) -> Self {
        self.stall_timeout = Some(gap);
        self
    }

    /// What the person is told when the turn is given up.
    pub fn terminal_message(mut self, text: impl Into<String>) -> Self {
        self.terminal_message = text.into();
        self
    }

    /// Is asked from the second attempt on whether to go on; the turn ends when it says `false`. If it fails, the turn goes on.
    pub fn should_keep_recovering<F, B>(mut self, ask: F) -> Self
    where
        F: Fn(ChatRecovery) -> B + Send + Sync + 'static,
        B: Future<Output = Result<bool, BoxError>> + Send + 'static,
    {
        self.keep = Some(Arc::new(move |recovery| Box::pin(ask(recovery))));
        self
    }

    /// Hears that a turn was given up, once, after that is stored; not at all if the process dies in between.
    pub fn on_exhausted<F, B>(mut self, tell: F) -> Self
    where
        F: Fn(Exhausted) -> B + Send + Sync + 'static,
        B: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        self.exhausted = Some(Arc::new(move |exhausted| Box::pin(tell(exhausted))));
        self
    }

    /// Whether to go on, as far as the program is asked.
    pub(crate) async fn keeps(&self, recovery: &ChatRecovery) -> Result<bool, BoxError> {
        match &self.keep {
            Some(ask) => awaited(|| ask(recovery.clone())).await,
            None => Ok(true),
        }
    }

    pub(crate) async fn tell_exhausted(&self, exhausted: Exhausted) -> Result<(), BoxError> {
        match &self.exhausted {
            Some(tell) => awaited(|| tell(exhausted)).await,
            None => Ok(()),
        }
    }
}

impl fmt::Debug for RecoveryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecoveryPolicy")
            .field("max_attempts", &self.max_attempts)
            .field("no_progress_timeout", &self.no_progress_timeout)
            .field("max_recovery_work", &self.max_recovery_work)
            .field("max_deaths", &self.max_deaths)
            .finish_non_exhaustive()
    }
}

/// Where an interrupted turn is taken up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecoveryKind {
    /// Nothing of the answer was stored: it is asked for again.
    Retry,
    /// There is a partial answer, which is continued.
    Continue,
}

/// An interrupted turn that is about to be gone on with.
#[derive(Debug, Clone)]
pub struct ChatRecovery {
    pub(crate) turn: String,
    pub(crate) kind: RecoveryKind,
    pub(crate) attempt: u32,
    pub(crate) max_attempts: u32,
    pub(crate) deaths: u32,
    pub(crate) partial: Vec<Part>,
    pub(crate) data: Option<String>,
    pub(crate) messages: Vec<UiMessage>,
    pub(crate) body: Option<Value>,
    pub(crate) client_tools: Vec<ToolSpec>,
    pub(crate) created: SystemTime,
    pub(crate) reason: String,
}

impl ChatRecovery {
    /// Which interruption it is: the same for all attempts to go on with one turn.
    pub fn incident_id(&self) -> String {
        format!("incident-{}", self.turn)
    }

    /// The id of the turn, under which clients know its stream.
    pub fn request_id(&self) -> &str {
        &self.turn
    }

    /// The same: a turn has one stream, however often it is interrupted.
    pub fn stream_id(&self) -> &str {
        &self.turn
    }

    /// Where it is taken up.
    pub fn kind(&self) -> RecoveryKind {
        self.kind
    }

    /// Which attempt this is, from 1; it is 1 again after progress.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// How many there may be without progress.
    pub fn max_attempts(&self) -> u32 {
        self.max_attempts
    }

    /// How many processes have died with the turn under way.
    pub fn deaths(&self) -> u32 {
        self.deaths
    }

    /// Why it was interrupted.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The text that had come.
    pub fn partial_text(&self) -> String {
        self.partial.iter().filter_map(Part::as_text).collect()
    }

    /// Everything that had come.
    pub fn partial_parts(&self) -> &[Part] {
        &self.partial
    }

    /// What the turn stashed last.
    ///
    /// # Errors
    /// When it cannot be read as a `V`.
    pub fn recovery_data<V: DeserializeOwned>(&self) -> Result<Option<V>> {
        let Some(text) = &self.data else { return Ok(None) };
        exact::from_str(text)
            .map(Some)
            .map_err(|why| Error::new(ErrorKind::Value, format!("what turn `{}` stashed {}", self.turn, unreadable::<V>(why))))
    }

    /// The messages before the answer.
    pub fn messages(&self) -> &[UiMessage] {
        &self.messages
    }

    /// What was asked with.
    pub fn last_body(&self) -> Option<&Value> {
        self.body.as_ref()
    }

    /// The tools that the client had.
    pub fn last_client_tools(&self) -> &[ToolSpec] {
        &self.client_tools
    }

    /// When the turn was accepted, UTC.
    pub fn created_at(&self) -> SystemTime {
        self.created
    }
}

/// What becomes of an interrupted turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChatRecoveryOptions {
    /// Whether the partial answer is kept. The results of tools always are. Asked of everything that has come, at each interruption.
    pub persist: bool,
    /// Whether the turn goes on. Otherwise it ends as interrupted.
    pub continue_turn: bool,
}

impl Default for ChatRecoveryOptions {
    fn default() -> Self {
        ChatRecoveryOptions { persist: true, continue_turn: true }
    }
}

impl ChatRecoveryOptions {
    /// Whether the partial answer is kept.
    pub fn persist(mut self, persist: bool) -> Self {
        self.persist = persist;
        self
    }

    /// Whether the turn goes on.
    pub fn continue_turn(mut self, continue_turn: bool) -> Self {
        self.continue_turn = continue_turn;
        self
    }
}

/// Why a turn was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExhaustedReason {
    /// There was no progress for too long.
    NoProgressTimeout,
    /// There were too many attempts without progress.
    MaxAttemptsExceeded,
    /// Too much was stored after the first interruption.
    WorkBudgetExceeded,
    /// `should_keep_recovering` has said so.
    RecoveryAborted,
    /// The agent did not come into memory in time.
    StableTimeout,
    /// Too many processes have died with it.
    DeathsExceeded,
}

impl ExhaustedReason {
    /// The word, as stored and told.
    pub fn as_str(self) -> &'static str {
        match self {
            ExhaustedReason::NoProgressTimeout => "no_progress_timeout",
            ExhaustedReason::MaxAttemptsExceeded => "max_attempts_exceeded",
            ExhaustedReason::WorkBudgetExceeded => "work_budget_exceeded",
            ExhaustedReason::RecoveryAborted => "recovery_aborted",
            ExhaustedReason::StableTimeout => "stable_timeout",
            ExhaustedReason::DeathsExceeded => "deaths_exceeded",
        }
    }
}

impl fmt::Display for ExhaustedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A turn that was given up.
#[derive(Debug, Clone)]
pub struct Exhausted {
    pub(crate) reason: ExhaustedReason,
    pub(crate) recovery: ChatRecovery,
}

impl Exhausted {
    /// Why.
    pub fn reason(&self) -> ExhaustedReason {
        self.reason
    }

    /// The interruption after which it was.
    pub fn recovery(&self) -> &ChatRecovery {
        &self.recovery
    }
}
