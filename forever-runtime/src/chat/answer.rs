//! The fiber of a turn: begins it when its time has come, gives it to its agent, goes on after interruptions, and settles it.
//!
//! The fiber keeps nothing by itself: where a turn stands is in its row and its log. So it runs from its start each time it is entered, and asks
//! the store what there is.
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tracing::{debug, warn};

use super::chats::{Chats, UnderWay};
use super::hooks::ChatHooks;
use super::log::{TurnEnd, lines};
use super::message::{Chunk, Continuation, MessageBuilder, Part, Repair, Role, ToolState, UiMessage, repair};
use super::model::ToolSpec;
use super::recovery::incident::{Facts, Interruption, judge};
use super::recovery::{ChatRecovery, Exhausted, ExhaustedReason, RecoveryKind, RecoveryPolicy};
use super::turn::{self, Stream, Turn};
use super::writer::Writer;
use super::{ErrorClass, is_interruption};
use crate::agent::{Agents, Woken};
use crate::clock::from_ms;
use crate::error::{Error, ErrorKind, Result, chain};
use crate::fiber::core::{Core, race};
use crate::fiber::frame::{Frame, Locals, Save, Stopped, Unreadable};
use crate::fiber::machine::{END, Machine};
use crate::fiber::owner::AgentId;
use crate::fiber::{Fiber, FiberContext, Needs};
use crate::store::Wait;
use crate::store::chat::{
    Chunks, IncidentState, MayBegin, MessageRow, OfTurn, Settle, TurnBegun, TurnKind, TurnRequest, TurnRow, TurnState,
};

/// The stored name of the fiber of a turn.
pub(crate) const NAME: &str = "forever.turn";

/// The longest wait between two attempts.
const LONGEST_DELAY: Duration = Duration::from_secs(60);

static MACHINE: Machine = Machine {
    name: NAME,
    version: 0,
    // How often a turn may be interrupted is its agent's policy.
    max_recoveries: Some(u32::MAX),
    arguments: &["class", "agent", "turn"],
    cuts: &[],
    first: &[END],
    topics: &[],
    migrate: None,
};

/// A turn to be answered.
pub(crate) struct Answer {
    pub(crate) chat: AgentId,
    pub(crate) turn: String,
}

impl Fiber for Answer {
    type Output = String;
    type Error = Error;
    const MACHINE: &'static Machine = &MACHINE;

    fn needs(needs: &mut Needs<'_>) {
        needs.resource::<Arc<Chats>>("chats");
    }

    fn save(&self, save: &mut Save<'_>) {
        save.put("class", &self.chat.class);
        save.put("agent", &self.chat.name);
        save.put("turn", &self.turn);
    }

    fn load(arguments: &mut Locals) -> Result<Self, Unreadable> {
        let chat = AgentId { class: arguments.get("class")?, name: arguments.get("agent")? };
        Ok(Answer { chat, turn: arguments.get("turn")? })
    }

    fn drive<'run>(
        start: Option<Self>,
        ctx: &'run FiberContext,
        frame: &'run mut Frame,
    ) -> impl Future<Output = Result<String, Error>> + Send + 'run {
        let run = frame.run();
        async move {
            let chats = Arc::clone(&ctx.resource::<Arc<Chats>>());
            let answered = async {
                let answer = start.ok_or_else(|| Error::new(ErrorKind::Value, "a turn has no snapshot to go on from"))?;
                let core = run.sink.link().core()?;
                answer.answer(&core, &chats, ctx).await
            };
            match answered.await {
                Ok(Next::Over(state)) => Ok(state.as_str().to_owned()),
                Ok(Next::Wait(wait)) => run.halt(Stopped::Waiting(wait)).await,
                Err(error) if matches!(error.kind(), ErrorKind::NotRegistered | ErrorKind::Value) => {
                    run.halt(Stopped::Parked(chain(&error))).await
                }
                Err(error) => run.halt(Stopped::Interrupted(error)).await,
            }
        }
    }
}

