//! Recovery policy: how long a turn is continued that is interrupted again and again, and who
//! decides.
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use forever_runtime::__layers::secret::told;
use forever_runtime::__layers::unreadable;
use forever_runtime::store::BoxFuture;
use forever_runtime::{BoxError, Error, ErrorKind, Result};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::message::{Part, UiMessage};
use crate::model::ToolSpec;
use crate::user_code::awaited;

/// Limits for the recovery of an interrupted turn.
///
/// A turn that makes progress, however slowly, is never ended by time or by the number of attempts;
/// progress means that chunks of it were stored. The number of processes that died during it is
/// limited all the same, and so is its total work.
///
/// A class returns it from [`ChatAgent::recovery`](crate::ChatAgent::recovery):
///
/// ```
/// use forever::chat::RecoveryPolicy;
/// use std::time::Duration;
///
/// /// For a model that answers within seconds, or not at all.
/// fn recovery() -> RecoveryPolicy {
///     RecoveryPolicy::default()
///         .max_attempts(3)
///         .stall_timeout(Duration::from_secs(30))
///         .terminal_message("Sorry, I could not finish this answer.")
/// }
/// ```
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
    exhausted: Option<OnExhausted>,
}

type Keep = Arc<dyn Fn(ChatRecovery) -> BoxFuture<'static, Result<bool, BoxError>> + Send + Sync>;
type OnExhausted = Arc<dyn Fn(Exhausted) -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>;

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
    /// Sets the maximum number of attempts without progress. Defaults to 10.
    pub fn max_attempts(mut self, max_attempts: u32) -> Self {
        self.max_attempts = max_attempts;
        self
    }

    /// Sets how long the agent may take to wake for an attempt. Defaults to 10 s. After that the
    /// attempt is repeated later, and counts.
    pub fn stable_timeout(mut self, stable_timeout: Duration) -> Self {
        self.stable_timeout = stable_timeout;
        self
    }

    /// Sets the maximum time without progress, from the second attempt on. Defaults to 5 min.
    pub fn no_progress_timeout(mut self, no_progress_timeout: Duration) -> Self {
        self.no_progress_timeout = no_progress_timeout;
        self
    }

    /// Sets how many chunks and checkpoints of the hook's runs may be stored after the first
    /// interruption. Defaults to 10 000. This stops a runaway turn.
    pub fn max_recovery_work(mut self, max_recovery_work: u64) -> Self {
        self.max_recovery_work = max_recovery_work;
        self
    }

    /// Sets how many processes may die during the turn. Defaults to 5. Progress does not reset the
    /// count.
    pub fn max_deaths(mut self, max_deaths: u32) -> Self {
        self.max_deaths = max_deaths;
        self
    }

    /// Sets the time within which successive interruptions by the end of the process count as one
    /// attempt. Defaults to 30 s. A deploy may restart a service several times.
    pub fn debounce(mut self, debounce: Duration) -> Self {
        self.debounce = debounce;
        self
    }

    /// Sets how long to wait before the next attempt after a transient error. Defaults to 1 s,
    /// doubled each time, up to a minute. A wait that the provider asks for takes precedence.
    pub fn retry_delay(mut self, retry_delay: Duration) -> Self {
        self.retry_delay = retry_delay;
        self
    }

    /// Sets how long a stream may be silent before it counts as interrupted. Defaults to no limit.
    /// For an [`AgentLoop`](crate::AgentLoop) this is the model's stream: its tools, and its
    /// pauses before a model is called again, may take any time.
    pub fn stall_timeout(mut self, gap: Duration) -> Self {
        self.stall_timeout = Some(gap);
        self
    }

    /// Sets the text shown to the person when the turn is given up.
    pub fn terminal_message(mut self, text: impl Into<String>) -> Self {
        self.terminal_message = text.into();
        self
    }

    /// Sets a function that decides, from the second attempt on, whether to continue; the turn ends
    /// when it returns `false`. If it fails, the turn continues.
    pub fn should_keep_recovering<F, B>(mut self, ask: F) -> Self
    where
        F: Fn(ChatRecovery) -> B + Send + Sync + 'static,
        B: Future<Output = Result<bool, BoxError>> + Send + 'static,
    {
        self.keep = Some(Arc::new(move |recovery| Box::pin(ask(recovery))));
        self
    }

    /// Sets a function that is called once when a turn was given up, after that is stored; not at
    /// all if the process dies in between.
    pub fn on_exhausted<F, B>(mut self, tell: F) -> Self
    where
        F: Fn(Exhausted) -> B + Send + Sync + 'static,
        B: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        self.exhausted = Some(Arc::new(move |exhausted| Box::pin(tell(exhausted))));
        self
    }

    /// Asks the program whether to continue.
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

/// Starting point of a recovery.
///
/// See [`ChatRecovery`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecoveryKind {
    /// No chunk of the answer was stored: it is requested again.
    Retry,
    /// There is a partial answer, which is continued.
    Continue,
}

