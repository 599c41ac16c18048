//! Whether the fibers of a database can be resumed by this program's code, found out before any of
//! them runs.
//!
//! Fibers are looked at in groups: those of one function that stand at one cut point and were left
//! under one layout. Where the code has that layout, and the layouts of all called functions,
//! nothing has to be read. Of the others each snapshot is compared, as it is when the fiber is
//! entered; `migrate` functions are not run. A check before a deploy reads every stored value too.
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use tracing::{debug, info, warn};

use crate::error::{Error, ErrorKind, Result, chain};
use crate::exec::dry_run;
use crate::exec::executor::Executor;
use crate::exec::registry::{Known, Registry};
use crate::frame::snapshot::Snapshot;
use crate::layout::rows::LeftUnder;
use crate::runtime::state::Runtime;
use crate::store::{LoadedFiber, Seq, Store, UnfinishedGroup, WorkerId};

/// Comparison of a database's unfinished fibers with the code of this program.
///
/// See [`Builder::check`](crate::Builder::check).
///
/// `Display` is a summary and a line for each entry that is not [`Verdict::Resumes`]; serde gives
/// everything.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::layout::Verdict;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// # let forever = forever::Forever::builder().in_memory().open().await?;
/// let found = forever.compatibility();
/// for entry in &found.entries {
///     if let Verdict::Parks { reason } = &entry.verdict {
///         eprintln!("{} fibers of `{}` are parked: {reason}", entry.fibers, entry.function);
///     }
/// }
/// assert!(found.is_ok());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Compatibility {
    /// One for each function, cut point and verdict, by function.
    pub entries: Vec<CompatibilityEntry>,
}

/// The fibers of one function that stand at one cut point, with one verdict.
///
/// See [`Compatibility`] for an example.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CompatibilityEntry {
    /// The stored name of the function.
    pub function: String,
    /// The cut point of the innermost function. `None` before the first checkpoint.
    pub at: Option<String>,
    /// How many fibers.
    pub fibers: u64,
    /// Their verdict.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// Verdict on a fiber under the code of this program.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::layout::Verdict;
///
/// fn describe(verdict: &Verdict) -> &str {
///     match verdict {
///         Verdict::Resumes => "resumes",
///         Verdict::Migrates => "resumes if `migrate` agrees",
///         Verdict::Parks { reason } | Verdict::MayPark { reason } => reason,
///         _ => "unknown",
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// It is resumed. [`Builder::check`](crate::Builder::check) has read its stored values as their
    /// types, if the resources that the function takes were given; at open they are not read yet.
    Resumes,
    /// A `migrate` function is asked.
    Migrates,
    /// It is resumed if its code does what the reason says; a check does not run it.
    MayPark {
        /// What the code has to do.
        reason: String,
    },
    /// It is parked.
    Parks {
        /// Why, and what to write so that it is resumed.
        reason: String,
    },
}

impl Compatibility {
    /// How many fibers are resumed, or have a `migrate` function that is asked.
    pub fn resumable(&self) -> u64 {
        self.entries.iter().filter(|entry| entry.verdict.is_resumable()).map(|entry| entry.fibers).sum()
    }

    /// How many fibers are parked, or may be.
    pub fn parked(&self) -> u64 {
        self.entries.iter().filter(|entry| !entry.verdict.is_resumable()).map(|entry| entry.fibers).sum()
    }

    /// Whether no fiber is parked, or may be.
    pub fn is_ok(&self) -> bool {
        self.parked() == 0
    }
}

impl Verdict {
    /// Whether the fiber is resumed, or a `migrate` function is asked.
    pub fn is_resumable(&self) -> bool {
        !matches!(self, Verdict::Parks { .. } | Verdict::MayPark { .. })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Resumes => f.write_str("resumes"),
            Verdict::Migrates => f.write_str("`migrate` is asked"),
            Verdict::MayPark { reason } => write!(f, "it may be parked: {reason}"),
            Verdict::Parks { reason } => f.write_str(reason),
        }
    }
}

impl fmt::Display for Compatibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fibers = |n: u64| if n == 1 { "1 fiber".to_owned() } else { format!("{n} fibers") };
        let (resumable, parked) = (self.resumable(), self.parked());
        let verb = if resumable == 1 { "resumes" } else { "resume" };
        write!(f, "{} {verb}", fibers(resumable))?;
        match parked {
            0 => {}
            1 => f.write_str(", 1 does not")?,
            n => write!(f, ", {n} do not")?,
        }
        for entry in self.entries.iter().filter(|entry| entry.verdict != Verdict::Resumes) {
            let at = entry.at.as_ref().map_or_else(|| "before its first step".to_owned(), |at| format!("at `{at}`"));
            write!(f, "\n{} of `{}` {at}: {}", fibers(entry.fibers), entry.function, entry.verdict)?;
        }
        Ok(())
    }
}

