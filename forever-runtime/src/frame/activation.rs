//! One activation of a fiber function: where it resumes, what it restores, and its checkpoints.
//!
//! Generated code asks three questions (`running`, `inside`, `past`), restores locals, and makes
//! checkpoints. A frame is either running or on its way to the cut point it resumes at; on the way
//! it only restores. If the run cannot continue (a local cannot be read, a checkpoint cannot be
//! written), the reason is recorded as an [`Exit`] and the future stays pending. The driver sees
//! the reason and drops the future, so no error type of the user's is needed.
use std::convert::Infallible;
use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use crate::frame::locals::{Locals, Save, UnreadKeys, Unreadable};
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
    /// Text of the outer frames, before and after this one's.
    pub(super) prefix: String,
    pub(super) suffix: String,
    /// References in that text.
    pub(super) outer: SnapshotRefs,
    /// Number of outer frames.
    pub(super) depth: u32,
    /// Layouts of the functions on the call stack, from the first callee to this one.
    pub(super) callees: Vec<Arc<LayoutRow>>,
    /// What the restored locals had that this code does not read.
    pub(super) unread: Mutex<UnreadKeys>,
    /// Whether all of its values may be secret, since its arguments may.
    pub(super) is_secret: bool,
}

/// The cut point to resume at, and the values still to be restored on the way.
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
    /// A frame that starts from the beginning.
    pub(crate) fn start(machine: &'static Machine, run: Arc<Run>) -> Self {
        run.secrets.enter(machine);
        let is_secret = run.secrets.are_arguments();
        Frame {
            run,
            machine,
            target: None,
            prefix: String::new(),
            suffix: String::new(),
            outer: SnapshotRefs::default(),
            depth: 0,
            callees: Vec::new(),
            unread: Mutex::default(),
            is_secret,
        }
    }

    /// A frame that starts with arguments that have more than their types read.
    pub(crate) fn with_unread(mut self, unread: UnreadKeys) -> Self {
        self.unread = Mutex::new(unread);
        self
    }

    /// A frame that resumes from a snapshot, or the reason why it cannot.
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
        let on_renamed_field = self.run.backend.on_renamed_field();
        let locals = Locals { step: spec.name, values: locals, logs, on_renamed_field, unread: UnreadKeys::new() };
        self.target = Some(Target { cut, locals, call: snapshot.call });
        Ok(())
    }

    /// Whether user code runs now, as opposed to being skipped on the way to a cut point.
    pub fn running(&self) -> bool {
        self.target.is_none()
    }

    /// State shared by all frames of the run.
    pub(crate) fn run(&self) -> Arc<Run> {
        Arc::clone(&self.run)
    }

    /// Whether the cut point to resume at is one of these.
    pub fn inside(&self, cuts: RangeInclusive<u32>) -> bool {
        self.target.as_ref().is_some_and(|t| cuts.contains(&t.cut))
    }

    /// Whether the cut point to resume at comes after this one.
    pub fn past(&self, cut: u32) -> bool {
        self.target.as_ref().is_some_and(|t| t.cut > cut)
    }

    /// Whether a `call!` is to be entered: from its start, or from the callee's snapshot.
    pub fn calls(&self, cut: u32) -> bool {
        self.target.as_ref().is_none_or(|t| t.cut == cut && t.call.is_some())
    }

    /// Reads values from the snapshot.
    pub fn restore<T>(&mut self, read: impl FnOnce(&mut Locals) -> Result<T, Unreadable>) -> Restore<T> {
        let read = read(self.locals());
        let why = read.as_ref().err().map(|Unreadable(why)| &**why);
        self.have_read(why);
        Restore(read.ok())
    }

    fn locals(&mut self) -> &mut Locals {
        &mut self.target.as_mut().expect("values are restored only on the way to a cut point").locals
    }

    /// After values were read, or could not be.
    fn have_read(&mut self, why_not: Option<&str>) {
        if let Some(target) = &mut self.target {
            self.unread.get_mut().unwrap_or_else(PoisonError::into_inner).append(&mut target.locals.unread);
        }
        if let Some(why) = why_not {
            self.run.stop(Exit::Unreadable { why: why.into(), depth: self.depth, migrates: self.machine.migrate.is_some() });
        }
    }

    /// Begins the body of a loop, whose locals are made anew: what was stored of these and not read
    /// is not theirs.
    pub fn anew(&self, locals: &[&str]) {
        self.forget_unread(locals.iter().copied());
    }

    /// One local gets the value of another, with what was stored of it and not read.
    pub fn moved(&self, from: &str, to: &str) {
        let mut unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
        if !unread.is_empty() {
            match unread.get(from).cloned() {
                Some(of_value) => unread.insert(to.to_owned(), of_value),
                None => unread.remove(to),
            };
        }
    }

    pub(super) fn forget_unread<'n>(&self, locals: impl Iterator<Item = &'n str>) {
        let mut unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
        if !unread.is_empty() {
            locals.for_each(|local| drop(unread.remove(local)));
        }
    }

    /// As [`Self::restore`], at the cut point to resume at or on the way to a later one. At its own
    /// cut point the function runs again.
    pub fn restore_at<T>(&mut self, cut: u32, read: impl FnOnce(&mut Locals) -> Result<T, Unreadable>) -> Restore<T> {
        let restored = self.restore(read);
        if restored.0.is_none() || self.arrive(cut).0.is_none() {
            return Restore(None);
        }
        restored
    }

    /// After a loop with these cut points: parks the fiber if it still had to reach one of them.
    pub fn behind(&self, cuts: RangeInclusive<u32>) -> Restore<()> {
        if !self.inside(cuts) {
            return Restore(Some(()));
        }
        if let Some(why) = self.missed() {
            self.run.stop(Exit::parked(why));
        }
        Restore(None)
    }

    /// Parks the fiber: the items that a loop has passed have changed.
    pub fn other_items(&self, over: &str) -> BoxFuture<'static, Infallible> {
        self.run.stop(Exit::parked(format!(
            "the `for` loop over `{over}` of `{}` stands in the middle of its items, and those that it has gone over have changed: let the list \
             begin as it did, or raise `version` and `migrate` the snapshot",
            self.machine.name
        )));
        Box::pin(std::future::pending())
    }

    /// If a function ended without reaching the cut point that it had to resume at, the reason.
    pub(crate) fn missed(&self) -> Option<String> {
        let target = self.target.as_ref()?;
        let (step, name) = (target.locals.step, self.machine.name);
        Some(format!(
            "step `{step}` of `{name}` was not reached: what leads to it (a resource, the items of a borrowed loop) is not as it was; \
             give it back until no fiber is there, or change the snapshot with `migrate`"
        ))
    }

    /// Parks the fiber: what was borrowed before the cut point cannot be borrowed again.
    pub fn lost(&self, why: &str) -> BoxFuture<'static, Infallible> {
        self.run.stop(Exit::parked(format!("{why}: the code that took it apart has changed")));
        Box::pin(std::future::pending())
    }

    /// Starts to run user code if this is the cut point to resume at. A dry run ends here.
    pub fn arrive(&mut self, cut: u32) -> Restore<()> {
        if let Some(target) = self.target.take_if(|t| t.cut == cut) {
            debug_assert!(target.locals.values.is_empty(), "not restored at `{}`: {:?}", target.locals.step, target.locals.values);
            // A `steps!` has results to be read.
            let is_behind = self.machine.cuts[cut as usize].kind == CutKind::Pending && self.run.left().has_results();
            if self.run.backend.is_dry_run() && !is_behind {
                self.run.backend.arrived();
                self.run.stop(Exit::Closed);
                return Restore(None);
            }
        }
        Restore(Some(()))
    }

    /// Begins the body of a step. If an operation of an earlier run has to be resolved first, parks
    /// the fiber instead.
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
        self.run.backend.tell(EventKind::StepStarted { step: spec.name.into() });
        Restore(Some(()))
    }

    /// Reaches an effect whose body may not begin yet: its outcome may be stored already, or be in
    /// doubt.
    pub fn reach(&self, cut: u32) {
        self.run.secrets.begin(self.mentions_secret(cut));
        let cut = &self.machine.cuts[cut as usize];
        self.run.step.begin(cut.name);
        self.run.tx_position.begin(self.machine, cut);
        self.run.outputs.begin_step();
    }

    /// Whether the code of a cut point may repeat a secret.
    pub(super) fn mentions_secret(&self, cut: u32) -> bool {
        self.is_secret || self.machine.mentions_secret(self.machine.cuts[cut as usize].name)
    }

    /// Replaces the snapshot: the fiber is at `cut`, with the locals that `save` writes.
    pub fn checkpoint(&mut self, cut: u32, mut save: impl FnMut(&mut Save<'_>)) -> BoxFuture<'static, ()> {
        self.checkpoint_of(cut, &mut save)
    }

    fn checkpoint_of(&self, cut: u32, save: &mut dyn FnMut(&mut Save<'_>)) -> BoxFuture<'static, ()> {
        let written = self.write(cut, save, "null}");
        Box::pin(commit(Arc::clone(&self.run), written, &self.machine.cuts[cut as usize], self.callees.clone()))
    }
}

/// Ready with the restored values, or never: then the driver has the reason.
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
