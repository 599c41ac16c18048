//! A chat agent, as the program writes it.
use std::future::Future;
use std::time::Duration;

use crate::agent::{Agent, BoxError};
use crate::chat::message::{Part, Repair};
use crate::chat::model::{ModelError, ModelErrorKind};
use crate::chat::recovery::{ChatRecovery, ChatRecoveryOptions, RecoveryPolicy};
use crate::chat::turn::Turn;
use crate::chat::user_code;
use crate::error::Error;

/// An agent that people talk to.
///
/// What it is asked becomes a *turn*: accepted and stored, queued behind the turns before it, and answered by
/// [`on_chat_message`](ChatAgent::on_chat_message), which writes chunks. Each chunk is stored before anybody sees it. When the process dies
/// the turn goes on in the next one: the same turn, the same message, the same log.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::chat::message::{Chunk, UiMessage};
/// use forever::chat::{ChatAgent, Turn};
/// use forever::{Agent, AgentHandle, BoxError, Forever};
///
/// struct Echo;
///
/// impl Agent for Echo {
///     const CLASS: &'static str = "echo";
///     type State = ();
/// }
///
/// impl ChatAgent for Echo {
///     async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
///         let said = turn.messages().last().map(UiMessage::text).unwrap_or_default();
///         turn.write(Chunk::text_start("t")).await?;
///         // After an interruption it goes on where it was.
///         for word in said.split_inclusive(' ').skip(turn.text().split_inclusive(' ').count()) {
///             turn.write(Chunk::text_delta("t", word)).await?;
///         }
///         turn.write(Chunk::text_end("t")).await?;
///         Ok(())
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// let forever = Forever::builder().in_memory().chat_agent(|_| Echo).open().await?;
/// let echo = forever.agent::<Echo>("ada");
/// let turn = echo.save_messages([UiMessage::user("u1", "hello over there")]).await?;
/// assert!(turn.wait().await?.is_completed());
/// assert_eq!(echo.messages().await?[1].text(), "hello over there");
/// forever.close().await
/// # }
/// ```
pub trait ChatAgent: Agent {
    /// Answers. What it writes is the answer; when it returns, the turn is over.
    ///
    /// After an interruption it runs again, from its beginning: [`Turn::is_continuation`] says so, [`Turn::message`] is what there is of the
    /// answer, [`Turn::recovery`] knows more.
    fn on_chat_message(&self, turn: &Turn) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// Says what becomes of a turn that was interrupted: it goes on with what there is, unless this says otherwise. If it fails, that counts
    /// as one more interruption.
    fn on_chat_recovery(&self, recovery: &ChatRecovery) -> impl Future<Output = Result<ChatRecoveryOptions, BoxError>> + Send {
        let _ = recovery;
        async { Ok(ChatRecoveryOptions::default()) }
    }

    /// How long an interrupted turn is gone on with.
    fn recovery() -> RecoveryPolicy {
        RecoveryPolicy::default()
    }

    /// Maximum of questions of one chat that are accepted and have not begun. Defaults to 256.
    ///
    /// A further request is refused with an error of kind [`Busy`](crate::ErrorKind::Busy), and its messages are not stored. Clients
    /// of the server are refused in the same way. The continuation of a turn after an answer to a tool call
    /// is never refused for this.
    fn max_queued_turns() -> u32 {
        MAX_QUEUED_TURNS
    }

    /// Says what becomes of a tool call that was interrupted before it had a result: it has failed, unless this says otherwise.
    fn repair_interrupted_tool(&self, call: &Part) -> Repair {
        let _ = call;
        Repair::Interrupted
    }

    /// Says what becomes of a turn that failed with this error. A [`ModelError`] says of itself whether it may pass; everything else ends the
    /// turn.
    fn classify_error(&self, error: &BoxError) -> ErrorClass {
        ErrorClass::of(error)
    }

    /// What people are told of an error that ends a turn. What the program wrote itself, as [`Chunk::error`](super::message::Chunk::error), they are
    /// told as it is.
    fn client_error_text(&self, error: &BoxError) -> String {
        let _ = error;
        user_code::USUAL_TEXT.to_owned()
    }
}

/// Default of [`ChatAgent::max_queued_turns`].
pub(super) const MAX_QUEUED_TURNS: u32 = 256;

/// What becomes of a turn that has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorClass {
    /// It is tried again, after this time if the provider has said so.
    Transient(Option<Duration>),
    /// The conversation is too long for the model.
    ContextOverflow,
    /// It has ended.
    Terminal,
}

impl ErrorClass {
    /// What an error says of itself.
    pub fn of(error: &BoxError) -> Self {
        let mut next: Option<&(dyn std::error::Error + 'static)> = Some(&**error);
        while let Some(error) = next {
            if let Some(error) = error.downcast_ref::<ModelError>() {
                return match error.kind() {
                    kind if kind.is_transient() => ErrorClass::Transient(error.wait()),
                    ModelErrorKind::ContextOverflow => ErrorClass::ContextOverflow,
                    _ => ErrorClass::Terminal,
                };
            }
            next = error.source();
        }
        ErrorClass::Terminal
    }
}

/// An error of this library that no retry by the turn itself can mend: the store fails, or the runtime closes.
pub(super) fn is_interruption(error: &BoxError) -> bool {
    let ours = error.downcast_ref::<Error>();
    ours.is_some_and(Error::is_of_store)
}
