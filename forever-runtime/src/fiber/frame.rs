//! One activation of a fiber function: where it resumes, what it restores, and the checkpoints it makes.
//!
//! Generated code asks three questions (`running`, `inside`, `past`), restores, and checkpoints. A frame is either running
//! or on its way to the cut point it resumes into; on the way only restores happen. What cannot go on (a local that cannot
//! be read, a checkpoint that cannot be written) is put down in `Stop`, and the future never becomes ready: the driver sees
//! the reason and drops it, so no error type of the user's is needed.
use std::any::{Any, TypeId};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use super::core::Link;
use super::events::EventKind;
use super::fence::Fence;
use super::handle::FiberErrorKind;
use super::kinds::Check;
use super::layout::{LeftUnder, row_of};
use super::locals::{Apart, Locals, Save, Unreadable};
use super::machine::{CutKind, Machine};
use super::op::ledger::{Ledger, Left, Ops, is_branch_of, must_come_first};
use super::op::transaction::Whereabouts;
use super::parts::{SnapshotRefs, SnapshotTracker};
use super::saved::Saved;
use super::snapshot::{MAX_CALLS, Snapshot, too_many_calls};
use super::step_span::StepSpan;
use super::{Fiber, FiberContext};
use crate::error::{Error, ErrorKind};
use crate::future::BoxFuture;
use crate::store::SnapshotDelta;
use crate::store::{BranchResult, LayoutRow, NewFiber, OpKind, OpRecord, OpsDelta, PendingMessage, Wait};

/// Where checkpoints go.
pub(crate) trait Sink: Send + Sync {
    /// The way to the runtime behind it.
    fn link(&self) -> Link {
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

    /// Ready when `duration` has passed on the runtime's clock.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
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
    fn ended<'a>(&'a self, fiber: &'a str) -> BoxFuture<'a, Result<Option<FiberEnd>, Error>> {
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

    /// What [`Sink::stash`] stored last.
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
        self.link().core().map_or(CHECK_TIMEOUT, |core| core.settings.check_timeout)
    }
}

fn no_steps<T: Send + 'static>() -> BoxFuture<'static, Result<T, Error>> {
    Box::pin(async { Err(Error::new(ErrorKind::Setup, "only a `#[fiber]` has steps")) })
}

/// How long a check may take unless the builder is told otherwise.
pub(crate) const CHECK_TIMEOUT: Duration = Duration::from_secs(30);

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

/// How another fiber ended.
#[derive(Debug, Clone)]
pub(crate) enum FiberEnd {
    /// With this result, text of [`crate::exact`].
    Completed(String),
    /// Without one.
    Not(FiberErrorKind, String),
}

/// Why a fiber stopped without returning.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// The snapshot does not fit the code.
    Parked(String),
    /// A value in the snapshot cannot be read, by the function at this depth of calls.
    Unreadable {
        why: String,
        depth: u32,
        /// Whether the function has a `migrate` function.
        migrates: bool,
    },
    /// A value could not be saved: the fiber's failure.
    Failed(String),
    /// The store failed: nobody's fault, try again.
    Interrupted(Error),
    /// There is nothing to do until something happens.
    Waiting(Wait),
}

/// What all frames of one run share.
#[doc(hidden)]
pub struct Run {
    pub(crate) sink: Arc<dyn Sink>,
    /// Checkpoints made so far, over all processes.
    pub(crate) checkpoints: AtomicU64,
    pub(crate) ops: Arc<Ops>,
    /// What the code was that left the snapshot.
    left: LeftUnder,
    /// What is stored beside the snapshot.
    kept: Mutex<SnapshotTracker>,
    outbox: Mutex<Outbox>,
    /// The function that was just called, for the driver.
    called: Mutex<Option<BoxFuture<'static, ()>>>,
    pub(crate) step: StepSpan,
    pub(crate) whereabouts: Whereabouts,
    stopped: Mutex<Option<Stopped>>,
    /// A stash since the last checkpoint that could not be read.
    unreadable: Mutex<Option<String>>,
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run").field("checkpoints", &self.checkpoints).finish_non_exhaustive()
    }
}

impl Run {
    /// The first run of a fiber.
    pub(crate) fn first(fiber: &str, sink: Arc<dyn Sink>) -> Arc<Self> {
        Run::at(sink, 0, LeftUnder::default(), Ops::first(fiber))
    }

