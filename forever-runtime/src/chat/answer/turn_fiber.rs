//! The fiber of a turn: from an accepted question to a settled answer.
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, warn};

use crate::agent::BoxError;
use crate::chat::answer::prepare::{Not, Preparing};
use crate::chat::answer::settled::settle_left;
use crate::chat::answer::settled::settle_panicked;
use crate::chat::chats::Chats;
use crate::chat::recovery::incident::Interruption;
use crate::chat::user_code::caught;
use crate::error::{Error, ErrorKind, Result, chain};
use crate::exec::executor::Executor;
use crate::frame::activation::Frame;
use crate::frame::context::FiberContext;
use crate::frame::fiber::Fiber;
use crate::frame::locals::{Locals, Save, Unreadable};
use crate::frame::machine::{END, Machine};
use crate::frame::resources::Needs;
use crate::runtime::exit::Exit;
use crate::runtime::fence::Fence;
use crate::runtime::race::race;
use crate::store::{Admission, AgentId, TurnState, Wait};

/// The stored name of the fiber of a turn.
pub(crate) const NAME: &str = "forever.turn";

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
                let exec = chats.agents.exec()?;
                let fence = run.backend.fence().ok_or_else(|| Error::new(ErrorKind::Setup, "a turn needs a runtime"))?;
                match Box::pin(caught(answer.answer(&exec, &chats, &fence, ctx))).await {
                    Ok(answered) => answered,
                    Err(why) => answer.panicked(&exec, &chats, &fence, &why).await,
                }
            };
            match answered.await {
                Ok(Next::Over(state)) => Ok(state.as_str().to_owned()),
                Ok(Next::Wait(wait)) => run.halt(Exit::Waiting(wait)).await,
                Err(error) if matches!(error.kind(), ErrorKind::NotRegistered | ErrorKind::Value) => {
                    run.halt(Exit::parked(chain(&error))).await
                }
                Err(error) => run.halt(Exit::interrupted(error)).await,
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
pub(super) struct Interrupted {
    pub(super) how: Interruption,
    pub(super) why: String,
    /// How long to wait before the next attempt.
    pub(super) delay: Option<Duration>,
    /// Whether the agent did not come into memory.
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

impl Answer {
    async fn answer(&self, exec: &Arc<Executor>, chats: &Arc<Chats>, fence: &Arc<Fence>, ctx: &FiberContext) -> Result<Next> {
        let policy = chats.class(&self.chat.class)?.policy();
        let Some(row) = exec.runtime.store.turn(self.chat.clone(), self.turn.clone()).await? else {
            // Deleted with its chat.
            return Ok(Next::Over(TurnState::Aborted));
        };
        let under_way = chats.enter(row.seq);
        let mut before = Interrupted::by_the_process();
        loop {
            let begun = match fence.guard(exec.runtime.store.begin_turn(fence.claim(), row.seq, exec.runtime.now_ms())).await? {
                Admission::Begun(begun) => *begun,
                Admission::Behind(fiber) => return Ok(Next::Wait(Wait { fibers: vec![fiber], ..Wait::default() })),
                Admission::NotBefore(due_ms) => return Ok(Next::Wait(Wait { due_ms: Some(due_ms), ..Wait::default() })),
                Admission::Orphaned(left) => {
                    settle_left(exec, chats, &left).await?;
                    continue;
                }
                Admission::Settled(row) => {
                    chats.ended(&row);
                    return Ok(Next::Over(row.state));
                }
            };
            let attempt = match Preparing::load(exec, chats, fence, &policy, begun, &before).await {
                Ok(preparing) => preparing.attempt(&under_way).await,
                Err(not) => Err(not),
            };
            let attempted = match attempt {
                Ok(attempt) => attempt.run(cancelled(exec, ctx)).await,
                Err(Not::Made(attempted)) => Ok(attempted),
                Err(Not::Failed(error)) => Err(error),
            };
            if let Err(error) = &attempted
                && error.kind() == ErrorKind::Value
            {
                // It will be parked: the process may die while it is, but not with it.
                fence.guard(exec.runtime.store.release_turn(fence.claim(), row.seq)).await?;
            }
            let attempted = attempted?;
            match attempted {
                Attempted::Over(state) => return Ok(Next::Over(state)),
                Attempted::Interrupted(interrupted) => {
                    fence.guard(exec.runtime.store.release_turn(fence.claim(), row.seq)).await?;
                    if let Some(delay) = interrupted.delay {
                        debug!(turn.id = %self.turn, why = interrupted.why, ?delay, "a turn is tried again");
                        let told = async { drop(race(under_way.cancelled(), exec.runtime.closing()).await) };
                        race(exec.runtime.clock.sleep(delay), told).await;
                        if exec.runtime.is_closing() {
                            return Err(Error::closed());
                        }
                    }
                    before = interrupted;
                }
            }
        }
    }
}

impl Answer {
    /// Ends a turn in which something has panicked that nothing else has caught: nobody waits for an answer that does not come.
    async fn panicked(&self, exec: &Arc<Executor>, chats: &Arc<Chats>, fence: &Arc<Fence>, why: &BoxError) -> Result<Next> {
        warn!(turn.id = %self.turn, error = %why, "the fiber of a turn panicked, which ends the turn");
        match exec.runtime.store.turn(self.chat.clone(), self.turn.clone()).await? {
            Some(row) => settle_panicked(exec, chats, fence, &row).await.map(Next::Over),
            None => Ok(Next::Over(TurnState::Aborted)),
        }
    }
}

/// Ready when the fiber is told to end, and not because its runtime closes: then the turn is interrupted.
async fn cancelled(exec: &Executor, ctx: &FiberContext) {
    ctx.cancelled().await;
    if exec.runtime.is_closing() {
        std::future::pending::<()>().await;
    }
}

/// What came of an attempt.
pub(super) enum Attempted {
    Over(TurnState),
    Interrupted(Interrupted),
}
