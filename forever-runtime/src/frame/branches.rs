//! Concurrent steps: `steps!`.
//!
//! Each result is stored when it arrives, under the name of its branch: `both[fetch]` for a branch
//! of `steps!(fetch(a), ..)`, `pages["law"]` for the item `"law"` of a `steps!(for ..)`. A resumed
//! fiber runs only the branches without a stored result. A stored result whose name no branch of
//! the code has parks the fiber: either the branch was renamed or its work is no longer wanted, and
//! only a person can tell which.
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::exact::{hex, to_canonical};
use crate::frame::activation::Frame;
use crate::frame::branch_names::StoredBranch;
use crate::frame::codec::Codec;
use crate::frame::machine::{Cut, Machine};
use crate::frame::pause::Pauses;
use crate::frame::retry::Retry;
use crate::frame::run::Run;
use crate::frame::saved::unreadable;
use crate::frame::step::Attempts;
use crate::frame::step_error::Make;
use crate::layout::rows::row_of;
use crate::ops::effect::Effect;
use crate::ops::known::{Place, must_come_first};
use crate::ops::op::Op;
use crate::runtime::exit::Exit;
use crate::store::{BranchResult, OpKind, OpRecord};

/// The branches of one `steps!`, with the results of earlier runs.
#[doc(hidden)]
pub struct Side {
    run: Arc<Run>,
    machine: &'static Machine,
    cut: &'static Cut,
    /// Number of checkpoints of the fiber when they began.
    number: u64,
    /// Results of an earlier run, by branch.
    stored: BTreeMap<String, String>,
    pauses: Pauses,
}