    /// A later run, from its start or from a snapshot, after what earlier ones left.
    pub(crate) fn again(fiber: &str, sink: Arc<dyn Sink>, mut left: Left) -> Arc<Self> {
        let under = std::mem::take(&mut left.under);
        Run::at(sink, left.checkpoints, under, Ops::again(fiber, left))
    }

    fn at(sink: Arc<dyn Sink>, checkpoints: u64, left: LeftUnder, ops: Ops) -> Arc<Self> {
        let checkpoints = AtomicU64::new(checkpoints);
        Arc::new(Run {
            sink,
            checkpoints,
            ops: Arc::new(ops),
            left,
            kept: Mutex::default(),
            outbox: Mutex::default(),
            called: Mutex::default(),
            step: StepSpan::default(),
            whereabouts: Whereabouts::default(),
            stopped: Mutex::new(None),
            unreadable: Mutex::default(),
        })
    }

    /// What is known of the code that left the snapshot.
    pub(crate) fn left(&self) -> &LeftUnder {
        &self.left
    }

    /// What is stored beside the snapshot.
    pub(crate) fn kept(&self) -> MutexGuard<'_, SnapshotTracker> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the next checkpoint takes along.
    pub(crate) fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The function that was called in the poll that has just ended, to be run before its caller is polled again.
    pub(crate) fn take_called(&self) -> Option<BoxFuture<'static, ()>> {
        self.called.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn stop(&self, why: Stopped) {
        self.stopped.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    }

    /// Puts down why the run does not go on, and is never ready: the driver drops it at its next look.
    pub(crate) async fn halt<T>(&self, why: Stopped) -> T {
        self.stop(why);
        std::future::pending().await
    }

    /// A stash cannot be read. The body hears of it; if the function then ends in an error, the fiber is parked and has not failed.
    pub(crate) fn cannot_read(&self, why: String) {
        *self.unreadable.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }

    pub(crate) fn take_unreadable(&self) -> Option<String> {
        self.unreadable.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn take_stopped(&self) -> Option<Stopped> {
        self.stopped.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// One activation of a fiber function.
#[doc(hidden)]
pub struct Frame {
    pub(crate) run: Arc<Run>,
    pub(crate) machine: &'static Machine,
    target: Option<Target>,
    /// The text of the outer frames before and after this one's.
    prefix: String,
    suffix: String,
    /// What that text names.
    outer: SnapshotRefs,
    /// How many outer frames there are.
    depth: u32,
    /// The layouts of the functions that are being called, from the first callee to this one.
    callees: Vec<Arc<LayoutRow>>,
}

/// The cut point being resumed into and what is still to be restored on the way.
struct Target {
    cut: u32,
    locals: Locals,
    call: Option<Box<Snapshot>>,
}

impl std::fmt::Debug for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "frame of `{}`", self.machine.name)
    }
}

impl Frame {
    /// A frame that starts at the beginning.
    pub(crate) fn start(machine: &'static Machine, run: Arc<Run>) -> Self {
        Frame {
            run,
            machine,
            target: None,
            prefix: String::new(),
            suffix: String::new(),
            outer: SnapshotRefs::default(),
            depth: 0,
            callees: Vec::new(),
        }
    }

    /// A frame that resumes; `Err` says why it cannot.
    pub(crate) fn resume(machine: &'static Machine, run: Arc<Run>, snapshot: Snapshot) -> Result<Self, String> {
        let mut frame = Frame::start(machine, run);
        frame.aim(snapshot)?;
        Ok(frame)
    }

    fn aim(&mut self, snapshot: Snapshot) -> Result<(), String> {
        let name = self.machine.name;
        let Some(cut) = self.machine.find(&snapshot.at) else {
            return Err(format!("step `{}` of `{name}` is not in the code any more", snapshot.at));
        };
        let mut locals = snapshot.locals;
        let spec = &self.machine.cuts[cut as usize];
        if snapshot.call.is_some() && spec.kind != CutKind::Call {
            return Err(format!("`{}` of `{name}` was a call and is a step now", snapshot.at));
        }
        for local in spec.locals {
            let absent_yet = local.result && snapshot.call.is_some();
            let stored = spec.stored_name(local, |name| locals.contains_key(name));
            if let Some(value) = stored.filter(|stored| *stored != local.name).and_then(|stored| locals.remove(stored)) {
                locals.insert(local.name.to_owned(), value);
            }
            if !absent_yet && stored.is_none() {
                return Err(format!("local `{}` of `{name}` is needed after step `{}` but is not in the snapshot", local.name, spec.name));
            }
        }
        locals.retain(|name, _| spec.locals.iter().any(|l| l.name == name));
        let logs = self.run.kept().stored();
        self.target = Some(Target { cut, locals: Locals { step: spec.name, values: locals, logs }, call: snapshot.call });
        Ok(())
    }