/// What becomes of the fiber.
enum Next {
    /// The turn has ended so.
    Over(TurnState),
    Wait(Wait),
}

/// Why an attempt came to nothing, for the next one.
struct Interrupted {
    how: Interruption,
    why: String,
    /// How long to wait before the next attempt.
    delay: Option<Duration>,
    /// Whether the agent did not come into memory.
    asleep: bool,
}

impl Interrupted {
    fn by_the_process() -> Self {
        Interrupted { how: Interruption::Process, why: "the process was gone".to_owned(), delay: None, asleep: false }
    }

    fn here(why: String, delay: Option<Duration>) -> Self {
        Interrupted { how: Interruption::Here, why, delay, asleep: false }
    }
}

impl Answer {
    async fn answer(&self, core: &Arc<Core>, chats: &Arc<Chats>, ctx: &FiberContext) -> Result<Next> {
        let policy = chats.class(&self.chat.class)?.policy();
        let Some(row) = core.store.turn(self.chat.clone(), self.turn.clone()).await? else {
            // Deleted with its chat.
            return Ok(Next::Over(TurnState::Aborted));
        };
        let mut before = Interrupted::by_the_process();
        loop {
            let begun = match core.store.begin_turn(row.seq, core.now_ms()).await? {
                MayBegin::Now(begun) => *begun,
                MayBegin::Behind(fiber) => return Ok(Next::Wait(Wait { fibers: vec![fiber], ..Wait::default() })),
                MayBegin::Due(due_ms) => return Ok(Next::Wait(Wait { due_ms: Some(due_ms), ..Wait::default() })),
                MayBegin::Left(left) => {
                    settle_left(core, chats, &left).await?;
                    continue;
                }
                MayBegin::Over(row) => {
                    chats.ended(&row);
                    return Ok(Next::Over(row.state));
                }
            };
            let attempt = Attempt::prepare(core, chats, &policy, begun, &before).await?;
            let attempted = match attempt {
                Ok(attempt) => {
                    // A fiber that is told to end is its turn told to end; one whose runtime closes is interrupted.
                    let cancelled = async {
                        ctx.cancelled().await;
                        if core.is_closing() {
                            core.closing().await;
                            std::future::pending::<()>().await;
                        }
                    };
                    attempt.run(cancelled).await?
                }
                Err(ended) => ended,
            };
            match attempted {
                Attempted::Over(state) => return Ok(Next::Over(state)),
                Attempted::Interrupted(interrupted) => {
                    core.store.leave_turn(row.seq).await?;
                    if let Some(delay) = interrupted.delay {
                        debug!(turn.id = %self.turn, why = interrupted.why, ?delay, "a turn is tried again");
                        if race(core.clock.sleep(delay), core.closing()).await.is_none() {
                            return Err(Error::closed());
                        }
                    }
                    before = interrupted;
                }
            }
        }
    }
}

/// What came of an attempt.
enum Attempted {
    Over(TurnState),
    Interrupted(Interrupted),
}

/// One attempt to answer a turn.
struct Attempt<'a> {
    core: &'a Arc<Core>,
    chats: &'a Arc<Chats>,
    policy: &'a RecoveryPolicy,
    under_way: UnderWay,
    hooks: Arc<dyn ChatHooks>,
    /// Keeps the agent in memory.
    _woken: Woken,
    turn: Turn,
    /// How many attempts there were before without progress.
    attempts: u32,
}

