//! Steps side by side: `steps!`. Each result is stored when it arrives; a resumed fiber runs only what has not arrived.
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::frame::{Frame, Run, Stopped};
use super::saved::{Saved, checked, unreadable};

/// The branches of one `steps!`, with what earlier runs left of them.
#[doc(hidden)]
pub struct Side {
    run: Arc<Run>,
    step: &'static str,
    /// How many checkpoints the fiber had made when they began.
    number: u64,
    arrived: BTreeMap<u32, String>,
}

impl std::fmt::Debug for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}` with {} results", self.step, self.arrived.len())
    }
}

impl Frame {
    /// Begins a `steps!`, or goes on with it.
    pub fn side(&self, cut: u32) -> impl Future<Output = Side> + Send + use<> {
        let (run, step) = (Arc::clone(&self.run), self.machine.cuts[cut as usize].name);
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
            Side { run, step, number, arrived }
        }
    }
}

impl Side {
    /// `steps!(a, b, ..)`: all at once, as a tuple; the first error ends the others.
    pub async fn all<T: Together<E>, E>(self, branches: T) -> Result<T::Values, E> {
        branches.together(&self).await
    }

    /// `steps!(for x in items, limit = 8, body)`: a list to be filled, `limit` of them at a time.
    pub fn each<F>(self, limit: Option<usize>) -> Each<F> {
        Each { side: self, limit: limit.unwrap_or(usize::MAX).max(1), branches: Vec::new() }
    }

    /// One branch: its result of an earlier run, or that of its body, stored.
    async fn branch<T: Saved, E>(&self, n: u32, body: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        if let Some(text) = self.arrived.get(&n) {
            return match T::restore(text) {
                Ok(value) => Ok(value),
                Err(why) => {
                    let why = format!("result {} of `{}` {}", n + 1, self.step, unreadable::<T>(why));
                    self.run.halt(Stopped::Parked(why)).await
                }
            };
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

/// A tuple of futures that give a `Result` each.
#[doc(hidden)]
pub trait Together<E>: Sized {
    type Values;

    fn together(self, side: &Side) -> impl Future<Output = Result<Self::Values, E>> + Send;
}

macro_rules! together {
    ($($n:tt $future:ident $value:ident,)+) => {
        impl<E: Send, $($value: Saved + Send, $future: Future<Output = Result<$value, E>> + Send),+> Together<E> for ($($future,)+) {
            type Values = ($($value,)+);

            #[allow(non_snake_case)]
            async fn together(self, side: &Side) -> Result<Self::Values, E> {
                $(let (mut $future, mut $value) = (pin!(side.branch($n, self.$n)), None);)+
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

together!(0 F0 T0,);
together!(0 F0 T0, 1 F1 T1,);
together!(0 F0 T0, 1 F1 T1, 2 F2 T2,);
together!(0 F0 T0, 1 F1 T1, 2 F2 T2, 3 F3 T3,);
together!(0 F0 T0, 1 F1 T1, 2 F2 T2, 3 F3 T3, 4 F4 T4,);
together!(0 F0 T0, 1 F1 T1, 2 F2 T2, 3 F3 T3, 4 F4 T4, 5 F5 T5,);
together!(0 F0 T0, 1 F1 T1, 2 F2 T2, 3 F3 T3, 4 F4 T4, 5 F5 T5, 6 F6 T6,);
together!(0 F0 T0, 1 F1 T1, 2 F2 T2, 3 F3 T3, 4 F4 T4, 5 F5 T5, 6 F6 T6, 7 F7 T7,);
together!(0 F0 T0, 1 F1 T1, 2 F2 T2, 3 F3 T3, 4 F4 T4, 5 F5 T5, 6 F6 T6, 7 F7 T7, 8 F8 T8,);
together!(0 F0 T0, 1 F1 T1, 2 F2 T2, 3 F3 T3, 4 F4 T4, 5 F5 T5, 6 F6 T6, 7 F7 T7, 8 F8 T8, 9 F9 T9,);
together!(0 F0 T0, 1 F1 T1, 2 F2 T2, 3 F3 T3, 4 F4 T4, 5 F5 T5, 6 F6 T6, 7 F7 T7, 8 F8 T8, 9 F9 T9, 10 F10 T10,);
together!(0 F0 T0, 1 F1 T1, 2 F2 T2, 3 F3 T3, 4 F4 T4, 5 F5 T5, 6 F6 T6, 7 F7 T7, 8 F8 T8, 9 F9 T9, 10 F10 T10, 11 F11 T11,);

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
        let mut waiting = branches.into_iter().enumerate();
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
pub fn places<T>(items: Vec<T>) -> Vec<Option<T>> {
    items.into_iter().map(Some).collect()
}

/// Takes an item out of its place.
#[doc(hidden)]
pub fn item<T>(place: &mut Option<T>) -> T {
    place.take().expect("each branch takes its own item, once")
}
