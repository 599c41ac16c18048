//! The fiber of a turn: from an accepted question to a settled answer.
use std::sync::Arc;
use std::time::Duration;

use forever_runtime::__layers::secret::shown;
use forever_runtime::__layers::{ContextOfLayer, Engine, Exit, Fence, chain, race};
use forever_runtime::__private::{Arguments, Cut, CutKind, END, Frame, Local, LocalRole, Locals, Machine, Needs, Unreadable};
use forever_runtime::fiber::{Fiber, FiberContext};
use forever_runtime::store::{Admission, AgentId, TurnState, Wait};
use forever_runtime::{BoxError, Error, ErrorKind, Result};
use tracing::{debug, warn};

use crate::answer::frame::TurnFrame;
use crate::answer::prepare::{Not, Preparing};
use crate::answer::settle::{settle_left, settle_panicked};
use crate::recovery::incident::Interruption;
use crate::registry::{ChatRegistry, registry_of};
use crate::runs;
use crate::user_code::caught;

/// The stored name of the fiber of a turn.
pub(crate) const NAME: &str = "forever.turn";

static MACHINE: Machine = Machine {
    name: NAME,
    version: 0,
    // The agent's policy limits how often a turn may be interrupted.
    max_recoveries: Some(u32::MAX),
    arguments: &["class", "agent", "turn"],
    cuts: &[Cut {
        name: "run",
        explicit: true,
        of: 1,
        body: "",
        was: None,
        kind: CutKind::Call,
        effect: false,
        decides: false,
        wraps: "",
        locals: &[kept("class"), kept("agent"), kept("turn"), kept("ended")],
        branches: &[],
        topics: &[],
        next: &[0, END],
        line: line!(),
    }],
    first: &[0, END],
    topics: &[],
    migrate: None,
    secrets: &[],
    source: None,
};

const fn kept(name: &'static str) -> Local {
    Local { name, of: 1, was: None, result: false, role: LocalRole::Value, why: "" }
}

/// A turn to be answered.
pub(crate) struct Answer {
    pub(crate) chat: AgentId,
    pub(crate) turn: String,
}

impl Answer {
    fn load(arguments: &mut Locals) -> Result<Self, Unreadable> {
        let chat = AgentId { class: arguments.get("class")?, name: arguments.get("agent")? };
        Ok(Answer { chat, turn: arguments.get("turn")? })
    }
}

impl Fiber for Answer {
    type Output = String;
    type Error = Error;
    const MACHINE: &'static Machine = &MACHINE;

    fn needs(_: &mut Needs<'_>) {}

    fn arguments(access: Arguments<'_, '_, Self>) -> Result<Option<Self>, Unreadable> {
        match access {
            Arguments::Save(answer, save) => {
                save.put("class", &answer.chat.class);
                save.put("agent", &answer.chat.name);
                save.put("turn", &answer.turn);
                Ok(None)
            }
            Arguments::Load(arguments) => Answer::load(arguments).map(Some),
        }
    }

    async fn drive<'run>(start: Option<Self>, ctx: &'run FiberContext, frame: &'run mut Frame) -> Result<String, Error> {
        // The turn is running for as long as its hook runs something.
        ctx.stay_in_memory();
        let locals = if let Some(Answer { chat, turn }) = start {
            runs::Locals { chat, turn, ended: Vec::new() }
        } else {
            let restored = frame.restore(|locals| {
                let Answer { chat, turn } = Answer::load(locals)?;
                Ok(runs::Locals { chat, turn, ended: locals.get("ended")? })
            });
            restored.await
        };
        let mut frame = TurnFrame { frame, ctx, locals };
        let answered = async {
            let chats = registry_of(ctx)?;
            let engine = chats.engine()?;
            let fence = ctx.fence().ok_or_else(|| Error::new(ErrorKind::Setup, "a turn needs a runtime"))?;
            let answering = Answering { engine: &engine, chats: &chats, fence: &fence };
            let answered = Box::pin(caught(answering.answer(&mut frame))).await;
            match answered {
                Ok(answered) => answered,
                Err(why) => answering.panicked(&frame.locals, &why).await,
            }
        };
        match answered.await {
            // Runs that the hook did not await end with it.
            Ok(Next::Over(state)) => ctx.halt(Exit::Completed(format!("\"{state}\"").into())).await,
            Ok(Next::Leave(exit)) => ctx.halt(exit).await,
            Err(error) if is_parked_by(&error) => ctx.halt(Exit::parked(chain(&error))).await,
            Err(error) => ctx.halt(Exit::interrupted(error)).await,
        }
    }
}

/// Whether an error parks a turn: a retry would end in the same one.
fn is_parked_by(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotRegistered | ErrorKind::Value)
}

/// Next state of the fiber.
enum Next {
    /// The turn has ended, in this state.
    Over(TurnState),
    /// The activation ends.
    Leave(Exit),
}

/// Why an attempt failed, for the next one.
#[derive(Debug, Clone)]
pub(super) struct Interrupted {
    pub(super) how: Interruption,
    pub(super) why: String,
    /// How long to wait before the next attempt.
    pub(super) delay: Option<Duration>,
    /// Whether the agent could not be woken.
    pub(super) asleep: bool,
}

impl Interrupted {
    fn by_the_process() -> Self {
        Interrupted { how: Interruption::Process, why: "the process was gone".to_owned(), delay: None, asleep: false }
    }

