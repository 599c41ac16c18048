//! The trait of a chat agent.
use std::future::Future;
use std::time::Duration;

use forever_runtime::agent::Agent;
use forever_runtime::{BoxError, Error};

use crate::message::{Part, Repair};
use crate::model::{ModelError, ModelErrorKind};
use crate::recovery::{ChatRecovery, ChatRecoveryOptions, RecoveryPolicy};
use crate::turn::Turn;
use crate::user_code;

/// An agent that people chat with.
///
/// A request becomes a *turn*. It is accepted and stored, queued behind earlier turns, and answered
/// by [`on_chat_message`](ChatAgent::on_chat_message), which writes chunks. Each chunk is stored
/// before any client sees it. If the process dies, the turn resumes in the next one: the same turn,
/// the same message, the same log.
///
/// ```
/// use forever::chat::message::{Chunk, UiMessage};
/// use forever::chat::{ChatAgent, Turn};
/// use forever::prelude::*;
/// use forever::BoxError;
/// use forever::agent::Agent;
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
///         // After an interruption it continues where it was.
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
    /// Answers a turn: writes the chunks of the answer. When it returns, the turn is over.
    ///
    /// After an interruption it runs again from its beginning. Then [`Turn::is_continuation`] is
    /// true, [`Turn::message`] is the answer so far, and [`Turn::recovery`] has details.
    fn on_chat_message(&self, turn: &Turn) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// Decides how to recover an interrupted turn. By default it continues from the answer so far.
    /// An error counts as one more interruption.
    fn on_chat_recovery(&self, recovery: &ChatRecovery) -> impl Future<Output = Result<ChatRecoveryOptions, BoxError>> + Send {
        let _ = recovery;
        async { Ok(ChatRecoveryOptions::default()) }
    }

    /// Limits of the recovery of an interrupted turn.
    fn recovery() -> RecoveryPolicy {
        RecoveryPolicy::default()
    }

    /// Maximum number of queued turns of one chat. Defaults to 256.
    ///
    /// A further request is refused with an error of kind [`Busy`](forever_runtime::ErrorKind::Busy), and its
    /// messages are not stored. Clients of the server are refused in the same way. The continuation
    /// of a turn after an answer to a tool call is never refused.
    fn max_queued_turns() -> u32 {
        MAX_QUEUED_TURNS
    }

    /// Decides the result of a tool call that was interrupted before it had one. By default the
    /// call has failed.
    fn repair_interrupted_tool(&self, call: &Part) -> Repair {
        let _ = call;
        Repair::Interrupted
    }

    /// Classifies the error of a failed turn. By default a [`ModelError`] is classified by its
    /// kind, and every other error ends the turn.
    fn classify_error(&self, error: &BoxError) -> ErrorClass {
        ErrorClass::of(error)
    }

    /// Text shown to clients for an error that ends a turn. An error that the program wrote itself,
    /// as [`Chunk::error`](super::message::Chunk::error), is shown unchanged.
    fn client_error_text(&self, error: &BoxError) -> String {
        let _ = error;
        user_code::USUAL_TEXT.to_owned()
    }
}

/// Default of [`ChatAgent::max_queued_turns`].
pub(super) const MAX_QUEUED_TURNS: u32 = 256;

/// Class of the error of a failed turn.
///
/// ```
/// # use forever::BoxError;
/// # use forever::agent::Agent;
/// use forever::chat::{ChatAgent, ErrorClass, Turn};
/// use std::io::{Error, ErrorKind};
/// use std::time::Duration;
///
/// # struct Concierge;
/// # impl Agent for Concierge {
/// #     const CLASS: &'static str = "concierge";
/// #     type State = ();
/// # }
/// # impl ChatAgent for Concierge {
/// #     async fn on_chat_message(&self, _: &Turn) -> Result<(), BoxError> { Ok(()) }
/// // In `impl ChatAgent for Concierge`:
/// fn classify_error(&self, error: &BoxError) -> ErrorClass {
///     match error.downcast_ref::<Error>().map(Error::kind) {
///         Some(ErrorKind::TimedOut) => ErrorClass::Transient(Some(Duration::from_secs(5))),
///         // The errors of the library's models.
///         _ => ErrorClass::of(error),
///     }
/// }
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorClass {
    /// The turn is retried, after this time if the provider has given one.
    Transient(Option<Duration>),
    /// The conversation is too long for the model.
    ContextOverflow,
    /// The turn ends.
    Terminal,
}

impl ErrorClass {
    /// Classifies an error by its type.
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

/// Whether the turn itself cannot retry this error: the store failed, or the runtime is closing.
pub(super) fn is_interruption(error: &BoxError) -> bool {
    let ours = error.downcast_ref::<Error>();
    ours.is_some_and(Error::is_of_store)
}
