//! A dry run: whether the code of this program can read everything that a fiber has stored.
//!
//! The code runs from its beginning to the cut point that the snapshot names, as it does when a
//! fiber is resumed, and no further. On this way it only restores values and makes those of
//! `#[fresh]` again. Stored results of a `steps!` are read too, for which a `for` goes over its
//! items. Nothing is stored.
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, ErrorKind, Result};
use crate::exec::compatibility::Verdict;
use crate::exec::executor::Executor;
use crate::exec::registry::{Begin, Known};
use crate::frame::backend::RunBackend;
use crate::frame::branch_names::StoredBranch;
use crate::frame::context::FiberContext;
use crate::frame::locals::OnRenamedField;
use crate::frame::machine::{Cut, CutKind, Machine, PENDING};
use crate::frame::poll::Guarded;
use crate::frame::resources::Needs;
use crate::frame::run::Run;
use crate::frame::snapshot::Snapshot;
use crate::future::BoxFuture;
use crate::layout::rows::LeftUnder;
use crate::ops::known::{Left, has_to_be_met, is_branch_of, may_have_executed, must_come_first, passed_over};
use crate::ops::ledger::Ledger;
use crate::runtime::exit::Exit;
use crate::runtime::link::Link;
use crate::runtime::state::Runtime;
use crate::store::{LoadedFiber, OpKind, OpRecord, OpState};

/// Checks that a fiber can be resumed from what is stored; `Err` says why not.
pub(crate) async fn check(exec: &Arc<Executor>, id: &str, known: &Arc<Known>, stored: LoadedFiber) -> Result<(), String> {
    if stored.snapshot.is_none() {
        LeftUnder::of(&stored).check_begun(known.machine, None)?;
        return match known.compare_arguments(&stored.args, exec.registry.on_renamed_field).verdict {
            Verdict::Parks { reason } => Err(reason),
            Verdict::Resumes | Verdict::Migrates | Verdict::MayPark { .. } => Ok(()),
        };
    }
    // The functions whose values could not be read, and whose `migrate` function is asked.
    let mut unreadable = BTreeSet::new();
    loop {
        match once(exec, id, known, stored.clone(), &unreadable).await? {
            None => return Ok(()),
            Some(Exit::Unreadable { depth, migrates: true, .. }) if unreadable.insert(depth) => {}
            Some(Exit::Unreadable { why, .. } | Exit::Unfit(why) | Exit::Parked(why) | Exit::Failed(why)) => return Err(why.to_string()),
            Some(exit) => return Err(format!("it is {} before it comes to its cut point", exit.word())),
        }
    }
}

/// The verdict on a fiber whose layouts fit the code. `migrate` functions are not run. Without a
/// resource that one of its functions takes, nothing is read.
pub(crate) async fn verdict(exec: &Arc<Executor>, known: &Arc<Known>, mut stored: LoadedFiber) -> Verdict {
    let parks = |reason: String| Verdict::Parks { reason };
    let callees = stored.callees.iter().filter_map(|layout| exec.registry.get(&layout.fiber));
    let mut needs = Needs::new(&exec.resources);
    callees.chain([Arc::clone(known)]).for_each(|known| known.needs(&mut needs));
    // Of operations in doubt the code decides, once it has come to them.
    let in_doubt = std::mem::take(&mut stored.ops);
    // A layer above reads its own.
    let is_ours = exec.registry.is_ours(known.machine.name);
    if stored.snapshot.is_some() && needs.missing.is_empty() && !is_ours {
        match once(exec, "", known, stored.clone(), &BTreeSet::new()).await {
            Ok(None) => {}
            Ok(Some(Exit::Unreadable { migrates: true, .. })) => return Verdict::Migrates,
            Ok(Some(Exit::Unreadable { why, .. } | Exit::Unfit(why) | Exit::Parked(why) | Exit::Failed(why))) => {
                return parks(why.to_string());
            }
            Ok(Some(exit)) => return parks(format!("it is {} before it comes to its cut point", exit.word())),
            Err(why) => return parks(why),
        }
    }
    let place = innermost(known.machine.name, stored.snapshot.as_deref());
    let mut why = in_doubt.iter().filter_map(|op| {
        let machine = exec.registry.get(&op.function)?.machine;
        let next = place.as_ref().and_then(|(name, at)| match at {
            Some(at) if *name == op.function => machine.cuts.get(machine.find(at)? as usize).map(|cut| cut.next),
            // A function without a checkpoint was called since the last one.
            _ => Some(machine.first),
        });
        match (op.kind, op.state) {
            (OpKind::Effect, OpState::Started) => parks_in_doubt(op, machine, next),
            (OpKind::Transaction, OpState::Completed) if !op.step.is_empty() => parks_passed_over(op, machine, next?),
            _ => None,
        }
    });
    if let Some(why) = why.next() {
        return parks(why);
    }
    let may_park = |op: &OpRecord| match exec.registry.get(&op.function) {
        None => Some(format!("function `{}`, which began operation `{}`, is not registered and was not compared", op.function, op.id)),
        Some(_) => (op.kind == OpKind::Transaction && op.state == OpState::Completed).then(|| has_to_be_met(op)),
    };
    in_doubt.iter().find_map(may_park).map_or(Verdict::Resumes, |reason| Verdict::MayPark { reason })
}