/// What is found of one fiber.
pub(crate) struct Found {
    pub(crate) verdict: Verdict,
    /// Whether it waits for something else than the code would wait for now.
    pub(crate) wait_changed: bool,
}

impl Found {
    pub(crate) fn parks(reason: impl Into<String>) -> Self {
        Found { verdict: Verdict::Parks { reason: reason.into() }, wait_changed: false }
    }
}

/// How many fibers of a group are looked up at a time.
const PAGE: u32 = 512;

/// The result of a comparison.
pub(crate) struct Compared {
    pub(crate) compatibility: Compatibility,
    /// Waiting fibers that have to be entered: they are to be parked, or wait for something else.
    pub(crate) to_wake: Vec<Seq>,
    /// Whether no other worker was alive.
    pub(crate) is_alone: bool,
}

/// Compares every unfinished fiber with the code; by a dry run also every stored value. The worker
/// that compares is `own`, once it has joined.
pub(crate) async fn compare(
    store: &dyn Store,
    registry: &Registry,
    own: Option<WorkerId>,
    dry: Option<&Arc<Executor>>,
) -> Result<Compared> {
    // Another worker may have the code that a waiting fiber needs, once it is ready.
    let is_alone = is_alone(store, own).await?;
    let mut counts: BTreeMap<(String, Option<String>, Verdict), u64> = BTreeMap::new();
    let mut to_wake = Vec::new();
    for group in store.unfinished_groups().await? {
        let mut count = |verdict: Verdict, fibers: u64| {
            *counts.entry((group.name.clone(), group.at.clone(), verdict)).or_default() += fibers;
        };
        let Some(known) = registry.get(&group.name) else {
            let mut after = Seq::MIN;
            // Later another program may have it, which is away for a moment.
            while group.waiting && is_alone && own.is_none() {
                let page = store.unfinished_of(group.clone(), after, PAGE).await?;
                let Some(&last) = page.last() else { break };
                after = last;
                to_wake.extend(page);
            }
            count(Verdict::Parks { reason: not_registered(&group.name) }, group.fibers);
            continue;
        };
        if dry.is_none() && is_the_same(&group, &known, registry) {
            count(Verdict::Resumes, group.fibers);
            continue;
        }
        let mut after = Seq::MIN;
        loop {
            let page = store.unfinished_of(group.clone(), after, PAGE).await?;
            let Some(&last) = page.last() else { break };
            after = last;
            for seq in page {
                let found = match store.load(seq).await {
                    Ok(stored) => {
                        let found = compare_one(&known, &stored, registry);
                        match dry.filter(|_| found.verdict == Verdict::Resumes) {
                            Some(exec) => Found { verdict: dry_run::verdict(exec, &known, stored).await, ..found },
                            None => found,
                        }
                    }
                    Err(error) if error.is_closed() => return Err(error),
                    // What is wrong with one row must not keep the others from being compared.
                    Err(error) => Found::parks(chain(&error)),
                };
                let ours = is_alone || found.verdict.is_resumable();
                if group.waiting && ours && (found.wait_changed || found.verdict != Verdict::Resumes) {
                    to_wake.push(seq);
                }
                count(found.verdict, 1);
            }
        }
    }
    let entry = |((function, at, verdict), fibers)| CompatibilityEntry { function, at, fibers, verdict };
    Ok(Compared { compatibility: Compatibility { entries: counts.into_iter().map(entry).collect() }, to_wake, is_alone })
}

/// Why a fiber is parked whose function this program does not have.
pub(crate) fn not_registered(name: &str) -> String {
    format!("fiber `{name}` is not registered: register it, or give the function that it is now `name = \"{name}\"`")
}

/// Whether a group was left by code of the same layouts, so that nothing has to be compared.
fn is_the_same(group: &UnfinishedGroup, known: &Known, registry: &Registry) -> bool {
    let mut callees = group.callees.iter().flat_map(|hashes| hashes.split_whitespace());
    // Before the first checkpoint its arguments decide.
    !group.mixed && group.layout.as_deref() == Some(&known.row().hash) && callees.all(|hash| registry.has_layout(hash))
}

