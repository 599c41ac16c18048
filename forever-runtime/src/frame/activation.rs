//! One activation of a fiber function: where it resumes, what it restores, and the checkpoints it makes.
//!
//! Generated code asks three questions (`running`, `inside`, `past`), restores, and checkpoints. A frame is either running
//! or on its way to the cut point it resumes into; on the way only restores happen. What cannot go on (a local that cannot
//! be read, a checkpoint that cannot be written) is put down as an [`Exit`], and the future never becomes ready: the driver sees
//! the reason and drops it, so no error type of the user's is needed.
use std::convert::Infallible;
use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::frame::locals::{Locals, Save, Unreadable};
use crate::frame::machine::{CutKind, Machine};
use crate::frame::run::Run;
use crate::frame::snapshot::Snapshot;
use crate::frame::tracker::SnapshotRefs;
use crate::frame::writer::commit;
use crate::future::BoxFuture;
use crate::ops::known::{is_branch_of, must_come_first};
use crate::runtime::events::EventKind;
use crate::runtime::exit::Exit;
use crate::store::{LayoutRow, OpKind, OpRecord};

/// One activation of a fiber function.
#[doc(hidden)]
pub struct Frame {
    pub(crate) run: Arc<Run>,
    pub(crate) machine: &'static Machine,
    pub(super) target: Option<Target>,
    /// The text of the outer frames before and after this one's.
    pub(super) prefix: String,
    pub(super) suffix: String,
    /// What that text names.
    pub(super) outer: SnapshotRefs,
    /// How many outer frames there are.
    pub(super) depth: u32,
    /// The layouts of the functions that are being called, from the first callee to this one.
    pub(super) callees: Vec<Arc<LayoutRow>>,
}

/// The cut point being resumed into and what is still to be restored on the way.
pub(super) struct Target {
    pub(super) cut: u32,
    pub(super) locals: Locals,
    pub(super) call: Option<Box<Snapshot>>,
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

    pub(super) fn aim(&mut self, snapshot: Snapshot) -> Result<(), String> {
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
                self.run.stop(Exit::Unreadable { why: why.into(), depth: self.depth, migrates: self.machine.migrate.is_some() });
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
            self.run.stop(Exit::parked(why));
        }
        Restore(None)
    }

    /// Parks the fiber: the items that a loop has gone over are not what they were.
    pub fn other_items(&self, over: &str) -> BoxFuture<'static, Infallible> {
        self.run.stop(Exit::parked(format!(
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
        self.run.stop(Exit::parked(format!("{why}: the code that took it apart has changed")));
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
            self.run.stop(Exit::parked(must_come_first(&op, spec.name)));
            return Restore(None);
        }
        self.reach(cut);
        self.run.backend.tell(EventKind::StepStarted { step: spec.name });
        Restore(Some(()))
    }

    /// An effect is reached, whose body may not begin: its outcome may be known, or nobody may know it.
    pub fn reach(&self, cut: u32) {
        let cut = &self.machine.cuts[cut as usize];
        self.run.step.begin(cut.name);
        self.run.tx_position.begin(self.machine, cut);
    }

    /// Replaces the snapshot: the fiber stands at `cut` and keeps what `save` puts down.
    pub fn checkpoint(&mut self, cut: u32, save: impl FnOnce(&mut Save<'_>)) -> BoxFuture<'static, ()> {
        let written = self.write(cut, save, "null}");
        let at = self.machine.cuts[cut as usize].name;
        Box::pin(commit(Arc::clone(&self.run), written, at, self.callees.clone()))
    }
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
