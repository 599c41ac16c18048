//! Preparation of an attempt: whether there is one, its starting point, and its agent.
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forever_runtime::__layers::secret::shown;
use forever_runtime::__layers::{Engine, Fence, HeldAgent, chain, race};
use forever_runtime::store::{AgentId, IncidentRow, TurnKind, TurnRow, TurnStart, TurnState};
use forever_runtime::{Error, ErrorKind, Result};
use tokio::sync::watch;
use tracing::warn;

use crate::agent_loop::AgentLoop;
use crate::answer::attempt::Attempt;
use crate::answer::frame::TurnFrame;
use crate::answer::settle::Settled;
use crate::answer::transcript::{Asked, Transcript};
use crate::answer::turn_fiber::{Attempted, Before, Interrupted};
use crate::feed::ChatEvent;
use crate::hooks::ChatHooks;
use crate::message::Continuation;
use crate::recovery::incident::{Facts, judge};
use crate::recovery::{ChatRecovery, Exhausted, ExhaustedReason, RecoveryPolicy};
use crate::registry::{ChatRegistry, UnderWay};
use crate::turn;
use crate::turn::{HeardOfClosing, Stream, Turn};
use crate::user_code::text_of;
use crate::writer::Writer;

/// Maximum wait between two attempts.
const LONGEST_DELAY: Duration = Duration::from_secs(60);

/// Why there is no attempt.
pub(super) enum Not {
    /// The turn has ended, or is to be tried again.
    Made(Attempted),
    Failed(Error),
}

impl Not {
    fn again(interrupted: Interrupted) -> Self {
        Not::Made(Attempted::Interrupted { interrupted, runs: false })
    }
}

impl From<Error> for Not {
    fn from(error: Error) -> Self {
        Not::Failed(error)
    }
}

/// A turn that has begun.
pub(super) struct Preparing<'a> {
    engine: &'a Engine,
    chats: &'a Arc<ChatRegistry>,
    fence: &'a Arc<Fence>,
    policy: &'a RecoveryPolicy,
    before: &'a Before,
    row: TurnRow,
    asked: Asked,
    incident: Option<IncidentRow>,
    answered: Transcript,
    /// Whether it had begun before.
    again: bool,
    /// Amount of work, to measure progress: chunks, and checkpoints of the hook's runs.
    work: u64,
    /// Attempts without progress, including this one.
    attempts: u32,
}

impl<'a> Preparing<'a> {
    /// Loads the state of the turn. A turn that was cancelled, or has its complete answer, ends
    /// here.
    pub(super) async fn load(
        engine: &'a Engine,
        chats: &'a Arc<ChatRegistry>,
        fence: &'a Arc<Fence>,
        policy: &'a RecoveryPolicy,
        begun: TurnStart,
        before: &'a Before,
        frame: &TurnFrame<'_>,
    ) -> Result<Self, Not> {
        let TurnStart { row, request, chunks, incident, again } = begun;
        let answered = Transcript::load(engine, &row, &chunks).await?;
        let mut asked = Asked::read(request, row.kind == TurnKind::Continue)?;
        if let Some(looped) = engine.resource::<AgentLoop>() {
            // A client cannot replace a tool that runs here.
            asked.client_tools.retain(|tool| !looped.has_tool(&tool.name));
        }
        let work = answered.stored.saturating_add(frame.checkpoints());
        let mut this = Preparing { engine, chats, fence, policy, before, row, asked, incident, answered, again, work, attempts: 0 };
        if let Some(reason) = this.row.cancel.clone() {
            return Err(this.ends(TurnState::Aborted, Some(&reason)).await);
        }
        let waits = !frame.has_call() && this.answered.waits_for_a_person(&this.asked.client_tools);
        if again && (this.answered.finished || waits) {
            // No further model call is needed: the answer is complete, or the rest follows after a
            // person's answer.
            return Err(this.ends(TurnState::Completed, None).await);
        }
        Ok(this)
    }

