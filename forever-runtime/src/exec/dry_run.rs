//! A dry run: whether the code of this program can read everything that a fiber has stored.
//!
//! The code runs from its beginning to the cut point that the snapshot names, as it does when a
//! fiber is resumed, and no further. On this way it only restores values and makes those of
//! `#[fresh]` again. Nothing is stored.
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, ErrorKind, Result};
use crate::exec::compatibility::Verdict;
use crate::exec::executor::Executor;
use crate::exec::registry::{Begin, Known};
use crate::frame::backend::RunBackend;
use crate::frame::context::FiberContext;
use crate::frame::poll::Guarded;
use crate::frame::run::Run;
use crate::future::BoxFuture;
use crate::layout::rows::LeftUnder;
use crate::ops::known::Left;
use crate::ops::ledger::Ledger;
use crate::runtime::exit::Exit;
use crate::runtime::link::Link;
use crate::runtime::state::Runtime;
use crate::store::{LoadedFiber, OpRecord};

/// Checks that a fiber can be resumed from what is stored; `Err` says why not.
pub(crate) async fn check(exec: &Arc<Executor>, id: &str, known: &Arc<dyn Known>, stored: LoadedFiber) -> Result<(), String> {
    if stored.snapshot.is_none() {
        LeftUnder::of(&stored).check_begun(known.machine(), None)?;
        return match known.compare_arguments(&stored.args).verdict {
            Verdict::Parks { reason } => Err(reason),
            Verdict::Resumes | Verdict::Migrates => Ok(()),
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

/// Runs up to the cut point; gives how the run ended before it, if it did.
async fn once(
    exec: &Arc<Executor>,
    id: &str,
    known: &Arc<dyn Known>,
    mut stored: LoadedFiber,
    unreadable: &BTreeSet<u32>,
) -> Result<Option<Exit>, String> {
    let backend = Arc::new(DryRun { runtime: Link::from(&exec.runtime), has_arrived: AtomicBool::new(false) });
    let left = Left::of(&mut stored, unreadable);
    let run = Run::again(id, Arc::clone(&backend) as Arc<dyn RunBackend>, left);
    let ctx = FiberContext {
        id: id.to_owned(),
        name: known.machine().name.into(),
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
    has_arrived: AtomicBool,
}

impl RunBackend for DryRun {
    fn link(&self) -> Link<Runtime> {
        self.runtime.clone()
    }

    fn arrived(&self) -> bool {
        self.has_arrived.store(true, Ordering::Relaxed);
        true
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
