//! What is stored of a fiber, in ids, and what comes of a run.
use std::collections::{BTreeMap, BTreeSet};

use crate::io::Hangs;
use crate::model::program::{Id, On, Over};
use crate::value::Value;

/// A loop that is under way: all its items, and which of them it is at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Loop {
    pub(crate) over: Over,
    pub(crate) items: Vec<i64>,
    pub(crate) at: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Done,
    /// At a wait that has begun.
    Pending,
    /// In a call.
    Inside,
}

/// One function of a stored call stack.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) function: String,
    pub(crate) at: Id,
    pub(crate) phase: Phase,
    pub(crate) values: BTreeMap<Id, Value>,
    pub(crate) loops: BTreeMap<Id, Loop>,
    /// The topic that it waits on.
    pub(crate) topic: Option<String>,
    /// The arms of the `select!` that it waits in, and the one that has come about with its message.
    pub(crate) arms: Vec<(Id, On)>,
    pub(crate) chosen: Option<(Id, Option<i64>)>,
}

/// An effect by its step, or by its `steps!` and its branch: the branch's id, or its item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Doubt {
    pub(crate) node: Id,
    pub(crate) branch: Option<i64>,
}

/// What is stored of a fiber.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    /// Outermost first; none before the first checkpoint.
    pub(crate) frames: Vec<Frame>,
    /// The effects whose outcome is not known.
    pub(crate) in_doubt: BTreeSet<Doubt>,
    /// The transactions that are committed since the last checkpoint.
    pub(crate) booked: BTreeMap<Id, i64>,
    /// Results of branches, by id or item.
    pub(crate) results: BTreeMap<i64, i64>,
    /// The arguments that were given.
    pub(crate) args: BTreeMap<Id, Value>,
}

/// How a run is brought to a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Hangs(Hangs),
    /// It waits, for a message or for time.
    Waits,
    /// It waits for a child.
    WaitsForChild,
}

/// A place at which a run can be stopped.
#[derive(Debug, Clone)]
pub(crate) struct Stop {
    pub(crate) how: How,
    /// The topics of the messages that it has received until there.
    pub(crate) received: Vec<String>,
    /// Whether it has slept.
    pub(crate) slept: bool,
    /// The calls that are answered until there.
    pub(crate) log: Vec<String>,
    pub(crate) state: State,
}

/// What comes of a run.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    /// The result and the calls that are answered, or why the state does not say how it goes on.
    pub(crate) end: Result<(i64, Vec<String>), &'static str>,
    pub(crate) stops: Vec<Stop>,
}