    /// Whether user code runs now, as against being skipped on the way to a cut point.
    pub fn running(&self) -> bool {
        self.target.is_none()
    }

    /// What all frames of the run share.
    pub(crate) fn run(&self) -> Arc<Run> {
        Arc::clone(&self.run)
    }

    /// Whether the cut point being resumed into is one of these.
    pub fn inside(&self, cuts: RangeInclusive<u32>) -> bool {
        self.target.as_ref().is_some_and(|t| cuts.contains(&t.cut))
    }

    /// Whether the cut point being resumed into comes after this one.
    pub fn past(&self, cut: u32) -> bool {
        self.target.as_ref().is_some_and(|t| t.cut > cut)
    }

    /// Whether a `call!` is to be entered: anew, or into the callee's snapshot.
    pub fn calls(&self, cut: u32) -> bool {
        self.target.as_ref().is_none_or(|t| t.cut == cut && t.call.is_some())
    }

    /// Takes values out of the snapshot.
    pub fn restore<T>(&mut self, read: impl FnOnce(&mut Locals) -> Result<T, Unreadable>) -> Restore<T> {
        let target = self.target.as_mut().expect("values are restored only on the way to a cut point");
        match read(&mut target.locals) {
            Ok(value) => Restore(Some(value)),
            Err(Unreadable(why)) => {
                self.run.stop(Stopped::Unreadable { why, depth: self.depth, migrates: self.machine.migrate.is_some() });
                Restore(None)
            }
        }
    }

    /// [`Self::restore`] at the cut point being resumed into, or on the way to one further down: at its own the function runs again.
    pub fn restore_at<T>(&mut self, cut: u32, read: impl FnOnce(&mut Locals) -> Result<T, Unreadable>) -> Restore<T> {
        let restored = self.restore(read);
        if restored.0.is_some() {
            self.arrive(cut);
        }
        restored
    }

    /// Behind a loop that has these cut points: parks the fiber if it is still to come to one of them.
    pub fn behind(&self, cuts: RangeInclusive<u32>) -> Restore<()> {
        if !self.inside(cuts) {
            return Restore(Some(()));
        }
        if let Some(why) = self.missed() {
            self.run.stop(Stopped::Parked(why));
        }
        Restore(None)
    }