/// State of an interrupted turn before it is continued.
///
/// ```
/// # use forever::BoxError;
/// # use forever::agent::Agent;
/// use forever::chat::{ChatAgent, ChatRecovery, ChatRecoveryOptions, RecoveryKind, Turn};
///
/// # struct Concierge;
/// # impl Agent for Concierge {
/// #     const CLASS: &'static str = "concierge";
/// #     type State = ();
/// # }
/// # impl ChatAgent for Concierge {
/// #     async fn on_chat_message(&self, _: &Turn) -> Result<(), BoxError> { Ok(()) }
/// // In `impl ChatAgent for Concierge`:
/// async fn on_chat_recovery(
///     &self,
///     recovery: &ChatRecovery,
/// ) -> Result<ChatRecoveryOptions, BoxError> {
///     let options = ChatRecoveryOptions::default();
///     Ok(match recovery.kind() {
///         RecoveryKind::Retry => options,
///         // Half a sentence is thrown away, and answered anew.
///         RecoveryKind::Continue => options.persist(recovery.partial_text().len() > 200),
///     })
/// }
/// # }
/// ```
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
    /// Id of the interruption: the same for all attempts to recover one turn.
    pub fn incident_id(&self) -> String {
        format!("incident-{}", self.turn)
    }

    /// Id of the turn, under which clients know its stream.
    pub fn request_id(&self) -> &str {
        &self.turn
    }

    /// The same as [`request_id`](Self::request_id): a turn has one stream, however often it is
    /// interrupted.
    pub fn stream_id(&self) -> &str {
        &self.turn
    }

    /// Starting point of the recovery.
    pub fn kind(&self) -> RecoveryKind {
        self.kind
    }

    /// Number of this attempt, from 1; starts again at 1 after progress.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Maximum number of attempts without progress.
    pub fn max_attempts(&self) -> u32 {
        self.max_attempts
    }

    /// Number of processes that died during the turn.
    pub fn deaths(&self) -> u32 {
        self.deaths
    }

    /// Reason of the interruption.
    pub fn reason(&self) -> &str {
        told(&self.reason)
    }

    /// The text of the answer so far.
    pub fn partial_text(&self) -> String {
        self.partial.iter().filter_map(Part::as_text).collect()
    }

    /// The parts of the answer so far.
    pub fn partial_parts(&self) -> &[Part] {
        &self.partial
    }

    /// The last stash of the turn.
    ///
    /// # Errors
    /// When it cannot be read as a `V`.
    pub fn recovery_data<V: DeserializeOwned>(&self) -> Result<Option<V>> {
        let Some(text) = &self.data else { return Ok(None) };
        forever_json::from_str(text)
            .map(Some)
            .map_err(|why| Error::new(ErrorKind::Value, format!("what turn `{}` stashed {}", self.turn, unreadable::<V>(why))))
    }

    /// The messages before the answer.
    pub fn messages(&self) -> &[UiMessage] {
        &self.messages
    }

    /// Body of the turn's request.
    pub fn last_body(&self) -> Option<&Value> {
        self.body.as_ref()
    }

    /// Tools of the turn's client.
    pub fn last_client_tools(&self) -> &[ToolSpec] {
        &self.client_tools
    }

    /// When the turn was accepted, UTC.
    pub fn created_at(&self) -> SystemTime {
        self.created
    }
}

/// How to recover an interrupted turn.
///
/// See [`ChatRecovery`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChatRecoveryOptions {
    /// Whether the partial answer is kept. The results of tools always are. Applies to all parts so
    /// far, at each interruption.
    pub persist: bool,
    /// Whether the turn continues. Otherwise it ends as interrupted.
    pub continue_turn: bool,
}

impl Default for ChatRecoveryOptions {
    fn default() -> Self {
        ChatRecoveryOptions { persist: true, continue_turn: true }
    }
}

impl ChatRecoveryOptions {
    /// Sets whether the partial answer is kept.
    pub fn persist(mut self, persist: bool) -> Self {
        self.persist = persist;
        self
    }

    /// Sets whether the turn continues.
    pub fn continue_turn(mut self, continue_turn: bool) -> Self {
        self.continue_turn = continue_turn;
        self
    }
}

/// Reason to give a turn up.
///
/// ```
/// use forever::chat::{Exhausted, ExhaustedReason};
///
/// fn alert(turn: &Exhausted) -> Option<String> {
///     match turn.reason() {
///         ExhaustedReason::DeathsExceeded => Some("a turn kills the process".to_owned()),
///         ExhaustedReason::RecoveryAborted => None,
///         reason => Some(format!("a turn was given up: {reason}")),
///     }
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExhaustedReason {
    /// No progress for too long.
    NoProgressTimeout,
    /// Too many attempts without progress.
    MaxAttemptsExceeded,
    /// Too much was stored after the first interruption.
    WorkBudgetExceeded,
    /// `should_keep_recovering` returned `false`.
    RecoveryAborted,
    /// The agent was not awake in time.
    StableTimeout,
    /// Too many processes died during the turn.
    DeathsExceeded,
}

impl ExhaustedReason {
    /// The value, as stored and sent.
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
///
/// ```
/// use forever::chat::RecoveryPolicy;
///
/// /// Returned from `ChatAgent::recovery`.
/// fn recovery() -> RecoveryPolicy {
///     RecoveryPolicy::default().on_exhausted(|exhausted| async move {
///         let turn = exhausted.recovery();
///         eprintln!("turn {}: {} ({})", turn.request_id(), exhausted.reason(), turn.reason());
///         Ok(())
///     })
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Exhausted {
    pub(crate) reason: ExhaustedReason,
    pub(crate) recovery: ChatRecovery,
}

impl Exhausted {
    /// Reason why it was given up.
    pub fn reason(&self) -> ExhaustedReason {
        self.reason
    }

    /// The interruption after which it was given up.
    pub fn recovery(&self) -> &ChatRecovery {
        &self.recovery
    }
}
