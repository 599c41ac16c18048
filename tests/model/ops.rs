//! Random operations: small numbers, which mean something whatever was there before, so that a sequence can be made shorter anywhere.
use forever::fiber::FiberState;
use proptest::prelude::*;

use crate::driver::{Answer, Order};
use crate::model::{Fiber, Model, Process};
use crate::requests::{Asked, How, Named};

/// The most fibers that there are at a time: what may become of them if the process dies is gone through whole.
const MOST: usize = 6;

#[derive(Debug, Clone)]
pub(crate) enum Op {
    Tell(u8, Step),
    Give(u8, bool),
    Spawn {
        which: u8,
        how: Named,
        guest: bool,
        agent: u8,
    },
    Send(u8),
    Pass(u64),
    Kill,
    Close,
    Open,
    Cancel(u8),
    Resume(u8),
    Restart(u8),
    Resolve(u8, bool),
    Settle(u8, How),
    Delete(FiberState),
    /// Polled so many times, and then dropped.
    GivenUp(Box<Op>, u64),
}

/// An [`Order`] in which nothing is chosen.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Pass,
    Sleep(u64),
    Hear,
    HearFor(u64),
    Spawn,
    Join,
    Act,
    Fail,
    End,
}

/// What a process is and, if `die` says so, the write at which it dies, and on which side of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) process: Process,
    pub(crate) dies: Option<(u64, bool)>,
}

pub(crate) fn life(die: bool) -> impl Strategy<Value = Life> {
    let answer = prop_oneof![
        4 => Just(Answer::Resume),
        1 => Just(Answer::Restart),
        1 => Just(Answer::Skip),
        1 => Just(Answer::Complete),
        1 => Just(Answer::Fail),
    ];
    let dies = if die { (1..16u64, any::<bool>()).prop_map(Some).boxed() } else { Just(None).boxed() };
    (prop::bool::weighted(0.8), answer, dies).prop_map(|(guests, answer, dies)| Life { process: Process { guests, answer }, dies })
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    let seconds = || prop_oneof![Just(1u64), Just(7), Just(60), Just(4000)];
    let step = prop_oneof![
        3 => Just(Step::Pass),
        2 => seconds().prop_map(Step::Sleep),
        2 => Just(Step::Hear),
        2 => seconds().prop_map(Step::HearFor),
        2 => Just(Step::Spawn),
        3 => Just(Step::Join),
        3 => Just(Step::Act),
        1 => Just(Step::Fail),
        1 => Just(Step::End),
    ];
    let named = prop_oneof![Just(Named::Nothing), Just(Named::Id), Just(Named::Key)];
    let how = prop_oneof![Just(How::Completed), Just(How::NotExecuted), Just(How::Failed)];
    let ended = prop_oneof![Just(FiberState::Completed), Just(FiberState::Failed), Just(FiberState::Cancelled)];
    let who = any::<u8>;
    let command = prop_oneof![
        5 => (0..2u8, named.clone(), any::<bool>(), who()).prop_map(|(which, how, guest, agent)| Op::Spawn { which, how, guest, agent }),
        5 => who().prop_map(Op::Send),
        3 => who().prop_map(Op::Cancel),
        3 => who().prop_map(Op::Resume),
        2 => who().prop_map(Op::Restart),
        2 => (who(), any::<bool>()).prop_map(|(who, completes)| Op::Resolve(who, completes)),
        3 => (who(), how.clone()).prop_map(|(who, how)| Op::Settle(who, how)),
        1 => ended.clone().prop_map(Op::Delete),
    ];
    prop_oneof![
        6 => (command, 1..6_u64).prop_map(|(op, polls)| Op::GivenUp(Box::new(op), polls)),
        20 => (who(), step).prop_map(|(who, step)| Op::Tell(who, step)),
        8 => (who(), any::<bool>()).prop_map(|(who, well)| Op::Give(who, well)),
        5 => (0..2u8, named, any::<bool>(), who()).prop_map(|(which, how, guest, agent)| Op::Spawn { which, how, guest, agent }),
        5 => who().prop_map(Op::Send),
        4 => seconds().prop_map(Op::Pass),
        2 => Just(Op::Kill),
        1 => Just(Op::Close),
        2 => Just(Op::Open),
        2 => who().prop_map(Op::Cancel),
        2 => who().prop_map(Op::Resume),
        1 => who().prop_map(Op::Restart),
        1 => (who(), any::<bool>()).prop_map(|(who, completes)| Op::Resolve(who, completes)),
        3 => (who(), how).prop_map(|(who, how)| Op::Settle(who, how)),
        1 => ended.prop_map(Op::Delete),
    ]
}

/// What is different each time: names, words, reasons, and processes.
#[derive(Debug)]
pub(crate) struct Numbers<'a> {
    pub(crate) last: u64,
    /// One after the other, again and again.
    pub(crate) lives: std::iter::Cycle<std::slice::Iter<'a, Life>>,
}