    /// Prepares everything that an attempt needs.
    pub(super) async fn attempt(mut self, under_way: &'a UnderWay, frame: &TurnFrame<'_>) -> Result<Attempt<'a>, Not> {
        let (mut recovery, mut asks) = (None, false);
        match self.before {
            Before::Interrupted(before) if self.again => {
                let (this, context) = self.judged(before).await?;
                (self, recovery, asks) = (this, Some(context), true);
            }
            Before::Parked if self.again => recovery = Some(self.context("its fiber was parked")),
            _ => {}
        }
        let (woken, hooks) = match wake(self.engine, self.chats, self.policy, &self.row.chat).await {
            Ok(awake) => awake,
            Err(error) if error.is_closed() || self.engine.is_closing() => return Err(error.into()),
            Err(error) => {
                let why = chain(&error);
                warn!(turn.id = %self.row.id, error = why, "the agent of a turn could not be woken");
                let interrupted = Interrupted::here(why, Some(delay(self.policy, self.attempts + 1, None)));
                return Err(Not::again(Interrupted { asleep: true, ..interrupted }));
            }
        };
        if let Some(context) = recovery.as_mut().filter(|_| asks) {
            self = self.asks(&*hooks, context).await?;
        }
        Ok(self.turn(recovery, woken, hooks, under_way, frame))
    }

    /// The state in which the turn was interrupted, for the hook.
    fn context(&mut self, why: &str) -> ChatRecovery {
        let deaths = self.row.deaths.saturating_sub(1);
        self.answered.recovery(&self.row, &self.asked, self.policy, self.attempts, deaths, why)
    }

    /// Counts the interruption; a turn that has used up its budget ends here.
    async fn judged(mut self, before: &Interrupted) -> Result<(Self, ChatRecovery), Not> {
        let Preparing { engine, fence, policy, .. } = self;
        let deaths = self.row.deaths.saturating_sub(1);
        let facts = Facts { how: before.how, chunks: self.answered.stored, work: self.work, deaths, now_ms: engine.now_ms() };
        let (mut incident, mut exhausted) = judge(policy, self.incident.as_ref(), facts);
        if before.asleep && exhausted.is_some() {
            exhausted = Some(ExhaustedReason::StableTimeout);
        }
        self.attempts = incident.attempts;
        let context = self.context(&before.why);
        if exhausted.is_none() && incident.attempts > 1 {
            match policy.keeps(&context).await {
                Ok(true) => {}
                Ok(false) => exhausted = Some(ExhaustedReason::RecoveryAborted),
                Err(why) => warn!(turn.id = %self.row.id, error = text_of(&why), "`should_keep_recovering` failed"),
            }
        }
        incident.reason = exhausted.map(|why| why.as_str().to_owned());
        fence.guard(engine.store().store_incident(fence.claim(), self.row.seq, incident.clone(), engine.now_ms())).await?;
        self.incident = Some(incident);
        self.chats.feeds.tell(&self.row.chat, || ChatEvent::Recovering { turn: self.row.id.clone(), recovering: true });
        let Some(reason) = exhausted else { return Ok((self, context)) };
        warn!(turn.id = %self.row.id, %reason, why = shown(&before.why), "an interrupted turn is given up");
        let settled = Settled { engine, chats: self.chats, by: Some(fence), row: &self.row, incident: true, error: Some(&before.why) };
        let state = settled.given_up(policy, reason, self.answered.builder.into_message()).await?;
        if let Err(why) = policy.tell_exhausted(Exhausted { reason, recovery: context }).await {
            warn!(turn.id = %self.row.id, error = text_of(&why), "`on_exhausted` failed");
        }
        Err(Not::Made(Attempted::Over(state)))
    }

    /// Asks the agent how to recover the turn.
    async fn asks(mut self, hooks: &dyn ChatHooks, context: &mut ChatRecovery) -> Result<Self, Not> {
        let limit = self.engine.hook_timeout();
        let failed = |why: String| {
            let delay = Some(delay(self.policy, self.attempts, None));
            Err(Not::again(Interrupted::here(why, delay)))
        };
        let options = match race(hooks.recovery(context), self.engine.clock().sleep(limit)).await {
            Some(Ok(options)) => options,
            Some(Err(why)) => return failed(format!("`on_chat_recovery` failed: {}", text_of(&why))),
            None => return failed(format!("`on_chat_recovery` took longer than {limit:?}")),
        };
        if !options.persist {
            self.answered.forget_all_but_results();
            context.partial = self.answered.partial().to_vec();
        }
        if !options.continue_turn {
            return Err(self.ends(TurnState::Interrupted, Some(&context.reason)).await);
        }
        Ok(self)
    }

    fn turn(
        self,
        recovery: Option<ChatRecovery>,
        woken: HeldAgent,
        hooks: Arc<dyn ChatHooks>,
        under_way: &'a UnderWay,
        frame: &TurnFrame<'_>,
    ) -> Attempt<'a> {
        let Preparing { engine, chats, fence, policy, row, asked, answered, attempts, .. } = self;
        let log = chats.logs.of(row.seq);
        log.learn(answered.stored);
        let writer = Writer::new(engine.clone(), Arc::clone(fence), row.seq, log, answered.stored, chats.settings.batching);
        let continues = recovery.is_some() || row.kind == TurnKind::Continue;
        let stream = Stream {
            continuation: continues.then(|| Continuation::of(&answered.builder)),
            builder: answered.builder,
            error: None,
            aborted: false,
            started: answered.stored > 0,
            unrepaired: recovery.is_some(),
            steps_before: answered.steps_before,
            steps: answered.steps,
        };
        let turn = Turn::new(turn::Inner {
            engine: engine.clone(),
            fence: Arc::clone(fence),
            row,
            messages: answered.before,
            body: asked.body,
            client_tools: asked.client_tools,
            recovery,
            stash: Mutex::new(asked.stash),
            writer,
            stream: tokio::sync::Mutex::new(stream),
            cancelled: under_way.asked.clone(),
            closing: HeardOfClosing::default(),
            pulse: watch::Sender::default(),
            open: watch::Sender::new(true),
            runs_fiber: AtomicBool::new(false),
            runs: frame.runs(),
            fiber: frame.ctx.id().to_owned(),
            hooks: Arc::clone(&hooks),
        });
        under_way.answers(&turn.inner().row.chat, &turn);
        Attempt { engine, chats, policy, under_way, hooks, _woken: woken, turn, attempts }
    }

    /// Ends the turn before an attempt.
    async fn ends(self, state: TurnState, reason: Option<&str>) -> Not {
        let settled = Settled {
            engine: self.engine,
            chats: self.chats,
            by: Some(self.fence),
            row: &self.row,
            incident: self.incident.is_some(),
            error: None,
        };
        match settled.with(state, reason, self.answered.builder.into_message()).await {
            Ok(state) => Not::Made(Attempted::Over(state)),
            Err(error) => Not::Failed(error),
        }
    }
}

/// How long to wait before the next attempt after a transient error.
pub(super) fn delay(policy: &RecoveryPolicy, attempts: u32, told: Option<Duration>) -> Duration {
    told.unwrap_or_else(|| policy.retry_delay.saturating_mul(1 << attempts.saturating_sub(1).min(10)).min(LONGEST_DELAY))
}

/// Wakes the agent of a turn.
async fn wake(engine: &Engine, chats: &ChatRegistry, policy: &RecoveryPolicy, chat: &AgentId) -> Result<(HeldAgent, Arc<dyn ChatHooks>)> {
    let woken = match race(chats.agents()?.wake(engine, chat), engine.clock().sleep(policy.stable_timeout)).await {
        Some(woken) => woken?,
        None => return Err(Error::new(ErrorKind::Agent, format!("agent `{chat}` was not awake after {:?}", policy.stable_timeout))),
    };
    let hooks = chats.class(&chat.class)?.hooks(woken.agent()).ok_or_else(|| {
        let why = format!("agent class `{}` is registered for chat with another type than for `.agent(..)`", chat.class);
        Error::new(ErrorKind::NotRegistered, why)
    })?;
    Ok((woken, hooks))
}