    pub(super) fn here(why: String, delay: Option<Duration>) -> Self {
        Interrupted { how: Interruption::Here, why, delay, asleep: false }
    }
}

/// The fiber of a turn, under its claim.
#[derive(Clone, Copy)]
struct Answering<'a> {
    engine: &'a Engine,
    chats: &'a Arc<ChatRegistry>,
    fence: &'a Arc<Fence>,
}

impl Answering<'_> {
    async fn answer(self, frame: &mut TurnFrame<'_>) -> Result<Next> {
        let Answering { engine, chats, fence } = self;
        let policy = chats.class(&frame.locals.chat.class)?.policy();
        let Some(row) = engine.store().turn(frame.locals.chat.clone(), frame.locals.turn.clone()).await? else {
            // Deleted with its chat.
            return Ok(Next::Over(TurnState::Aborted));
        };
        let under_way = chats.enter(row.seq);
        let mut before = Before::of(frame.ctx);
        loop {
            let begun = match fence.guard(engine.store().begin_turn(fence.claim(), row.seq, engine.now_ms())).await? {
                Admission::Begun(begun) => *begun,
                Admission::Behind(fiber) => {
                    return Ok(Next::Leave(Exit::Waiting(Wait { fibers: vec![fiber], ..Wait::default() })));
                }
                Admission::NotBefore(due_ms) => {
                    return Ok(Next::Leave(Exit::Waiting(Wait { due_ms: Some(due_ms), ..Wait::default() })));
                }
                Admission::Orphaned(left) => {
                    settle_left(engine, chats, &left).await?;
                    continue;
                }
                Admission::Settled(row) => {
                    chats.ended(&row);
                    return Ok(Next::Over(row.state));
                }
            };
            let was_cancelled = begun.row.cancel.is_some();
            let attempt = match Preparing::load(engine, chats, fence, &policy, begun, &before, frame).await {
                Ok(preparing) => preparing.attempt(&under_way, frame).await,
                Err(not) => Err(not),
            };
            let attempted = match attempt {
                Ok(attempt) => attempt.run(frame).await,
                Err(Not::Made(attempted)) => Ok(attempted),
                Err(Not::Failed(error)) => Err(error),
            };
            let attempted = match attempted {
                Err(error) if is_parked_by(&error) => Attempted::Stopped(Exit::parked(chain(&error))),
                attempted => attempted?,
            };
            match attempted {
                Attempted::Over(state) => return Ok(Next::Over(state)),
                Attempted::Stopped(exit) => match frame.parked_by(exit) {
                    // A turn that was cancelled before the attempt is parked all the same: to
                    // begin it again would end here again. A later cancellation is seen when it
                    // begins next.
                    Exit::Parked(why) if !was_cancelled => {
                        let parked = engine.store().park_turn(fence.claim(), row.seq, why.to_string(), engine.now_ms());
                        if fence.guard(parked).await? {
                            return Ok(Next::Leave(Exit::StoredAsParked(why)));
                        }
                        before = Before::Parked;
                    }
                    exit => {
                        fence.guard(engine.store().release_turn(fence.claim(), row.seq)).await?;
                        return Ok(Next::Leave(exit));
                    }
                },
                Attempted::Interrupted { interrupted, runs } => {
                    fence.guard(engine.store().release_turn(fence.claim(), row.seq)).await?;
                    if let Some(delay) = interrupted.delay {
                        debug!(turn.id = %row.id, why = shown(&interrupted.why), ?delay, "a turn is tried again");
                        let told = async { drop(race(under_way.cancelled(), engine.closing()).await) };
                        race(engine.clock().sleep(delay), told).await;
                        if engine.is_closing() {
                            return Err(Error::closed());
                        }
                    }
                    if runs {
                        // Runs resume from their last checkpoint, as after every other end of an
                        // activation.
                        return Ok(Next::Leave(Exit::Again(Arc::new(interrupted))));
                    }
                    before = Before::Interrupted(interrupted);
                }
            }
        }
    }

    /// Ends a turn after a panic that no other code has caught, so that no caller waits for an
    /// answer that never comes.
    async fn panicked(self, turn: &runs::Locals, why: &BoxError) -> Result<Next> {
        let Answering { engine, chats, fence } = self;
        warn!(turn.id = turn.turn, error = %why, "the fiber of a turn panicked, which ends the turn");
        match engine.store().turn(turn.chat.clone(), turn.turn.clone()).await? {
            Some(row) => settle_panicked(engine, chats, fence, &row).await.map(Next::Over),
            None => Ok(Next::Over(TurnState::Aborted)),
        }
    }
}

/// How the last attempt ended, if there was one.
#[derive(Debug)]
pub(super) enum Before {
    Interrupted(Interrupted),
    /// The fiber was parked, and resumes: nothing was interrupted.
    Parked,
}

impl Before {
    /// Derived from how the last activation of the fiber ended.
    fn of(ctx: &FiberContext) -> Self {
        match ctx.handed_over::<Interrupted>() {
            Some(interrupted) => Before::Interrupted(interrupted.clone()),
            None if ctx.was_interrupted() => Before::Interrupted(Interrupted::by_the_process()),
            None => Before::Parked,
        }
    }
}

/// Result of an attempt.
pub(super) enum Attempted {
    Over(TurnState),
    /// A run of the hook ends the activation.
    Stopped(Exit),
    Interrupted {
        interrupted: Interrupted,
        /// Whether a run of the hook is under way.
        runs: bool,
    },
}
