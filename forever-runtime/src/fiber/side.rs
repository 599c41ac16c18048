//! Steps side by side: `steps!`. Each result is stored when it arrives; a resumed fiber runs only what has not arrived.
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

use super::frame::{Frame, Run, Stopped};
use super::op::Op;
use super::op::effect::Effect;
use super::op::ledger::Place;
use super::retry::Retry;
use super::saved::{Saved, checked, unreadable};
use super::step::Attempts;
use super::step_error::Make;
use crate::store::{OpKind, OpRecord};

/// The branches of one `steps!`, with what earlier runs left of them.
#[doc(hidden)]
pub struct Side {
    run: Arc<Run>,
    step: &'static str,
    /// How many checkpoints the fiber had made when they began.
    number: u64,
    arrived: BTreeMap<u32, String>,
    function: &'static str,
    /// The stored names of the branches, and those from before; without them, a branch is known by its number.
    names: &'static [BranchName],
}

/// The stored name of a branch, and the one that it had.
type BranchName = (&'static str, Option<&'static str>);

impl std::fmt::Debug for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}` with {} results", self.step, self.arrived.len())
    }
}

impl Frame {
    /// Begins a `steps!`, or goes on with it.
    pub fn side(&self, cut: u32) -> impl Future<Output = Side> + Send + use<> {
        let (run, function, step) = (Arc::clone(&self.run), self.machine.name, self.machine.cuts[cut as usize].name);
        async move {
            let number = run.checkpoints.load(Ordering::Relaxed);
            let mut arrived = BTreeMap::new();
            if run.ops.may_be_left(number) {
                match run.sink.branch_results(number).await {
                    Ok(there) => arrived.extend(there),
                    Err(error) => run.halt(Stopped::Interrupted(error)).await,
                }
            }
            run.outbox().joined = true;
            Side { run, step, number, arrived, function, names: &[] }
        }
    }
}

impl Side {
    /// Gives the branches names.
    pub fn named(self, names: &'static [BranchName]) -> Self {
        Side { names, ..self }
    }

    /// The operations that the branches are.
    pub fn operations(&self) -> Branches {
        let Side { run, function, step, names, number, .. } = self;
        Branches { run: Arc::clone(run), function, step, names, number: *number }
    }

    /// Whether an operation is that of a branch.
    fn is_of(&self, n: u32, op: &OpRecord) -> bool {
        if op.function != self.function {
            return false;
        }
        match self.names.get(n as usize) {
            Some((name, was)) => op.step == *name || was.is_some_and(|was| op.step == was),
            None => op.step == of_item(self.step, n),
        }
    }

    /// Parks the fiber if an operation is in doubt that is none of so many branches: nobody would come to it.
    async fn look_for_doubts(&self, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let is_ours = |op: &OpRecord| (0..count).any(|n| self.is_of(n, op));
        if let Some(why) = self.run.ops.in_doubt_besides(is_ours) {
            self.run.halt::<()>(Stopped::Parked(why)).await;
        }
    }

    fn is_in_doubt(&self, n: u32) -> bool {
        self.run.ops.is_in_doubt(|op| self.is_of(n, op))
    }

    /// `steps!(for x in items, limit = 8, body)`: a list to be filled, `limit` of them at a time.
    pub fn each<F>(self, limit: Option<usize>) -> Each<F> {
        Each { side: self, limit: limit.unwrap_or(usize::MAX).max(1), branches: Vec::new() }
    }

    /// One branch: its result of an earlier run, or that of its body, stored.
    async fn branch<T: Saved, E>(&self, n: u32, body: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        if let Some(text) = self.arrived.get(&n) {
            self.run.ops.come_to(|op| self.is_of(n, op));
            return match T::restore(text) {
                Ok(value) => Ok(value),
                Err(why) => {
                    let why = format!("result {} of `{}` {}", n + 1, self.step, unreadable::<T>(why));
                    self.run.halt(Stopped::Parked(why)).await
                }
            };
        }
        if !self.is_in_doubt(n) {
            // What an earlier run may have done is found out before anything else begins.
            self.run.ops.decided().await;
        }
        let value = self.run.whereabouts.in_branch(n, body).await?;
        let text = match checked(&value, value.save()) {
            Ok(text) => text,
            Err(why) => self.run.halt(Stopped::Failed(format!("result {} of `{}` cannot be saved: {why}", n + 1, self.step))).await,
        };
        match self.run.sink.save_branch(self.number, n, text).await {
            Ok(()) => Ok(value),
            Err(error) => self.run.halt(Stopped::Interrupted(error)).await,
        }
    }
}

// A method for each number of branches: with a trait for tuples, the compiler fails to see that the future of a function whose error is a
// `Box<dyn Error + Send + Sync>` can be sent.
macro_rules! all {
    ($all:ident: $($n:tt $future:ident $value:ident,)+) => {
        impl Side {
            /// `steps!(a, b, ..)`: all at once, as a tuple; the first error ends the others.
            #[allow(non_snake_case, clippy::too_many_arguments)]
            pub async fn $all<E: Send, $($value: Saved + Send, $future: Future<Output = Result<$value, E>> + Send),+>(
                self,
                $($future: $future,)+
            ) -> Result<($($value,)+), E> {
                self.look_for_doubts([$($n),+].len()).await;
                $(let (mut $future, mut $value) = (pin!(self.branch($n, $future)), None);)+
                poll_fn(|cx| {
                    $(
                        if $value.is_none() && let Poll::Ready(result) = $future.as_mut().poll(cx) {
                            match result {
                                Ok(value) => $value = Some(value),
                                Err(error) => return Poll::Ready(Err(error)),
                            }
                        }
                    )+
                    if $($value.is_none())||+ {
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

all!(all_2: 0 F0 T0, 1 F1 T1,);
all!(all_3: 0 F0 T0, 1 F1 T1, 2 F2 T2,);
all!(all_4: 0 F0 T0, 1 F1 T1, 2 F2 T2, 3 F3 T3,);
all!(all_5: 0 F0 T0, 1 F1 T1, 2 F2 T2, 3 F3 T3, 4 F4 T4,);
all!(all_6: 0 F0 T0, 1 F1 T1, 2 F2 T2, 3 F3 T3, 4 F4 T4, 5 F5 T5,);
all!(all_7: 0 F0 T0, 1 F1 T1, 2 F2 T2, 3 F3 T3, 4 F4 T4, 5 F5 T5, 6 F6 T6,);
all!(all_8: 0 F0 T0, 1 F1 T1, 2 F2 T2, 3 F3 T3, 4 F4 T4, 5 F5 T5, 6 F6 T6, 7 F7 T7,);
all!(all_9: 0 F0 T0, 1 F1 T1, 2 F2 T2, 3 F3 T3, 4 F4 T4, 5 F5 T5, 6 F6 T6, 7 F7 T7, 8 F8 T8,);
all!(all_10: 0 F0 T0, 1 F1 T1, 2 F2 T2, 3 F3 T3, 4 F4 T4, 5 F5 T5, 6 F6 T6, 7 F7 T7, 8 F8 T8, 9 F9 T9,);
all!(all_11: 0 F0 T0, 1 F1 T1, 2 F2 T2, 3 F3 T3, 4 F4 T4, 5 F5 T5, 6 F6 T6, 7 F7 T7, 8 F8 T8, 9 F9 T9, 10 F10 T10,);
all!(all_12: 0 F0 T0, 1 F1 T1, 2 F2 T2, 3 F3 T3, 4 F4 T4, 5 F5 T5, 6 F6 T6, 7 F7 T7, 8 F8 T8, 9 F9 T9, 10 F10 T10, 11 F11 T11,);

/// A branch that says which one it is.
type Numbered<'a, T> = Pin<Box<dyn Future<Output = (usize, T)> + Send + 'a>>;

/// The branches of a `steps!(for ..)`.
#[doc(hidden)]
#[derive(Debug)]
pub struct Each<F> {
    side: Side,
    limit: usize,
    branches: Vec<F>,
}

impl<T: Saved + Send, E: Send, F: Future<Output = Result<T, E>> + Send> Each<F> {
    /// Adds the next branch.
    pub fn push(&mut self, branch: F) {
        self.branches.push(branch);
    }

    /// Runs them; the first error ends the others.
    pub async fn run(self) -> Result<Vec<T>, E> {
        let Each { side, limit, branches } = self;
        let mut values: Vec<Option<T>> = branches.iter().map(|_| None).collect();
        side.look_for_doubts(branches.len()).await;
        // Those that the others wait for come first: there may be no room for more.
        let is_in_doubt = |(n, _): &(usize, F)| side.is_in_doubt(u32::try_from(*n).unwrap_or(u32::MAX));
        let (first, later): (Vec<_>, Vec<_>) = branches.into_iter().enumerate().partition(is_in_doubt);
        let mut waiting = first.into_iter().chain(later);
        let mut running: FuturesUnordered<Numbered<'_, Result<T, E>>> = FuturesUnordered::new();
        loop {
            while running.len() < limit
                && let Some((n, branch)) = waiting.next()
            {
                let number = u32::try_from(n).unwrap_or(u32::MAX);
                let side = &side;
                running.push(Box::pin(async move { (n, side.branch(number, branch).await) }));
            }
            let Some((n, result)) = running.next().await else { break };
            values[n] = Some(result?);
        }
        Ok(values.into_iter().flatten().collect())
    }
}

/// The items of a `steps!(for x in items, ..)`, collected, each in a place of its own from which its branch takes it.
#[doc(hidden)]
pub fn places<T>(items: Vec<T>) -> Vec<ItemPlace<T>> {
    let numbers = 0..=u32::MAX;
    items.into_iter().zip(numbers).map(|(item, number)| ItemPlace { number, item: Some(item) }).collect()
}

/// An item and its place among the others.
#[doc(hidden)]
#[derive(Debug)]
pub struct ItemPlace<T> {
    number: u32,
    item: Option<T>,
}

impl<T> ItemPlace<T> {
    /// The item's place, from 0.
    pub fn number(&self) -> u32 {
        self.number
    }
}

/// Takes an item out of its place.
#[doc(hidden)]
pub fn item<T>(place: &mut ItemPlace<T>) -> T {
    place.item.take().expect("each branch takes its own item, once")
}

/// The operations that the branches of a `steps!` are.
#[doc(hidden)]
#[derive(Debug)]
pub struct Branches {
    run: Arc<Run>,
    function: &'static str,
    /// The stored name of the `steps!`.
    step: &'static str,
    names: &'static [BranchName],
    /// How many checkpoints the fiber had made when they began.
    number: u64,
}

/// One branch as an operation.
#[doc(hidden)]
#[derive(Debug)]
pub struct Branch<'a> {
    of: &'a Branches,
    /// What the branch is called in messages and events.
    step: &'static str,
    /// What it is called in the ledger.
    name: Cow<'static, str>,
    was: Option<&'static str>,
}

impl Branches {
    /// A branch by its place among the named ones.
    pub fn named(&self, n: usize) -> Branch<'_> {
        let (name, was) = self.names[n];
        Branch { of: self, step: name, name: name.into(), was }
    }

    /// The branch of an item, by its place among the others.
    pub fn numbered(&self, n: u32) -> Branch<'_> {
        Branch { of: self, step: self.step, name: of_item(self.step, n).into(), was: None }
    }
}

impl Branch<'_> {
    fn place(&self, kind: OpKind, key: Option<String>) -> Place {
        let Branch { of, name, was, .. } = self;
        Place { kind, function: of.function, step: name.clone(), was: *was, key, number: of.number }
    }

    /// The op of a branch whose body takes one.
    pub fn op(&self) -> Op {
        let record = self.of.run.ops.of_step(self.place(OpKind::Step, None));
        Op::of(Arc::clone(&self.of.run), self.step, record)
    }

    /// Begins a branch with `retry`, `timeout` or `catch`, after the attempts that earlier runs made.
    pub fn attempts<E>(&self, retry: Option<Retry<E>>, timeout: Option<Duration>) -> Attempts<E> {
        Attempts::new(self.op(), retry).within(timeout)
    }

    /// Begins a branch that is an effect, or goes on with it.
    pub async fn effect<E>(&self, key: Option<Result<String, String>>, retry: Option<Retry<E>>, make: Option<Make<E>>) -> Effect<E> {
        let run = &self.of.run;
        Effect::begun(run, self.step, |key| self.place(OpKind::Effect, key), key, retry, make).await.in_branch()
    }
}

/// What the branch of an item is called in the ledger.
fn of_item(step: &str, n: u32) -> String {
    format!("{step}[{n}]")
}

/// The stored name of the `steps!` that the branch of an item is of: `pages` of `pages[3]`.
pub(crate) fn steps_of_item(name: &str) -> Option<&str> {
    let (step, number) = name.strip_suffix(']')?.rsplit_once('[')?;
    number.parse::<u32>().is_ok().then_some(step)
}