fn compare_one(known: &Known, stored: &LoadedFiber, registry: &Registry) -> Found {
    let under = LeftUnder::of(stored);
    let found = compare_snapshot(known, stored, &under, registry);
    if !found.verdict.is_resumable() {
        return found;
    }
    // Of the functions on the call stack this was asked, with their snapshots.
    let asked: Vec<&str> = std::iter::once(known.machine.name).chain(stored.callees.iter().map(|layout| layout.fiber.as_str())).collect();
    let others = under.functions().into_iter().filter(|name| !asked.contains(name)).filter_map(|name| registry.get(name));
    let unclear = others.map(|known| under.check_begun(known.machine, None)).find_map(Result::err);
    unclear.map_or(found, Found::parks)
}

fn compare_snapshot(known: &Known, stored: &LoadedFiber, under: &LeftUnder, registry: &Registry) -> Found {
    let Some(text) = &stored.snapshot else {
        return match under.check_begun(known.machine, None) {
            Ok(()) => known.compare_arguments(&stored.args, registry.on_renamed_field),
            Err(why) => Found::parks(why),
        };
    };
    let mut snapshot: Snapshot = match serde_json::from_str(text) {
        Ok(snapshot) => snapshot,
        Err(why) => return Found::parks(format!("the stored snapshot cannot be read: {why}")),
    };
    if let Err(why) = snapshot.put_back(&stored.rows) {
        return Found::parks(why);
    }
    let mut found = known.compare(stored.layout.as_ref(), &snapshot, under);
    let mut level = snapshot.call.as_deref();
    while let Some(callee) = level.filter(|_| found.verdict == Verdict::Resumes) {
        // A function that is only called may not be registered: then it is compared when the call
        // is entered.
        if let Some(known) = callee.fiber.as_deref().and_then(|name| registry.get(name)) {
            found = known.compare_callee(callee, under);
        }
        level = callee.call.as_deref();
    }
    found
}

/// What opening does when the code cannot resume all stored fibers.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::layout::OnIncompatible;
/// use forever::{ErrorKind, Forever};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// // A deploy that would park fibers does not start, and the old code goes on.
/// match Forever::builder().in_memory().on_incompatible(OnIncompatible::Refuse).open().await {
///     Ok(forever) => forever.close().await,
///     Err(error) if error.kind() == ErrorKind::Incompatible => panic!("{error}"),
///     Err(error) => Err(error),
/// }
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnIncompatible {
    /// Those that cannot be resumed are parked, with the reason; the others run.
    #[default]
    Park,
    /// The runtime does not open: an error of kind [`Incompatible`](ErrorKind::Incompatible), whose
    /// text is that of the [`Compatibility`]. Nothing is changed, and the code from before can be
    /// deployed again.
    Refuse,
}

/// Logs what was found, and lets those waiting fibers be entered that would wait for nothing, or
/// for something else than the code.
pub(crate) async fn report(exec: &Executor, to_wake: Vec<Seq>) -> Result<()> {
    let (found, runtime) = (&exec.compatibility, &exec.runtime);
    if !found.is_ok() {
        warn!("{found}");
    } else if !found.entries.is_empty() {
        info!("{found}");
    }
    wake(runtime, &to_wake).await
}

async fn wake(runtime: &Runtime, to_wake: &[Seq]) -> Result<()> {
    for page in to_wake.chunks(PAGE as usize) {
        runtime.store.wake(page.to_vec(), runtime.now_ms()).await?;
    }
    Ok(())
}

async fn is_alone(store: &dyn Store, own: Option<WorkerId>) -> Result<bool> {
    let Some(cluster) = store.cluster() else { return Ok(true) };
    Ok(!cluster.workers().await?.iter().any(|worker| Some(worker.id) != own))
}

/// Once all other workers have left, lets those waiting fibers be entered that no worker can resume
/// any more. `false` if some have not left.
pub(crate) async fn compare_again(exec: Arc<Executor>) -> bool {
    let (store, own) = (&*exec.runtime.store, Some(exec.runtime.worker));
    let woken = async {
        if !is_alone(store, own).await? {
            return Ok(false);
        }
        let Compared { compatibility, to_wake, is_alone } = compare(store, &exec.registry, own, None).await?;
        if !to_wake.is_empty() {
            warn!("the other workers have left: {compatibility}");
        }
        wake(&exec.runtime, &to_wake).await?;
        Ok(is_alone)
    };
    woken.await.unwrap_or_else(|error: Error| {
        debug!(error = %chain(&error), "waiting fibers could not be compared with the code after the other workers had left");
        false
    })
}

/// The error of a runtime that is not to open over fibers that it would park.
pub(crate) fn refused(compatibility: &Compatibility) -> Error {
    Error::new(ErrorKind::Incompatible, format!("the code cannot resume all fibers: {compatibility}"))
}