impl<'a> Attempt<'a> {
    /// Brings together what an attempt needs; `Err` if there is none to be made.
    async fn prepare(
        core: &'a Arc<Core>,
        chats: &'a Arc<Chats>,
        policy: &'a RecoveryPolicy,
        begun: TurnBegun,
        before: &Interrupted,
    ) -> Result<Result<Self, Attempted>> {
        let TurnBegun { row, request, chunks, incident, again } = begun;
        let under_way = chats.enter(row.seq);
        let mut answered = Answered::load(core, &row, &chunks).await?;
        let settled = Settled { core, chats, row: &row, incident: incident.is_some() };
        if let Some(reason) = &row.cancel {
            let state = settled.with(TurnState::Aborted, Some(reason), answered.builder.into_message()).await?;
            return Ok(Err(Attempted::Over(state)));
        }
        let request = Asked::read(request)?;
        if again && (answered.finished || answered.waits_for_a_person(&request.client_tools)) {
            // The model need not be asked anything more: it has said everything, or the rest comes with a person's answer.
            let state = settled.with(TurnState::Completed, None, answered.builder.into_message()).await?;
            return Ok(Err(Attempted::Over(state)));
        }
        let mut recovery = None;
        let mut attempts = 0;
        if again || before.how == Interruption::Here {
            let facts = Facts { how: before.how, chunks: answered.stored, deaths: row.deaths.saturating_sub(1), now_ms: core.now_ms() };
            let (next, mut exhausted) = judge(policy, incident.as_ref(), facts);
            if before.asleep && exhausted.is_some() {
                exhausted = Some(ExhaustedReason::StableTimeout);
            }
            attempts = next.attempts;
            let context = answered.recovery(&row, &request, policy, next.attempts, facts.deaths, &before.why);
            if exhausted.is_none() && next.attempts > 1 && matches!(policy.keeps(&context).await, Ok(false)) {
                exhausted = Some(ExhaustedReason::RecoveryAborted);
            }
            core.store.store_incident(row.seq, next, core.now_ms()).await?;
            if let Some(reason) = exhausted {
                warn!(turn.id = %row.id, %reason, why = before.why, "an interrupted turn is given up");
                let settled = Settled { incident: true, ..settled };
                let state = settled.given_up(policy, reason, answered.builder.into_message()).await?;
                if let Err(why) = policy.tell_exhausted(Exhausted { reason, recovery: context }).await {
                    warn!(turn.id = %row.id, error = %chain(&*why), "`on_exhausted` failed");
                }
                return Ok(Err(Attempted::Over(state)));
            }
            recovery = Some(context);
        }
        let (woken, hooks) = match wake(core, chats, policy, &row.chat).await {
            Ok(awake) => awake,
            Err(error) if error.is_closed() || core.is_closing() => return Err(error),
            Err(error) => {
                let why = chain(&error);
                warn!(turn.id = %row.id, error = why, "the agent of a turn could not be woken");
                let delay = Some(delay(policy, attempts + 1, None));
                return Ok(Err(Attempted::Interrupted(Interrupted { asleep: true, ..Interrupted::here(why, delay) })));
            }
        };
        if let Some(recovery) = &mut recovery {
            let options = match race(hooks.recovery(recovery), core.clock.sleep(core.settings.hook_timeout)).await {
                Some(Ok(options)) => options,
                Some(Err(why)) => {
                    let why = format!("`on_chat_recovery` failed: {}", chain(&*why));
                    let delay = Some(delay(policy, attempts, None));
                    return Ok(Err(Attempted::Interrupted(Interrupted::here(why, delay))));
                }
                None => {
                    let why = format!("`on_chat_recovery` took longer than {:?}", core.settings.hook_timeout);
                    return Ok(Err(Attempted::Interrupted(Interrupted::here(why, None))));
                }
            };
            if !options.persist {
                answered.forget_all_but_results();
                recovery.partial = answered.partial().to_vec();
            }
            if !options.continue_turn {
                let state = Settled { incident: true, ..settled }
                    .with(TurnState::Interrupted, Some(&before.why), answered.builder.into_message())
                    .await?;
                return Ok(Err(Attempted::Over(state)));
            }
        }
        let log = chats.logs.of(row.seq);
        log.learn(answered.stored);
        let writer = Writer::new(Arc::clone(core), row.seq, log, answered.stored, chats.settings.batching);
        let continues = recovery.is_some() || row.kind == TurnKind::Continue;
        let stream = Stream {
            continuation: continues.then(|| Continuation::of(&answered.builder)),
            builder: answered.builder,
            error: None,
            aborted: false,
            started: answered.stored > 0,
        };
        let turn = Turn::new(turn::Inner {
            core: Arc::clone(core),
            row,
            messages: answered.before,
            body: request.body,
            client_tools: request.client_tools,
            recovery,
            stash: Mutex::new(request.stash),
            writer,
            stream: tokio::sync::Mutex::new(stream),
            cancelled: under_way.asked.clone(),
            written: watch::Sender::new(()),
            open: AtomicBool::new(true),
        });
        under_way.answers(&turn.inner().row.chat, &turn);
        Ok(Ok(Attempt { core, chats, policy, under_way, hooks, _woken: woken, turn, attempts }))
    }