impl std::fmt::Debug for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}` with {} results", self.cut.name, self.stored.len())
    }
}

impl Frame {
    /// Begins a `steps!`, or resumes it.
    pub fn side(&self, cut: u32) -> impl Future<Output = Side> + Send + use<> {
        let (run, machine, cut) = (Arc::clone(&self.run), self.machine, &self.machine.cuts[cut as usize]);
        async move {
            let number = run.checkpoints.load(Ordering::Relaxed);
            let stored = if run.ops.may_be_left(number) { run.left().take_results() } else { BTreeMap::new() };
            run.outbox().joined = true;
            Side { run, machine, cut, number, stored, pauses: Pauses::default() }
        }
    }
}

impl Side {
    /// The branches as operations.
    pub fn operations(&self) -> Branches {
        let Side { run, machine, cut, number, stored: _, pauses } = self;
        Branches { run: Arc::clone(run), machine, cut, number: *number, pauses: pauses.clone() }
    }

    /// `steps!(for x in items, limit = 8, body)`: a list to be filled, of which `limit` run at a
    /// time.
    pub fn each<F>(self, limit: Option<usize>) -> Each<F> {
        Each { side: self, limit: limit.unwrap_or(usize::MAX).max(1), branches: Vec::new() }
    }

    fn named_branches(&self) -> Vec<StoredBranch> {
        self.cut.branches.iter().map(|branch| StoredBranch::named(self.cut, branch)).collect()
    }

    /// Gives each branch its stored result. Parks the fiber for a result, or an operation in doubt,
    /// that belongs to no branch.
    async fn begun(&mut self, branches: Vec<StoredBranch>) -> Vec<Begun> {
        let of_branch = |op: &OpRecord| branches.iter().find(|branch| branch.is_of(self.machine.name, op));
        let is_ours = |op: &OpRecord| of_branch(op).is_some_and(|branch| branch.settles(op) || branch.is_in(&self.stored));
        if let Some(op) = self.run.ops.comes_first(is_ours) {
            let next = of_branch(&op).map_or(self.cut.name, |branch| &branch.name);
            self.run.halt::<()>(Exit::parked(must_come_first(&op, next))).await;
        }
        let mut left = std::mem::take(&mut self.stored);
        let mut begun = Vec::with_capacity(branches.len());
        for branch in branches {
            let result = std::iter::once(&branch.name).chain(&branch.was).find_map(|name| left.remove(name));
            begun.push(Begun { result, branch: Arc::new(branch) });
        }
        if let Some(branch) = left.into_keys().next().filter(|_| !self.run.left().is_migrated()) {
            let steps = self.cut.name;
            let why = match self.cut.branches {
                [] => format!(
                    "the result of `{branch}` is stored, and what `{steps}` goes over has no such item now: what it goes over must be as it was, \
                     or the function needs a new `version` and `migrate`"
                ),
                _ => format!(
                    "the result of `{branch}` is stored, and `{steps}` has no branch of that name now: if it was renamed, write \
                     `step!(was = \"..\", ..)` for the branch"
                ),
            };
            self.run.halt::<()>(Exit::parked(why)).await;
        }
        begun
    }

    /// Runs one branch. One that is cut off, as when the runtime closes, rests until all others
    /// have ended or rest: nothing of theirs is cut off with it. Whatever its code still waits for,
    /// it does not go on.
    async fn branch<T, E>(&self, begun: Begun, body: impl Future<Output = Result<T, E>>, codec: Codec<T>) -> Result<T, E> {
        let mut branch = pin!(self.carry_out(begun, body, codec));
        let mut is_cut_off = false;
        poll_fn(|cx| {
            if is_cut_off {
                return Poll::Pending;
            }
            let polled = branch.as_mut().poll(cx);
            let Some(exit) = self.run.take_stopped() else { return polled };
            is_cut_off = exit.is_cut_off();
            if is_cut_off {
                self.pauses.cut_off();
            } else {
                self.run.stop(exit);
            }
            Poll::Pending
        })
        .await
    }

    /// Reads the stored result of a branch.
    async fn read<T>(&self, branch: &StoredBranch, text: &str, codec: Codec<T>) -> T {
        match codec.restore(text) {
            Ok(value) => value,
            Err(why) => {
                let why = format!("the result of `{}` {}", branch.name, unreadable::<T>(why));
                self.run.halt(Exit::parked(self.run.secrets.text(why))).await
            }
        }
    }

    /// Reads the stored result of a branch. One that cannot be read parks the fiber before any body
    /// begins.
    async fn try_to_read<T>(&self, begun: &Begun, codec: Codec<T>) {
        if let Some(text) = &begun.result {
            self.read(&begun.branch, text, codec).await;
        }
    }

    /// All results are read. A dry run ends here.
    async fn arrive(&self) {
        if self.run.backend.is_dry_run() {
            self.run.backend.arrived();
            self.run.halt::<()>(Exit::Closed).await;
        }
    }

    /// Returns the stored result of a branch, or runs its body and stores that result.
    async fn carry_out<T, E>(&self, begun: Begun, body: impl Future<Output = Result<T, E>>, codec: Codec<T>) -> Result<T, E> {
        let Begun { branch, result } = begun;
        let is_of = |op: &OpRecord| branch.is_of(self.machine.name, op);
        if let Some(text) = result {
            self.run.ops.come_to(is_of);
            return Ok(self.read(&branch, &text, codec).await);
        }
        if !self.run.ops.is_in_doubt(is_of) {
            // Operations of an earlier run are resolved before anything else begins.
            self.run.ops.decided().await;
        }
        if self.run.backend.is_told_to_stop() {
            return self.run.interrupt().await;
        }
        let value = self.run.tx_position.in_branch(Arc::clone(&branch), body).await;
        if value.is_err() {
            self.run.error_counts().await;
        }
        let value = value?;
        if self.run.ended_early(is_of) {
            return self.run.interrupt().await;
        }
        let text = match codec.save(&value) {
            Ok(text) => text,
            Err(why) => self.run.halt(Exit::failed(format!("the result of `{}` cannot be saved: {why}", branch.name))).await,
        };
        let result = BranchResult { branch: branch.name.clone(), data: text, layout: Some(row_of(self.machine)) };
        match self.run.backend.save_branch(self.number, result, self.run.outputs.take_of_branch(&branch.name)).await {
            Ok(()) => Ok(value),
            Err(error) => self.run.halt(Exit::interrupted(error)).await,
        }
    }
}

/// A branch with its stored result, if there is one.
struct Begun {
    branch: Arc<StoredBranch>,
    result: Option<String>,
}

// One method per number of branches. With a trait for tuples, the compiler could not tell that the
// future of a function is `Send` if its error is a `Box<dyn Error + Send + Sync>`.
macro_rules! all {
    ($all:ident: $($future:ident $value:ident,)+) => {
        impl Side {
            /// `steps!(a, b, ..)`: runs all at once and returns a tuple; the first error ends the
            /// others. Each branch is a future with the codec of its value.
            #[allow(non_snake_case, clippy::too_many_arguments)]
            pub async fn $all<E: Send, $($value: Send, $future: Future<Output = Result<$value, E>> + Send),+>(
                mut self,
                $($future: ($future, Codec<$value>),)+
            ) -> Result<($($value,)+), E> {
                let branches = self.named_branches();
                let begun = self.begun(branches).await;
                let mut results = begun.iter();
                $(self.try_to_read(results.next().expect("as many as futures"), $future.1).await;)+
                self.arrive().await;
                let mut begun = begun.into_iter();
                $(
                    let (future, codec) = $future;
                    let (mut $future, mut $value) = (pin!(self.branch(begun.next().expect("as many as futures"), future, codec)), None);
                )+
                poll_fn(|cx| {
                    $(
                        if $value.is_none() && let Poll::Ready(result) = $future.as_mut().poll(cx) {
                            match result {
                                Ok(value) => $value = Some(value),
                                Err(error) => return Poll::Ready(Err(error)),
                            }
                        }
                    )+
                    let running = [$($value.is_none()),+].into_iter().filter(|runs| *runs).count();
                    if running > 0 {
                        self.pauses.suspend(&self.run, running);
                        return Poll::Pending;
                    }
                    $(let Some($value) = $value.take() else { return Poll::Pending };)+
                    Poll::Ready(Ok(($($value,)+)))
                })
                .await
            }
        }
    };
}