    /// Parks the fiber: the items that a loop has gone over are not what they were.
    pub fn other_items(&self, over: &str) -> BoxFuture<'static, Infallible> {
        self.run.stop(Stopped::Parked(format!(
            "the `for` loop over `{over}` of `{}` stands in the middle of its items, and those that it has gone over have changed: let the list \
             begin as it did, or raise `version` and `migrate` the snapshot",
            self.machine.name
        )));
        Box::pin(std::future::pending())
    }

    /// Why a function that has ended never came to the cut point that it was to resume at, if so.
    pub(crate) fn missed(&self) -> Option<String> {
        let target = self.target.as_ref()?;
        let (step, name) = (target.locals.step, self.machine.name);
        Some(format!(
            "step `{step}` of `{name}` was not reached: what leads to it (a resource, the items of a borrowed loop) is not as it was"
        ))
    }

    /// Parks the fiber: what was borrowed before the cut point cannot be borrowed again.
    pub fn lost(&self, why: &str) -> BoxFuture<'static, Infallible> {
        self.run.stop(Stopped::Parked(format!("{why}: the code that took it apart has changed")));
        Box::pin(std::future::pending())
    }

    /// Begins to run again if this is the cut point being resumed into.
    pub fn arrive(&mut self, cut: u32) {
        if let Some(target) = self.target.take_if(|t| t.cut == cut) {
            debug_assert!(target.locals.values.is_empty(), "not restored at `{}`: {:?}", target.locals.step, target.locals.values);
        }
    }

    /// A step's body begins, unless an operation of an earlier run has to be decided first: then the fiber is parked.
    pub fn begin(&self, cut: u32) -> Restore<()> {
        let (function, spec) = (self.machine.name, &self.machine.cuts[cut as usize]);
        let is_its_own = |op: &OpRecord| {
            op.function == function
                && (op.kind == OpKind::Transaction && spec.has(&op.step) || spec.kind == CutKind::Steps && is_branch_of(spec, &op.step))
        };
        if let Some(op) = self.run.ops.comes_first(is_its_own) {
            self.run.stop(Stopped::Parked(must_come_first(&op, spec.name)));
            return Restore(None);
        }
        self.reach(cut);
        self.run.sink.tell(EventKind::StepStarted { step: spec.name });
        Restore(Some(()))
    }

    /// An effect is reached, whose body may not begin: its outcome may be known, or nobody may know it.
    pub fn reach(&self, cut: u32) {
        let cut = &self.machine.cuts[cut as usize];
        self.run.step.begin(cut.name);
        self.run.whereabouts.begin(self.machine, cut);
    }

    /// Replaces the snapshot: the fiber stands at `cut` and keeps what `save` puts down.
    pub fn checkpoint(&mut self, cut: u32, save: impl FnOnce(&mut Save<'_>)) -> BoxFuture<'static, ()> {
        let written = self.write(cut, save, "null}");
        let at = self.machine.cuts[cut as usize].name;
        Box::pin(commit(Arc::clone(&self.run), written, at, self.callees.clone()))
    }

    /// Runs another fiber inline, from its start or from the snapshot it left in ours, then checkpoints with its value.
    ///
    /// `save` runs before this returns, so that the future holds no borrow of the caller's locals.
    pub fn call<'a, F: Fiber>(
        &'a mut self,
        cut: u32,
        start: Option<F>,
        ctx: &'a FiberContext,
        result: Option<&'static str>,
        save: impl FnOnce(&mut Save<'_>),
    ) -> BoxFuture<'a, Result<F::Output, F::Error>> {
        let nested = self.target.take().and_then(|t| t.call);
        let open = self.write(cut, save, "");
        Box::pin(async move {
            let (mut open, callee) = match self.callee::<F>(open, nested) {
                Ok(opened) => opened,
                Err(stopped) => {
                    self.run.stop(stopped);
                    std::future::pending().await
                }
            };
            let (returned, missed) = run_callee(start, ctx.of_callee(), callee).await;
            // A step of its that ended in an error is over.
            self.run.step.end();
            self.run.whereabouts.returned();
            let value = match missed {
                None => Some(returned?),
                Some(why) => {
                    drop(returned);
                    self.run.stop(Stopped::Parked(why));
                    None
                }
            };
            let Some(value) = value else { return std::future::pending().await };
            let closed = self.close_call(&mut open, result, &value).map(|()| open);
            commit(Arc::clone(&self.run), closed, self.machine.cuts[cut as usize].name, self.callees.clone()).await;
            Ok(value)
        })
    }

    /// The frame of a callee, and the open text of this one around it.
    fn callee<F: Fiber>(&self, open: Result<Written, String>, nested: Option<Box<Snapshot>>) -> Result<(Written, Frame), Stopped> {
        if self.depth == MAX_CALLS {
            return Err(Stopped::Failed(format!("`{}` cannot be called from here: {}", F::MACHINE.name, too_many_calls())));
        }
        let mut open = open.map_err(Stopped::Failed)?;
        open.text.truncate(open.text.len() - self.suffix.len());
        let layout = row_of(F::MACHINE);
        let left = &self.run.left;
        let nested = match nested {
            Some(snapshot) => F::MACHINE.fit(*snapshot, &layout.hash, left, self.depth + 1).map(Some),
            None => left.check_begun(F::MACHINE, None).map(|()| None),
        };
        let nested = nested.map_err(Stopped::Parked)?;
        let mut callee = Frame::start(F::MACHINE, Arc::clone(&self.run));
        callee.prefix = format!("{}{{{}", open.text, F::MACHINE.heading(&layout.hash));
        callee.suffix = format!("}}{}", self.suffix);
        callee.outer = open.named.clone();
        callee.depth = self.depth + 1;
        callee.callees = self.callees.iter().cloned().chain([layout]).collect();
        if let Some(snapshot) = nested {
            callee.aim(snapshot).map_err(Stopped::Parked)?;
        }
        Ok((open, callee))
    }

    fn write(&self, cut: u32, save: impl FnOnce(&mut Save<'_>), close: &str) -> Result<Written, String> {
        let cut = &self.machine.cuts[cut as usize];
        let mut text = String::with_capacity(self.prefix.len() + 256);
        if self.prefix.is_empty() {
            text.push('{');
        } else {
            text.push_str(&self.prefix);
        }
        text.push_str("\"at\":");
        text.push_str(&json_string(cut.name));
        text.push_str(",\"locals\":{");
        let mut written = Written { text, named: self.outer.clone() };
        self.put_locals(&mut written, cut.name, true, save)?;
        written.text.push_str("},\"call\":");
        written.text.push_str(close);
        written.text.push_str(&self.suffix);
        Ok(written)
    }

    /// Turns the open text of this frame, under way in a call, into the closed one after it.
    fn close_call<T: Saved>(&self, open: &mut Written, result: Option<&'static str>, value: &T) -> Result<(), String> {
        const OPEN: &str = "},\"call\":";
        if let Some(name) = result {
            open.text.truncate(open.text.len() - OPEN.len());
            let first = open.text.ends_with("\"locals\":{");
            self.put_locals(open, name, first, |save| save.put(name, value))?;
            open.text.push_str(OPEN);
        }
        open.text.push_str("null}");
        open.text.push_str(&self.suffix);
        Ok(())
    }

    /// Adds locals to the text of this frame, or to what stands beside it.
    fn put_locals(&self, written: &mut Written, step: &'static str, first: bool, save: impl FnOnce(&mut Save<'_>)) -> Result<(), String> {
        let mut kept = self.run.kept();
        kept.adopt();
        let Written { text, named } = written;
        let mut out = Save { text, step, first, error: None, apart: Some(Apart { kept: &mut kept, named, depth: self.depth }) };
        save(&mut out);
        if let Some(error) = out.error {
            return Err(error);
        }
        named.logs.append(&mut kept.logs.named);
        Ok(())
    }
}