    /// Gives the turn to its agent, and settles it unless it is interrupted.
    async fn run(self, fiber_cancelled: impl Future<Output = ()>) -> Result<Attempted> {
        self.repair().await?;
        let ended = self.hear(fiber_cancelled).await;
        let inner = self.turn.inner();
        inner.open.store(false, Ordering::Release);
        let (state, reason) = match ended {
            Heard::Answered(Ok(())) => (TurnState::Completed, None),
            Heard::Answered(Err(error)) => {
                if self.core.is_closing() {
                    return Err(Error::closed());
                }
                if let Some(over) = self.over().await? {
                    return Ok(Attempted::Over(over));
                }
                if is_interruption(&error) {
                    return Err(Error::new(ErrorKind::Store, "a turn was interrupted").because(error));
                }
                match self.hooks.classify(&error) {
                    ErrorClass::Transient(wait) => {
                        let delay = Some(delay(self.policy, self.attempts + 1, wait));
                        return self.interrupted(chain(&*error), delay).await;
                    }
                    ErrorClass::ContextOverflow | ErrorClass::Terminal => {
                        warn!(turn.id = self.turn.id(), error = %chain(&*error), "a turn has failed");
                        (TurnState::Error, Some(self.hooks.client_error_text(&error)))
                    }
                }
            }
            Heard::Cancelled(reason) => (TurnState::Aborted, Some(reason.to_string())),
            Heard::Silent(gap) => return self.interrupted(format!("its stream was silent for {gap:?}"), None).await,
            Heard::Closing => return Err(Error::closed()),
        };
        if let Err(error) = inner.writer.flush().await {
            return match self.over().await? {
                Some(over) => Ok(Attempted::Over(over)),
                None => Err(error),
            };
        }
        let mut stream = inner.stream.lock().await;
        let (state, reason) = match &stream.error {
            // What was written ends it, whatever the hook says after it.
            Some(text) if state != TurnState::Aborted => (TurnState::Error, Some(text.clone())),
            _ if stream.aborted && state == TurnState::Completed => (TurnState::Aborted, None),
            _ => (state, reason),
        };
        let message = stream.builder.message().clone();
        drop(stream);
        let settled = Settled { core: self.core, chats: self.chats, row: &inner.row, incident: inner.recovery.is_some() };
        let reason = match (state, &reason) {
            (TurnState::Completed, None) if message.parts.is_empty() => Some("no response was generated by the agent"),
            _ => reason.as_deref(),
        };
        settled.with(state, reason, message).await.map(Attempted::Over)
    }

    /// Runs the hook until it ends, or something ends it.
    async fn hear(&self, fiber_cancelled: impl Future<Output = ()>) -> Heard {
        let silent = async {
            let Some(gap) = self.policy.stall_timeout else { return std::future::pending().await };
            let mut written = self.turn.inner().written.subscribe();
            while race(written.changed(), self.core.clock.sleep(gap)).await.is_some() {}
            gap
        };
        let stop = async {
            let fiber_cancelled = async {
                fiber_cancelled.await;
                Heard::Cancelled("its fiber was cancelled".into())
            };
            let told = async { Heard::Cancelled(self.under_way.cancelled().await) };
            let silent = async { Heard::Silent(silent.await) };
            let closing = async {
                self.core.closing().await;
                Heard::Closing
            };
            first(pin!(first(pin!(told), pin!(fiber_cancelled))), pin!(first(pin!(silent), pin!(closing)))).await
        };
        let answered = async { Heard::Answered(self.hooks.message(&self.turn).await) };
        first(pin!(answered), pin!(stop)).await
    }