all!(all_2: F0 T0, F1 T1,);
all!(all_3: F0 T0, F1 T1, F2 T2,);
all!(all_4: F0 T0, F1 T1, F2 T2, F3 T3,);
all!(all_5: F0 T0, F1 T1, F2 T2, F3 T3, F4 T4,);
all!(all_6: F0 T0, F1 T1, F2 T2, F3 T3, F4 T4, F5 T5,);
all!(all_7: F0 T0, F1 T1, F2 T2, F3 T3, F4 T4, F5 T5, F6 T6,);
all!(all_8: F0 T0, F1 T1, F2 T2, F3 T3, F4 T4, F5 T5, F6 T6, F7 T7,);
all!(all_9: F0 T0, F1 T1, F2 T2, F3 T3, F4 T4, F5 T5, F6 T6, F7 T7, F8 T8,);
all!(all_10: F0 T0, F1 T1, F2 T2, F3 T3, F4 T4, F5 T5, F6 T6, F7 T7, F8 T8, F9 T9,);
all!(all_11: F0 T0, F1 T1, F2 T2, F3 T3, F4 T4, F5 T5, F6 T6, F7 T7, F8 T8, F9 T9, F10 T10,);
all!(all_12: F0 T0, F1 T1, F2 T2, F3 T3, F4 T4, F5 T5, F6 T6, F7 T7, F8 T8, F9 T9, F10 T10, F11 T11,);

/// A branch with its number.
type Numbered<'a, T> = Pin<Box<dyn Future<Output = (usize, T)> + Send + 'a>>;

/// The branches of a `steps!(for ..)`.
#[doc(hidden)]
#[derive(Debug)]
pub struct Each<F> {
    side: Side,
    limit: usize,
    branches: Vec<(Arc<str>, F)>,
}

impl<T: Send, E: Send, F: Future<Output = Result<T, E>> + Send> Each<F> {
    /// Adds the branch of the next item.
    pub fn push(&mut self, item: Arc<str>, branch: F) {
        self.branches.push((item, branch));
    }

    /// Runs all branches; the first error ends the others.
    pub async fn run(self, codec: Codec<T>) -> Result<Vec<T>, E> {
        let Each { mut side, limit, branches } = self;
        let (items, bodies): (Vec<_>, Vec<_>) = branches.into_iter().unzip();
        let begun = side.begun(items.iter().map(|item| StoredBranch::of_item(side.cut, item)).collect()).await;
        for begun in &begun {
            side.try_to_read(begun, codec).await;
        }
        side.arrive().await;
        let mut values: Vec<Option<T>> = items.iter().map(|_| None).collect();
        // Branches with an operation in doubt come first, since the others wait for them and
        // `limit` may leave no room later.
        let is_in_doubt = |(_, (begun, _)): &(usize, (Begun, F))| side.run.ops.is_in_doubt(|op| begun.branch.is_of(side.machine.name, op));
        let (first, later): (Vec<_>, Vec<_>) = begun.into_iter().zip(bodies).enumerate().partition(is_in_doubt);
        let mut waiting = first.into_iter().chain(later);
        let mut running: FuturesUnordered<Numbered<'_, Result<T, E>>> = FuturesUnordered::new();
        loop {
            while running.len() < limit
                && let Some((n, (begun, body))) = waiting.next()
            {
                let side = &side;
                running.push(Box::pin(async move { (n, side.branch(begun, body, codec).await) }));
            }
            let next = poll_fn(|cx| {
                let next = running.poll_next_unpin(cx);
                if next.is_pending() {
                    side.pauses.suspend(&side.run, running.len());
                }
                next
            });
            let Some((n, result)) = next.await else { break };
            values[n] = Some(result?);
        }
        Ok(values.into_iter().flatten().collect())
    }
}