/// Lets the driver run a callee in its caller's place: what it returned, and why it never came to its cut point, if so.
///
/// Only the innermost function is ever polled, so the stack does not grow with the calls, however much a body takes of it.
async fn run_callee<F: Fiber>(start: Option<F>, ctx: FiberContext, mut callee: Frame) -> (Result<F::Output, F::Error>, Option<String>) {
    let run = callee.run();
    let ended = Arc::new(Mutex::new(None));
    let end = Arc::clone(&ended);
    let body = Box::pin(async move {
        let returned = F::drive(start, &ctx, &mut callee).await;
        *end.lock().unwrap_or_else(PoisonError::into_inner) = Some((returned, callee.missed()));
    });
    *run.called.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
    poll_fn(|_| ended.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Poll::Pending, Poll::Ready)).await
}

/// The main text of a snapshot, and what it names.
struct Written {
    text: String,
    named: SnapshotRefs,
}

/// The arguments of an invocation as one JSON object.
pub(crate) fn save_arguments<F: Fiber>(invocation: &F) -> Result<String, String> {
    let mut text = String::from("{");
    let mut out = Save { text: &mut text, step: "", first: true, error: None, apart: None };
    invocation.save(&mut out);
    match out.error {
        Some(why) => Err(why),
        None => Ok(text + "}"),
    }
}

/// The invocation that [`save_arguments`] wrote.
pub(crate) fn load_arguments<F: Fiber>(text: &str) -> Result<F, String> {
    let values = serde_json::from_str(text).map_err(|e| format!("the stored arguments are not a JSON object: {e}"))?;
    F::load(&mut Locals { step: "", values, logs: Arc::default() }).map_err(|Unreadable(why)| why)
}

async fn commit(run: Arc<Run>, written: Result<Written, String>, at: &'static str, callees: Vec<Arc<LayoutRow>>) {
    run.step.end();
    run.whereabouts.passed();
    run.take_unreadable();
    let stopped = match written {
        Err(why) => Stopped::Failed(why),
        Ok(Written { text: snapshot, named }) => match run.ops.pass() {
            Err(why) => Stopped::Parked(why),
            Ok(ops) => {
                let delta = run.kept().commit(named);
                let number = run.checkpoints.fetch_add(1, Ordering::Relaxed) + 1;
                let outbox = std::mem::take(&mut *run.outbox());
                match run.sink.commit(Checkpoint { snapshot, at, callees, number, ops, delta, outbox }).await {
                    Ok(()) => return,
                    Err(error) => Stopped::Interrupted(error),
                }
            }
        },
    };
    run.stop(stopped);
    std::future::pending::<()>().await;
}

/// A text as JSON, quotes and all.
pub(super) fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Ready with what was restored, or never: then the reason is with the driver.
#[doc(hidden)]
#[derive(Debug)]
#[must_use = "restored values come out of `.await`"]
pub struct Restore<T>(Option<T>);

impl<T> Unpin for Restore<T> {}

impl<T> Future for Restore<T> {
    type Output = T;
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<T> {
        self.0.take().map_or(Poll::Pending, Poll::Ready)
    }
}