    /// Settles the tool calls that an earlier attempt has left without a result.
    async fn repair(&self) -> Result<()> {
        let inner = self.turn.inner();
        if inner.recovery.is_none() {
            return Ok(());
        }
        let mut stream = inner.stream.lock().await;
        let repaired = repair(vec![stream.builder.message().clone()], |call| self.repair_of(call));
        for call in repaired.calls {
            debug!(turn.id = self.turn.id(), tool.call = call.call, "an interrupted tool call was settled");
            stream.builder.apply(&call.chunk)?;
            inner.writer.write(call.chunk.to_text().into()).await?;
        }
        // What comes after goes on from what the message is now.
        stream.continuation = Some(Continuation::of(&stream.builder));
        Ok(())
    }

    /// What becomes of a call without a result: what a person or their client is asked stays open.
    fn repair_of(&self, call: &Part) -> Repair {
        match call.tool_state() {
            Some(ToolState::InputStreaming) => self.hooks.repair(call),
            Some(ToolState::InputAvailable) if !is_client_tool(call, &self.turn.inner().client_tools) => self.hooks.repair(call),
            _ => Repair::Wait,
        }
    }

    /// What was written so far is stored; the next attempt goes on after it.
    async fn interrupted(&self, why: String, delay: Option<Duration>) -> Result<Attempted> {
        if let Err(error) = self.turn.flush().await {
            return match self.over().await? {
                Some(over) => Ok(Attempted::Over(over)),
                None => Err(error),
            };
        }
        warn!(turn.id = self.turn.id(), why, "a turn was interrupted");
        Ok(Attempted::Interrupted(Interrupted::here(why, delay)))
    }

    /// How the turn has ended meanwhile, if somebody else has ended it.
    async fn over(&self) -> Result<Option<TurnState>> {
        let row = self.core.store.turn_by_seq(self.turn.inner().row.seq).await?;
        let Some(row) = row else { return Ok(Some(TurnState::Aborted)) };
        if row.state.is_settled() {
            self.chats.ended(&row);
            return Ok(Some(row.state));
        }
        Ok(None)
    }
}

/// What ended the hook.
enum Heard {
    Answered(Result<(), crate::agent::BoxError>),
    Cancelled(Arc<str>),
    Silent(Duration),
    Closing,
}

async fn first<T>(one: impl Future<Output = T> + Unpin, other: impl Future<Output = T> + Unpin) -> T {
    futures_util::future::select(one, other).await.factor_first().0
}

/// How long to wait before the next attempt after an error that may pass.
fn delay(policy: &RecoveryPolicy, attempts: u32, told: Option<Duration>) -> Duration {
    told.unwrap_or_else(|| policy.retry_delay.saturating_mul(1 << attempts.saturating_sub(1).min(10)).min(LONGEST_DELAY))
}

/// Wakes the agent of a turn.
async fn wake(core: &Arc<Core>, chats: &Chats, policy: &RecoveryPolicy, chat: &AgentId) -> Result<(Woken, Arc<dyn ChatHooks>)> {
    let agents = Agents::of(core)?;
    let woken = match race(agents.wake(core, chat), core.clock.sleep(policy.stable_timeout)).await {
        Some(woken) => woken?,
        None => return Err(Error::new(ErrorKind::Agent, format!("agent `{chat}` was not awake after {:?}", policy.stable_timeout))),
    };
    let hooks = chats.class(&chat.class)?.hooks(Arc::clone(&woken.agent).any()).ok_or_else(|| {
        let why = format!("agent class `{}` is registered for chat with another type than for `.agent(..)`", chat.class);
        Error::new(ErrorKind::NotRegistered, why)
    })?;
    Ok((woken, hooks))
}