/// The collected items of a `steps!(for x in items, ..)`. Each has a place of its own, from which
/// its branch takes it.
///
/// `json` gives the JSON text of an item that has one. The store identifies the item by this text,
/// so reordering the list changes nothing; the second of two equal items gets the suffix `#2`. An
/// item without a text is identified by its place and the length of the list.
#[doc(hidden)]
pub fn places<T>(items: Vec<T>, json: impl Fn(&T) -> Option<String>) -> Vec<ItemPlace<T>> {
    let len = items.len();
    let mut equal: BTreeMap<String, u32> = BTreeMap::new();
    let mut place = |(n, item): (usize, T)| {
        let key = json(&item).map_or_else(|| format!("{} of {len}", n + 1), short);
        let count = equal.entry(key.clone()).or_default();
        *count += 1;
        let key = if *count == 1 { key } else { format!("{key}#{count}") };
        ItemPlace { key: key.into(), item: Some(item) }
    };
    items.into_iter().enumerate().map(&mut place).collect()
}

/// Maximum length in bytes of an item's text that names its branch unchanged.
const LONGEST_ITEM: usize = 100;

fn short(json: String) -> String {
    if json.len() <= LONGEST_ITEM { json } else { format!("sha256 {}", hex(&Sha256::digest(json)[..16])) }
}

/// An item that may have a JSON text. Call `(&&Item(item)).key()` with [`ByJson`] and [`ByPlace`]
/// in scope.
#[doc(hidden)]
#[derive(Debug)]
pub struct Item<'a, T>(pub &'a T);

/// Chosen first, for items that can be saved.
#[doc(hidden)]
pub trait ByJson {
    fn key(&self) -> Option<String>;
}

/// Chosen for all other items.
#[doc(hidden)]
pub trait ByPlace {
    fn key(&self) -> Option<String>;
}

impl<T: Serialize> ByJson for &Item<'_, T> {
    fn key(&self) -> Option<String> {
        to_canonical(self.0).ok()
    }
}

impl<T> ByPlace for Item<'_, T> {
    fn key(&self) -> Option<String> {
        None
    }
}

/// An item with the key of its branch.
#[doc(hidden)]
#[derive(Debug)]
pub struct ItemPlace<T> {
    key: Arc<str>,
    item: Option<T>,
}

impl<T> ItemPlace<T> {
    /// Key of its branch.
    pub fn key(&self) -> Arc<str> {
        Arc::clone(&self.key)
    }
}

/// Takes an item out of its place.
#[doc(hidden)]
pub fn item<T>(place: &mut ItemPlace<T>) -> T {
    place.item.take().expect("each branch takes its own item, once")
}

/// The branches of a `steps!` as operations.
#[doc(hidden)]
#[derive(Debug)]
pub struct Branches {
    run: Arc<Run>,
    machine: &'static Machine,
    cut: &'static Cut,
    /// Number of checkpoints of the fiber when they began.
    number: u64,
    pauses: Pauses,
}

/// One branch as an operation.
#[doc(hidden)]
#[derive(Debug)]
pub struct Branch<'a> {
    of: &'a Branches,
    /// Name of the branch in messages and events.
    step: &'static str,
    stored: StoredBranch,
}

impl Branches {
    /// The branch at place `n` among the named ones.
    pub fn named(&self, n: usize) -> Branch<'_> {
        let branch = &self.cut.branches[n];
        Branch { of: self, step: branch.stored, stored: StoredBranch::named(self.cut, branch) }
    }

    /// The branch of an item.
    pub fn of_item(&self, item: &str) -> Branch<'_> {
        Branch { of: self, step: self.cut.name, stored: StoredBranch::of_item(self.cut, item) }
    }
}

impl Branch<'_> {
    fn place(&self, kind: OpKind, key: Option<String>) -> Place {
        let Branch { of, stored, .. } = self;
        Place {
            kind,
            machine: of.machine,
            step: Cow::Owned(stored.name.clone()),
            was: stored.was.iter().cloned().map(Cow::Owned).collect(),
            steps: Some(of.cut),
            key,
            number: of.number,
        }
    }

    /// The `Op` of a branch whose body takes one.
    pub fn op(&self) -> Op {
        let record = self.of.run.ops.of_step(self.place(OpKind::Step, None));
        Op::of(Arc::clone(&self.of.run), self.step, record)
    }

    /// Begins a branch with `retry`, `timeout` or `catch`, counting the attempts of earlier runs.
    pub fn attempts<E>(&self, retry: Option<Retry<E>>, timeout: Option<Duration>) -> Attempts<E> {
        Attempts::new(self.op(), retry).within(timeout).in_branch(self.of.pauses.clone())
    }

    /// Begins a branch that is an effect, or resumes it.
    pub async fn effect<E>(&self, key: Option<Result<String, String>>, retry: Option<Retry<E>>, make: Option<Make<E>>) -> Effect<E> {
        let run = &self.of.run;
        Effect::begun(run, self.step, |key| self.place(OpKind::Effect, key), key, retry, make).await.in_branch(self.of.pauses.clone())
    }
}
