//! What a run needs of the runtime behind it: where checkpoints go, and what it asks for.
use std::any::{Any, TypeId};
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::future::BoxFuture;
use crate::ops::ledger::Ledger;
use crate::runtime::events::EventKind;
use crate::runtime::exit::Exit;
use crate::runtime::fence::Fence;
use crate::runtime::link::Link;
use crate::runtime::state::Runtime;
use crate::runtime::type_checks::Check;
use crate::store::{BranchResult, LayoutRow, NewFiber, OpsDelta, PendingMessage, SnapshotDelta};

/// Where checkpoints go.
pub(crate) trait RunBackend: Send + Sync {
    /// The way to the runtime behind it.
    fn link(&self) -> Link<Runtime> {
        Link::None
    }

    /// The claim that is written under; none without a store.
    fn fence(&self) -> Option<Arc<Fence>> {
        None
    }

    /// Stores a checkpoint; it is durable when the future is ready.
    fn commit(&self, checkpoint: Checkpoint) -> BoxFuture<'_, Result<(), Error>> {
        let _ = checkpoint;
        no_steps()
    }

    /// The time on the runtime's clock. Without a runtime everything that can be waited for by time is over.
    fn now_ms(&self) -> i64 {
        i64::MAX
    }

    /// From now on cut points that wait do so in memory.
    fn stay_in_memory(&self) {}

    /// News for a cut point that waits in memory, from now on: a message to the fiber, or the end of
    /// one of these. `None` where the fiber leaves memory while it waits.
    fn listen(&self, fibers: &[String]) -> Option<BoxFuture<'static, ()>> {
        let _ = fibers;
        None
    }

    /// Ready when `duration` has passed on the runtime's clock.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }

    /// Whether texts of errors may repeat what is marked `#[secret]`, and stay out of logs.
    fn hides_texts(&self) -> bool {
        false
    }

    /// Tells what happens to the fiber.
    fn tell(&self, what: EventKind) {
        let _ = what;
    }

    /// The oldest message of a topic.
    fn message<'a>(&'a self, topic: &'a str) -> BoxFuture<'a, Result<Option<PendingMessage>, Error>> {
        let _ = topic;
        Box::pin(async { Ok(None) })
    }

    /// Says what the function takes on a topic.
    fn takes(&self, topic: &'static str, check: Check) {
        let _ = (topic, check);
    }

    /// Says what an effect of a function gives.
    fn gives(&self, function: &'static str, step: &'static str, check: Check) {
        let _ = (function, step, check);
    }

    /// What became of another fiber; `None` while it has not ended.
    fn ended<'a>(&'a self, fiber: &'a str) -> BoxFuture<'a, Result<Option<Exit>, Error>> {
        let _ = fiber;
        Box::pin(async { Err(Error::new(ErrorKind::Setup, "other fibers need a runtime")) })
    }

    /// Makes a child of an invocation, to be stored with the next checkpoint.
    fn child(&self, name: &'static str, function: TypeId, args: String) -> Result<NewFiber, Error> {
        let _ = (name, function, args);
        Err(Error::new(ErrorKind::Setup, "other fibers need a runtime"))
    }

    /// Stores what one of several steps side by side has given.
    fn save_branch(&self, number: u64, result: BranchResult) -> BoxFuture<'_, Result<(), Error>> {
        let _ = (number, result);
        no_steps()
    }

    /// Stores what a closure fiber keeps.
    fn stash(&self, data: String) -> BoxFuture<'_, Result<(), Error>> {
        let _ = data;
        Box::pin(async {
            Err(Error::new(ErrorKind::Setup, "a `#[fiber]` keeps its locals by itself; in a step, stash with `|op| op.stash(..)`"))
        })
    }

    /// What [`RunBackend::stash`] stored last.
    fn stashed(&self) -> Option<String> {
        None
    }

    /// Where the operations of the fiber are kept.
    fn ledger(&self) -> &dyn Ledger;

    /// The fiber has come further than its last checkpoint.
    fn progressed(&self) {}

    /// Whether the fiber is to stop at the next occasion.
    fn is_told_to_stop(&self) -> bool {
        false
    }

    /// The fiber is to stop at the next occasion.
    fn tell_to_stop(&self) {}

    /// Whether the code runs again, from its last checkpoint, when it is interrupted.
    fn resumes(&self) -> bool {
        true
    }

    /// Whether the fiber can be parked; otherwise what would park it is an error.
    fn parks(&self) -> bool {
        true
    }

    /// How long the other side may take to say whether an operation was carried out.
    fn check_timeout(&self) -> Duration {
        self.link().get().map_or(crate::runtime::settings::CHECK_TIMEOUT, |runtime| runtime.settings.check_timeout)
    }
}

fn no_steps<T: Send + 'static>() -> BoxFuture<'static, Result<T, Error>> {
    Box::pin(async { Err(Error::new(ErrorKind::Setup, "only a `#[fiber]` has steps")) })
}

/// One snapshot on its way to the store.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    /// The main text of the snapshot, JSON.
    pub(crate) snapshot: String,
    /// The name of the cut point that was passed, for logs; of the innermost frame.
    pub(crate) at: &'static str,
    /// The layouts of the functions that are being called, outermost first.
    pub(crate) callees: Vec<Arc<LayoutRow>>,
    /// How many checkpoints the fiber has made, with this one.
    pub(crate) number: u64,
    /// What becomes of the operations since the last one, in the same transaction.
    pub(crate) ops: OpsDelta,
    /// What changes beside `snapshot`, in the same transaction.
    pub(crate) delta: SnapshotDelta,
    /// What else is to happen in the same transaction.
    pub(crate) outbox: Outbox,
}

/// What a cut point puts down for the checkpoint that follows.
#[derive(Default)]
pub(crate) struct Outbox {
    /// The message that was received, and goes.
    pub(crate) received: Option<i64>,
    /// Whether what steps side by side have left is taken up.
    pub(crate) joined: bool,
    /// Children, with their invocations.
    pub(crate) children: Vec<(NewFiber, Box<dyn Any + Send>)>,
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Outbox { received, joined, children } = self;
        write!(f, "received {received:?}, joined {joined}, {} children", children.len())
    }
}