/// Whether a tool is one that the client answers.
fn is_client_tool(part: &Part, tools: &[ToolSpec]) -> bool {
    part.tool_name().is_some_and(|name| tools.iter().any(|tool| tool.name == name))
}

/// What a turn was asked with, read.
struct Asked {
    body: Option<Value>,
    client_tools: Vec<ToolSpec>,
    stash: Option<String>,
}

impl Asked {
    fn read(request: TurnRequest) -> Result<Self> {
        let unreadable = |what: &str, why| Error::new(ErrorKind::Value, format!("the {what} of a turn cannot be read")).because(why);
        let body = request.body.map(|text| serde_json::from_str(&text).map_err(|why| unreadable("body", why))).transpose()?;
        let tools = request.tools.map(|text| serde_json::from_str(&text).map_err(|why| unreadable("client tools", why)));
        Ok(Asked { body, client_tools: tools.transpose()?.unwrap_or_default(), stash: request.stash })
    }
}

/// What there is of an answer.
struct Answered {
    /// The conversation before it.
    before: Vec<UiMessage>,
    builder: MessageBuilder,
    /// How many parts of the message there were before the turn.
    parts_before: usize,
    /// How many chunks are stored.
    stored: u64,
    /// Whether the last of them says that it is whole.
    finished: bool,
}

impl Answered {
    async fn load(core: &Core, row: &TurnRow, chunks: &[Chunks]) -> Result<Self> {
        let mut before = read_messages(core.store.chat_messages(row.chat.clone(), row.place).await?)?;
        let there = before.iter().position(|message| message.id == row.message);
        let message = there.map_or_else(|| UiMessage::new(row.message.as_str(), Role::Assistant), |place| before.remove(place));
        let parts_before = message.parts.len();
        let mut builder = MessageBuilder::new(message);
        let (mut stored, mut finished) = (0, false);
        for (_, chunk) in chunks.iter().flat_map(lines) {
            let chunk = Chunk::parse(chunk)?;
            builder.apply(&chunk)?;
            finished = chunk.kind() == "finish";
            stored += 1;
        }
        Ok(Answered { before, builder, parts_before, stored, finished })
    }

    fn partial(&mut self) -> &[Part] {
        let before = self.parts_before;
        self.builder.message().parts.get(before..).unwrap_or_default()
    }

    /// Whether the answer ends in questions to a person or their client, and in nothing else that is open.
    fn waits_for_a_person(&mut self, client_tools: &[ToolSpec]) -> bool {
        let open: Vec<_> = self.partial().iter().filter(|part| part.tool_state().is_some_and(|s| !s.is_settled())).collect();
        let asks = |part: &&Part| match part.tool_state() {
            Some(ToolState::ApprovalRequested) => true,
            Some(ToolState::InputAvailable) => is_client_tool(part, client_tools),
            _ => false,
        };
        !open.is_empty() && open.iter().all(asks)
    }

    /// Keeps the results of tools, and what was there before the turn.
    fn forget_all_but_results(&mut self) {
        let mut place = 0;
        let before = self.parts_before;
        let mut message = self.builder.message().clone();
        message.parts.retain(|part| {
            place += 1;
            place <= before || part.tool_state().is_some_and(ToolState::is_settled)
        });
        self.builder = MessageBuilder::new(message);
    }

    fn recovery(&mut self, row: &TurnRow, asked: &Asked, policy: &RecoveryPolicy, attempt: u32, deaths: u32, why: &str) -> ChatRecovery {
        ChatRecovery {
            turn: row.id.clone(),
            kind: if self.partial().is_empty() { RecoveryKind::Retry } else { RecoveryKind::Continue },
            attempt,
            max_attempts: policy.max_attempts,
            deaths,
            partial: self.partial().to_vec(),
            data: asked.stash.clone(),
            messages: self.before.clone(),
            body: asked.body.clone(),
            client_tools: asked.client_tools.clone(),
            created: from_ms(row.created_ms),
            reason: why.to_owned(),
        }
    }
}