/// The innermost function of a fiber, and its cut point.
fn innermost(name: &str, snapshot: Option<&str>) -> Option<(String, Option<String>)> {
    let Some(text) = snapshot else { return Some((name.to_owned(), None)) };
    let mut snapshot: Snapshot = serde_json::from_str(text).ok()?;
    let mut name = name.to_owned();
    while let Some(callee) = snapshot.call.take() {
        snapshot = *callee;
        name = snapshot.fiber.clone()?;
    }
    Some((name, Some(snapshot.at)))
}

fn is_of(cut: &Cut, op: &OpRecord) -> bool {
    cut.has(&op.step) || is_branch_of(cut, &op.step)
}

/// Why an operation parks its fiber whose step is not among the cut points that may come `next`.
fn parks_passed_over(op: &OpRecord, machine: &Machine, next: &[u32]) -> Option<String> {
    // The step that stores its locals before it waits is part of what it waits for.
    let waits_for = |cut: &Cut| if cut.kind == CutKind::Pending { cut.next } else { &[] };
    let cuts = || next.iter().filter_map(|cut| machine.cuts.get(*cut as usize));
    let behind = |cut: &Cut| waits_for(cut).iter().filter_map(|cut| machine.cuts.get(*cut as usize)).any(|cut| is_of(cut, op));
    let is_passed_over = !cuts().any(|cut| is_of(cut, op) || behind(cut));
    is_passed_over.then(|| cuts().next().map_or_else(|| passed_over(op), |cut| must_come_first(op, &cut.name.replacen(PENDING, "", 1))))
}

/// Why an operation in doubt parks its fiber, if the cut points that may come `next` are known;
/// `None` where the code has a policy for it.
fn parks_in_doubt(op: &OpRecord, machine: &Machine, next: Option<&[u32]>) -> Option<String> {
    if let Some(why) = next.and_then(|next| parks_passed_over(op, machine, next)) {
        return Some(why);
    }
    let cut = machine.cuts.iter().find(|cut| is_of(cut, op))?;
    let branch = cut.branches.iter().find(|branch| StoredBranch::named(cut, branch).has(&op.step));
    let decides = branch.map_or(cut.decides, |branch| branch.decides);
    (!decides).then(|| may_have_executed(op, "was under way when its process ended"))
}

/// Runs up to the cut point; gives how the run ended before it, if it did.
async fn once(
    exec: &Arc<Executor>,
    id: &str,
    known: &Arc<Known>,
    mut stored: LoadedFiber,
    unreadable: &BTreeSet<u32>,
) -> Result<Option<Exit>, String> {
    let on_renamed_field = exec.registry.on_renamed_field;
    let backend = Arc::new(DryRun { runtime: Link::from(&exec.runtime), on_renamed_field, has_arrived: AtomicBool::new(false) });
    let left = Left::of(&mut stored, unreadable);
    let run = Run::again(id, Arc::clone(&backend) as Arc<dyn RunBackend>, left);
    let ctx = FiberContext {
        id: id.to_owned(),
        name: known.machine.name.into(),
        resuming: true,
        resources: exec.resources.clone(),
        clock: Arc::clone(&exec.runtime.clock),
        run: Arc::clone(&run),
        interrupted: stored.interrupted,
        handed_over: None,
        host: None,
    };
    let driven = known.prepare(Begin::Stored(Box::new(stored)), ctx, Arc::clone(&run))?;
    let exit = Guarded::new(driven).await;
    Ok((!backend.has_arrived.load(Ordering::Relaxed)).then_some(exit))
}

/// Backend of a run that ends where it arrives.
struct DryRun {
    runtime: Link<Runtime>,
    on_renamed_field: OnRenamedField,
    has_arrived: AtomicBool,
}

impl RunBackend for DryRun {
    fn link(&self) -> Link<Runtime> {
        self.runtime.clone()
    }

    fn on_renamed_field(&self) -> OnRenamedField {
        self.on_renamed_field
    }

    fn is_dry_run(&self) -> bool {
        true
    }

    fn arrived(&self) {
        self.has_arrived.store(true, Ordering::Relaxed);
    }

    fn ledger(&self) -> &dyn Ledger {
        self
    }
}

impl Ledger for DryRun {
    fn save(&self, _: OpRecord) -> BoxFuture<'_, Result<()>> {
        not_here()
    }

    fn load<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Option<OpRecord>>> {
        not_here()
    }

    fn append(&self, _: OpRecord, _: Vec<String>) -> BoxFuture<'_, Result<()>> {
        not_here()
    }

    fn log<'a>(&'a self, _: &'a OpRecord) -> BoxFuture<'a, Result<Vec<String>>> {
        not_here()
    }
}

fn not_here<T: Send + 'static>() -> BoxFuture<'static, Result<T>> {
    Box::pin(async { Err(Error::new(ErrorKind::Setup, "an operation cannot begin in a dry run")) })
}
