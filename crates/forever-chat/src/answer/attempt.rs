//! One attempt to answer a turn: runs the hook until it ends or is stopped, and settles the turn
//! unless it was interrupted.
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use forever_runtime::__layers::secret::shown;
use forever_runtime::__layers::{ContextOfLayer, Engine, Exit, HeldAgent, race};
use forever_runtime::fiber::FiberContext;
use forever_runtime::store::TurnState;
use forever_runtime::{BoxError, Error, ErrorKind, Result};
use futures_util::FutureExt;
use tracing::warn;

use crate::answer::frame::TurnFrame;
use crate::answer::prepare::delay;
use crate::answer::settle::Settled;
use crate::answer::turn_fiber::{Attempted, Interrupted};
use crate::chat_agent::{ErrorClass, is_interruption};
use crate::hooks::ChatHooks;
use crate::recovery::RecoveryPolicy;
use crate::registry::{ChatRegistry, UnderWay};
use crate::turn::Turn;
use crate::user_code::text_of;

/// One attempt to answer a turn.
pub(super) struct Attempt<'a> {
    pub(super) engine: &'a Engine,
    pub(super) chats: &'a Arc<ChatRegistry>,
    pub(super) policy: &'a RecoveryPolicy,
    pub(super) under_way: &'a UnderWay,
    pub(super) hooks: Arc<dyn ChatHooks>,
    /// Keeps the agent in memory.
    pub(super) _woken: HeldAgent,
    pub(super) turn: Turn,
    /// Number of attempts without progress, including this one.
    pub(super) attempts: u32,
}