impl Numbers<'_> {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub(crate) fn opens(&mut self) -> Asked {
        let Life { process, dies } = *self.lives.next().expect("there is one at least");
        Asked::Open { process, dies }
    }
}

impl Op {
    /// Whether it is for a process.
    pub(crate) fn needs_process(&self) -> bool {
        !matches!(self, Op::Open | Op::Pass(_) | Op::Kill | Op::Close)
    }

    /// What it means here; `None` if that is nothing.
    pub(crate) fn chosen(&self, model: &Model, numbers: &mut Numbers<'_>) -> Option<Asked> {
        let full = model.fibers.len() >= MOST;
        Some(match *self {
            Op::Tell(who, ref step) => {
                let name = one_of(model, who, |fiber| fiber.runs().is_some_and(|run| !run.acts))?;
                let joins = !model.fibers[&name].children.is_empty();
                let order = match *step {
                    Step::Sleep(seconds) => Order::Sleep(seconds),
                    Step::Hear => Order::Hear,
                    Step::HearFor(seconds) => Order::HearFor(seconds),
                    Step::Spawn if !full => Order::Spawn(format!("c{}", numbers.next())),
                    Step::Join if joins => Order::Join,
                    Step::Act => Order::Act,
                    Step::Fail => Order::Fail,
                    Step::End => Order::End,
                    Step::Pass | Step::Spawn | Step::Join => Order::Pass,
                };
                Asked::Tell { name, order }
            }
            Op::Give(who, well) => {
                let name = one_of(model, who, |fiber| fiber.runs().is_some_and(|run| run.acts))?;
                let gave = if well { Ok(format!("gave {}", numbers.next())) } else { Err("declined".to_owned()) };
                Asked::Give { name, gave }
            }
            Op::Spawn { which, how, guest, agent } => {
                let name = match how {
                    Named::Key => format!("k{which}"),
                    Named::Id => format!("i{which}"),
                    Named::Nothing => format!("p{}", numbers.next()),
                };
                if full && !model.fibers.contains_key(&name) {
                    return None;
                }
                Asked::Spawn { name, how, guest, agent: [None, Some("ann"), Some("bob")][usize::from(agent % 3)] }
            }
            Op::Send(who) => Asked::Send { name: prefer(model, who, |fiber| !fiber.state.is_final())?, word: numbers.next() },
            Op::Pass(seconds) => Asked::Pass { seconds },
            Op::Kill if model.process.is_some() => Asked::Kill,
            Op::Close if model.process.is_some() => Asked::Close,
            Op::Kill | Op::Close => return None,
            Op::Open if model.process.is_some() => return None,
            Op::Open => numbers.opens(),
            Op::Cancel(who) => {
                Asked::Cancel { name: prefer(model, who, |fiber| !fiber.state.is_final())?, reason: format!("cancel {}", numbers.next()) }
            }
            Op::Resume(who) => Asked::Resume { name: prefer(model, who, has_stopped)? },
            Op::Restart(who) => {
                Asked::Restart { name: prefer(model, who, |fiber| has_stopped(fiber) || fiber.state == FiberState::Cancelled)? }
            }
            Op::Resolve(who, completes) => Asked::Resolve { name: prefer(model, who, has_stopped)?, completes },
            Op::Settle(who, how) => {
                // One that runs may be about to come to its end, so whoever asks is kept waiting for a moment.
                let name = one_of(model, who, |fiber| fiber.in_doubt() && fiber.state != FiberState::Running)
                    .or_else(|| one_of(model, who, |fiber| !fiber.ops.is_empty() && fiber.state != FiberState::Running))?;
                let number = *model.fibers[&name].ops.keys().next_back()?;
                Asked::ResolveOp { name, number, how }
            }
            Op::Delete(state) => Asked::Delete { state },
            Op::GivenUp(ref op, polls) => Asked::GivenUp { asked: Box::new(op.chosen(model, numbers)?), polls },
        })
    }
}

fn has_stopped(fiber: &Fiber) -> bool {
    matches!(fiber.state, FiberState::Failed | FiberState::Parked | FiberState::Interrupted)
}

fn one_of(model: &Model, who: u8, which: impl Fn(&Fiber) -> bool) -> Option<String> {
    let names: Vec<_> = model.fibers.iter().filter(|(_, fiber)| which(fiber)).map(|(name, _)| name).collect();
    names.get(usize::from(who).checked_rem(names.len())?).map(|name| (*name).clone())
}

/// One of these, or of all if there is none.
fn prefer(model: &Model, who: u8, which: impl Fn(&Fiber) -> bool) -> Option<String> {
    one_of(model, who, which).or_else(|| one_of(model, who, |_| true))
}