pub(super) fn read_messages(rows: Vec<MessageRow>) -> Result<Vec<UiMessage>> {
    let read = |row: MessageRow| {
        serde_json::from_str(&row.data)
            .map_err(|why| Error::new(ErrorKind::Value, format!("message `{}` cannot be read", row.id)).because(why))
    };
    rows.into_iter().map(read).collect()
}

pub(super) fn message_row(message: &UiMessage) -> Result<MessageRow> {
    let data = serde_json::to_string(message)
        .map_err(|why| Error::new(ErrorKind::Value, format!("message `{}` cannot be saved", message.id)).because(why))?;
    Ok(MessageRow { id: message.id.clone(), role: message.role.as_str(), data })
}

/// Settles a turn.
#[derive(Clone, Copy)]
struct Settled<'a> {
    core: &'a Arc<Core>,
    chats: &'a Arc<Chats>,
    row: &'a TurnRow,
    /// Whether it was interrupted before.
    incident: bool,
}

impl Settled<'_> {
    /// Stores how the turn ended, with its message; gives the state that is stored.
    async fn with(self, state: TurnState, reason: Option<&str>, message: UiMessage) -> Result<TurnState> {
        self.store(state, reason, message, IncidentState::Recovered).await
    }

    async fn given_up(self, policy: &RecoveryPolicy, why: ExhaustedReason, message: UiMessage) -> Result<TurnState> {
        debug!(turn.id = %self.row.id, reason = %why, "a turn ends with its terminal message");
        self.store(TurnState::Error, Some(&policy.terminal_message), message, IncidentState::Exhausted).await
    }

    async fn store(self, state: TurnState, reason: Option<&str>, mut message: UiMessage, incident: IncidentState) -> Result<TurnState> {
        let Settled { core, chats, row, .. } = self;
        let empty = message.parts.is_empty();
        close_parts(&mut message);
        if state != TurnState::Completed {
            mark(&mut message, state, reason);
        }
        // An error is seen in the conversation even if nothing was said before it.
        let kept = !empty || state == TurnState::Error;
        let message = if kept { Some(message_row(&message)?.data) } else { None };
        let how = Settle {
            state,
            reason: reason.map(str::to_owned),
            message,
            incident: self.incident.then_some(incident),
            now_ms: core.now_ms(),
        };
        match core.store.settle_turn(row.seq, how).await? {
            OfTurn::Done => {
                if let Some(log) = chats.logs.get(row.seq) {
                    log.end(TurnEnd::new(state, reason));
                }
                Ok(state)
            }
            OfTurn::Over => {
                let row = core.store.turn_by_seq(row.seq).await?;
                if let Some(row) = &row {
                    chats.ended(row);
                }
                Ok(row.map_or(TurnState::Aborted, |row| row.state))
            }
        }
    }
}

/// Nothing more comes to the parts of a message.
fn close_parts(message: &mut UiMessage) {
    for part in &mut message.parts {
        if matches!(part.kind(), "text" | "reasoning") && part.get("state").is_some() {
            part.set("state", "done");
        }
    }
}

/// Lets the message say how its turn ended, for everybody who sees nothing else of it.
fn mark(message: &mut UiMessage, state: TurnState, reason: Option<&str>) {
    let metadata = message.metadata.get_or_insert_with(|| json!({}));
    if let Value::Object(fields) = metadata {
        fields.insert("forever".to_owned(), json!({ "outcome": state.as_str(), "reason": reason }));
    }
}

/// Settles a turn whose fiber has ended without it.
pub(super) async fn settle_left(core: &Arc<Core>, chats: &Arc<Chats>, row: &TurnRow) -> Result<()> {
    let chunks = core.store.chunks(row.seq, 0, u32::MAX).await?;
    let answered = Answered::load(core, row, &chunks).await?;
    let (state, why) = match &row.cancel {
        Some(reason) => (TurnState::Aborted, reason.as_str()),
        None => (TurnState::Interrupted, "its fiber has ended"),
    };
    let settled = Settled { core, chats, row, incident: false };
    settled.with(state, Some(why), answered.builder.into_message()).await.map(drop)
}