impl Attempt<'_> {
    /// Hands the turn to its agent, and settles it unless it is interrupted.
    pub(super) async fn run(self, frame: &mut TurnFrame<'_>) -> Result<Attempted> {
        let (ctx, grace) = (frame.ctx, self.engine.cancel_grace());
        let runs = &self.turn.inner().runs;
        let mut served = pin!(frame.serve(&self.turn).fuse());
        let heard = self.hear(ctx, served.as_mut()).await;
        // The runs may hold the lock that settling waits for, so they are polled on.
        let runs_on = async {
            served.as_mut().await;
            std::future::pending().await
        };
        let attempted = first(pin!(self.answered(ctx, heard)), pin!(runs_on)).await?;
        if matches!(attempted, Attempted::Over(_)) && runs.is_to_stop() {
            // The hook is asked to stop, and has this much time for it.
            ctx.ask_to_stop();
            let ended = race(served, runs.idle());
            let grace = race(self.engine.clock().sleep(grace), self.engine.closing());
            race(ended, async {
                grace.await;
            })
            .await;
        }
        Ok(attempted)
    }

    /// Settles the turn by how its hook ended, unless it is interrupted.
    async fn answered(&self, ctx: &FiberContext, ended: Heard) -> Result<Attempted> {
        let inner = self.turn.inner();
        let ended = match ended {
            Heard::Answered(said) if self.engine.is_closing() && (said.is_err() || inner.has_seen_closing() || ctx.ended_early()) => {
                Heard::Closing
            }
            ended => ended,
        };
        if matches!(ended, Heard::Closing) {
            // While the turn takes their results.
            self.operations_over(ctx).await;
            // What cannot be stored was not shown.
            let _ = self.turn.flush().await;
        }
        let settled_calls = {
            // Waits for a concurrent writer, so that its answer is right: its chunk is in the
            // message, or is refused.
            let mut stream = inner.stream.lock().await;
            // A hook that has nothing more to write settles open calls all the same.
            let repairs = matches!(ended, Heard::Answered(Ok(()))) && !inner.runs_fiber.load(Ordering::Acquire);
            let settled_calls = if repairs { inner.repair(&mut stream) } else { Ok(()) };
            inner.open.send_replace(false);
            settled_calls
        };
        if let Err(error) = settled_calls {
            return self.over_or(error).await;
        }
        let mut cause = None;
        let (state, reason) = match ended {
            Heard::Answered(Ok(())) => (TurnState::Completed, None),
            Heard::Answered(Err(error)) => {
                if let Some(over) = self.over().await? {
                    return Ok(Attempted::Over(over));
                }
                if is_interruption(&error) {
                    return Err(Error::new(ErrorKind::Store, "a turn was interrupted").with_source(error));
                }
                match self.hooks.classify(&error) {
                    ErrorClass::Transient(wait) => {
                        let delay = Some(delay(self.policy, self.attempts + 1, wait));
                        return self.interrupted(ctx.secret_text(text_of(&error)), delay).await;
                    }
                    ErrorClass::ContextOverflow | ErrorClass::Terminal => {
                        let text = ctx.secret_text(text_of(&error));
                        warn!(turn.id = self.turn.id(), error = shown(&text), "a turn has failed");
                        cause = Some(text);
                        (TurnState::Error, Some(self.hooks.client_error_text(&error)))
                    }
                }
            }
            Heard::Cancelled(reason) => (TurnState::Aborted, Some(reason.to_string())),
            Heard::Silent(gap) => return self.interrupted(format!("its stream was silent for {gap:?}"), None).await,
            Heard::Closing => return Err(Error::closed()),
            Heard::Stopped(exit) => {
                if let Err(error) = self.turn.flush().await {
                    return self.over_or(error).await;
                }
                return match (self.over().await?, exit) {
                    (Some(over), _) => Ok(Attempted::Over(over)),
                    (None, Exit::Interrupted(error)) => Err(Error::new(ErrorKind::Store, "a turn was interrupted").with_source(error)),
                    (None, exit) => Ok(Attempted::Stopped(exit)),
                };
            }
        };
        if let Err(error) = inner.writer.flush().await {
            return self.over_or(error).await;
        }
        let mut stream = inner.stream.lock().await;
        let (state, reason) = match &stream.error {
            // An error that was written ends the turn, whatever the hook returns after it.
            Some(text) if state != TurnState::Aborted => (TurnState::Error, Some(text.clone())),
            _ if stream.aborted && state == TurnState::Completed => (TurnState::Aborted, None),
            _ => (state, reason),
        };
        let message = stream.builder.message().clone();
        drop(stream);
        let settled = Settled {
            engine: self.engine,
            chats: self.chats,
            by: Some(&inner.fence),
            row: &inner.row,
            incident: inner.recovery.is_some(),
            error: cause.as_deref(),
        };
        let reason = match (state, &reason) {
            (TurnState::Completed, None) if message.parts.is_empty() => Some("no response was generated by the agent"),
            _ => reason.as_deref(),
        };
        settled.with(state, reason, message).await.map(Attempted::Over)
    }

    /// Runs the hook until it ends or is stopped.
    async fn hear(&self, ctx: &FiberContext, served: impl Future<Output = Exit>) -> Heard {
        let silent = async {
            let Some(gap) = self.policy.stall_timeout else { return std::future::pending().await };
            let mut pulse = self.turn.inner().pulse.subscribe();
            loop {
                let limit = pulse.borrow_and_update().limit(gap);
                let heard = pulse.changed();
                let silent = match limit {
                    Some(limit) => race(heard, self.engine.clock().sleep(limit)).await.is_none(),
                    None => heard.await.is_err(),
                };
                if silent {
                    return gap;
                }
            }
        };
        let stop = async {
            let fiber_cancelled = async {
                ctx.cancelled().await;
                Heard::Cancelled("its fiber was cancelled".into())
            };
            let told = async { Heard::Cancelled(self.under_way.cancelled().await) };
            let silent = async { Heard::Silent(silent.await) };
            let closing = async {
                self.engine.closing().await;
                if self.turn.inner().listens_for_closing() {
                    std::future::pending::<()>().await;
                }
                self.operations_over(ctx).await;
                Heard::Closing
            };
            first(pin!(first(pin!(told), pin!(fiber_cancelled))), pin!(first(pin!(silent), pin!(closing)))).await
        };
        let answered = async { Heard::Answered(self.hooks.message(&self.turn).await) };
        let stopped = async {
            match served.await {
                Exit::Failed(why) => Heard::Answered(Err(String::from(&*why).into())),
                exit => Heard::Stopped(exit),
            }
        };
        first(pin!(first(pin!(answered), pin!(stopped))), pin!(stop)).await
    }

    /// Ready when nothing that the hook runs is in the middle of an operation. One that is cut off
    /// would be in doubt, and no other one begins while the runtime closes.
    async fn operations_over(&self, ctx: &FiberContext) {
        race(self.turn.inner().runs.idle(), ctx.operations_over()).await;
    }

    /// Ends the attempt. Everything written so far is stored; the next attempt continues after it.
    async fn interrupted(&self, why: String, delay: Option<Duration>) -> Result<Attempted> {
        if let Err(error) = self.turn.flush().await {
            return self.over_or(error).await;
        }
        warn!(turn.id = self.turn.id(), why = shown(&why), "a turn was interrupted");
        let runs = self.turn.inner().runs.is_under_way();
        Ok(Attempted::Interrupted { interrupted: Interrupted::here(why, delay), runs })
    }

    /// If the turn has ended meanwhile, which explains the error, its end; otherwise the error.
    async fn over_or(&self, error: Error) -> Result<Attempted> {
        self.over().await?.map(Attempted::Over).ok_or(error)
    }

    /// State of the turn if other code has ended it meanwhile.
    async fn over(&self) -> Result<Option<TurnState>> {
        let row = self.engine.store().turn_by_seq(self.turn.inner().row.seq).await?;
        let Some(row) = row else { return Ok(Some(TurnState::Aborted)) };
        if row.state.is_settled() {
            self.chats.ended(&row);
            return Ok(Some(row.state));
        }
        Ok(None)
    }
}

/// Reason why the hook ended.
enum Heard {
    Answered(Result<(), BoxError>),
    Cancelled(Arc<str>),
    Silent(Duration),
    Closing,
    /// A run of the hook ends the activation.
    Stopped(Exit),
}

async fn first<T>(one: impl Future<Output = T> + Unpin, other: impl Future<Output = T> + Unpin) -> T {
    futures_util::future::select(one, other).await.factor_first().0
}
