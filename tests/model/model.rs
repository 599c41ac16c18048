//! What a database and a runtime are, as docs/guide/src/reference/format.md and docs/guide/src/internals/guarantees.md tell it: fibers in a map.
//!
//! A [`Model`] changes in two ways: by what somebody asks for ([`asked`](super::asked)), and by what its fibers do ([`Model::next`]). Each such change is one
//! write to the database, so that all the places at which a process may die are among the models in between.
use std::collections::{BTreeMap, BTreeSet};

use forever::fiber::FiberState;
use forever::ops::OpState;

use crate::driver::{Answer, MAX_RECOVERIES, Order};

/// How long a fiber may go on that is told to end, in milliseconds.
pub(crate) const GRACE: i64 = 5_000;

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Model {
    /// Milliseconds since the beginning.
    pub(crate) now: i64,
    pub(crate) process: Option<Process>,
    pub(crate) fibers: BTreeMap<String, Fiber>,
    /// Those with an id or key of the program's that were deleted, and whether they were of the other function.
    pub(crate) past: BTreeMap<String, bool>,
    /// Those that waited when the process opened, which does not know their function.
    pub(crate) unknown: BTreeSet<String>,
}

/// What is in memory and not of one fiber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    /// Whether it knows the function `guest`.
    pub(crate) guests: bool,
    /// What agents say of their interrupted fibers.
    pub(crate) answer: Answer,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Fiber {
    pub(crate) guest: bool,
    pub(crate) key: Option<String>,
    pub(crate) agent: Option<&'static str>,
    pub(crate) parent: Option<String>,
    pub(crate) state: FiberState,
    /// A word of the stored reason.
    pub(crate) why: Option<String>,
    pub(crate) cancel: Option<String>,
    pub(crate) result: Option<Vec<String>>,
    pub(crate) deaths: u32,
    pub(crate) restarts: u32,
    /// How many checkpoints it has made.
    pub(crate) number: u64,
    pub(crate) messages: Vec<u64>,
    /// Its effects, by the checkpoints made before.
    pub(crate) ops: BTreeMap<u64, Act>,
    /// What its snapshot holds.
    pub(crate) at: Place,
    pub(crate) heard: Vec<String>,
    pub(crate) children: Vec<String>,
    pub(crate) passed: u64,
    /// Whether it was mended, which no database knows.
    pub(crate) mended: bool,
    /// What the process does with it: gone with the process.
    pub(crate) task: Task,
}

/// The cut point that it has passed last, and what is next.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// To be told what to do.
    Gate,
    Told(Order),
    Sleeping {
        until: i64,
    },
    Hearing {
        until: Option<i64>,
    },
    Joining {
        child: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Act {
    pub(crate) state: OpState,
    pub(crate) outcome: Option<String>,
    pub(crate) resolved: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) enum Task {
    #[default]
    None,
    /// To be entered.
    Start,
    /// Its agent is to be asked.
    Ask,
    /// Entered, while its agent is asked; with the reason that it was interrupted for.
    Asked(Option<String>),
    Runs(Run),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Run {
    /// It has been told this, and nothing of it is stored.
    pub(crate) told: Option<Order>,
    /// It is in the body of its effect.
    pub(crate) acts: bool,
    /// The effect has ended, and nothing of it is stored.
    pub(crate) gave: Option<Result<String, String>>,
    /// When it is dropped where it is.
    pub(crate) dropped: Option<i64>,
}

impl Fiber {
    pub(crate) fn new(guest: bool, key: Option<String>, agent: Option<&'static str>, parent: Option<String>) -> Self {
        Fiber {
            guest,
            key,
            agent,
            parent,
            state: FiberState::Running,
            why: None,
            cancel: None,
            result: None,
            deaths: 0,
            restarts: 0,
            number: 0,
            messages: Vec::new(),
            ops: BTreeMap::new(),
            at: Place::Gate,
            heard: Vec::new(),
            children: Vec::new(),
            passed: 0,
            mended: false,
            task: Task::Runs(Run::default()),
        }
    }

    pub(crate) fn runs(&self) -> Option<&Run> {
        if let Task::Runs(run) = &self.task { Some(run) } else { None }
    }

    /// A checkpoint: what comes is stored, and deaths are forgotten.
    fn checkpoint(&mut self, at: Place) {
        self.number += 1;
        self.deaths = 0;
        self.at = at;
        if let Task::Runs(run) = &mut self.task {
            run.told = None;
            run.acts = false;
            run.gave = None;
        }
    }

    fn hears(&mut self, what: String) {
        self.heard.push(what);
        self.checkpoint(Place::Gate);
    }

    /// Leaves memory.
    fn stops(&mut self, state: FiberState, why: Option<&str>) {
        self.state = state;
        self.why = why.map(str::to_owned);
        self.task = Task::None;
    }

    /// It is woken, and entered by the process that does this.
    pub(crate) fn pending(&mut self) {
        self.stops(FiberState::Pending, None);
        self.task = Task::Start;
    }

    /// It is let run again. That it was told to end is forgotten when it has ended so, and not before.
    pub(crate) fn again(&mut self) {
        if self.state == FiberState::Cancelled {
            self.cancel = None;
        }
        self.deaths = 0;
        self.pending();
    }

    /// Where it is when all that needs nobody is done.
    fn is_due(&self, now: i64) -> bool {
        match self.at {
            Place::Sleeping { until } => until <= now,
            Place::Hearing { until } => until.is_some_and(|until| until <= now),
            _ => false,
        }
    }

    /// One that was told to end does so at its next checkpoint.
    fn stops_at_a_checkpoint(&mut self) {
        if self.cancel.is_some()
            && let Task::Runs(run) = &mut self.task
        {
            run.dropped = Some(i64::MIN);
        }
    }

    /// From its arguments; its counts go on, so that its operations are other ones.
    pub(crate) fn begin_anew(&mut self) {
        self.again();
        self.restarts += 1;
        self.number += 1;
        self.at = Place::Gate;
        self.heard.clear();
        self.children.clear();
        self.passed = 0;
    }

    /// Whether nobody knows how one of its operations ended.
    pub(crate) fn in_doubt(&self) -> bool {
        self.ops.values().any(|act| act.state == OpState::Started)
    }
}

impl Model {
    /// Ends a fiber, in whatever way it ends: one that was told to end is cancelled. Whoever waits for it is woken.
    pub(crate) fn end(&mut self, name: &str, state: FiberState, why: Option<&str>, result: Option<Vec<String>>) {
        let fiber = self.fibers.get_mut(name).expect("it is there");
        if let Some(reason) = fiber.cancel.clone() {
            fiber.stops(FiberState::Cancelled, Some(&reason));
        } else {
            fiber.stops(state, why);
            fiber.result = result;
        }
        if fiber.state == FiberState::Completed {
            (fiber.number, fiber.deaths) = (0, 0);
        }
        for other in self.fibers.values_mut() {
            if other.state == FiberState::Waiting && matches!(&other.at, Place::Joining { child } if child == name) {
                other.pending();
            }
        }
    }

    pub(crate) fn knows(&self, fiber: &Fiber) -> bool {
        self.process.is_some_and(|process| process.guests || !fiber.guest)
    }

    /// What the database may be after the next write of the process, in whatever order its fibers come.
    pub(crate) fn next(&self) -> Vec<Model> {
        if self.process.is_none() {
            return Vec::new();
        }
        let fibers = self.fibers.keys().filter_map(|name| {
            let mut next = self.clone();
            next.step(name).then_some(next)
        });
        fibers.chain(self.wake_due()).chain(self.wake_unknown()).collect()
    }

    /// All that its fibers do until each waits for somebody.
    pub(crate) fn at_rest(&self) -> Model {
        let mut model = self.clone();
        while let Some(next) = model.next().into_iter().next() {
            model = next;
        }
        model
    }

    /// Fibers whose time has come are woken together.
    fn wake_due(&self) -> Option<Model> {
        let mut next = self.clone();
        let due = |fiber: &&mut Fiber| fiber.state == FiberState::Waiting && fiber.is_due(self.now);
        next.fibers.values_mut().filter(due).for_each(Fiber::pending);
        (next != *self).then_some(next)
    }

    /// Those that wait and that the process does not know are woken together, once after it has opened.
    fn wake_unknown(&self) -> Option<Model> {
        let mut next = self.clone();
        for name in std::mem::take(&mut next.unknown) {
            next.fibers.get_mut(&name).filter(|fiber| fiber.state == FiberState::Waiting).into_iter().for_each(Fiber::pending);
        }
        (next != *self).then_some(next)
    }

    /// What one fiber does next, by itself; `false` if that is nothing.
    fn step(&mut self, name: &str) -> bool {
        let knows = self.knows(&self.fibers[name]);
        let Some(Process { answer, .. }) = self.process else { return false };
        let fiber = self.fibers.get_mut(name).expect("it is there");
        // After this many deaths it is not tried again; of a function that is not known, the limit is not either.
        let died_too_often = knows && fiber.deaths > MAX_RECOVERIES;
        match fiber.task {
            Task::None => return false,
            Task::Start if !knows => self.set_aside(name, FiberState::Parked, Some("not registered")),
            Task::Start | Task::Ask if died_too_often => self.end(name, FiberState::Failed, Some("died too often"), None),
            Task::Start | Task::Ask if fiber.cancel.is_some() => self.end(name, FiberState::Cancelled, None, None),
            Task::Start => {
                fiber.stops(FiberState::Running, None);
                fiber.task = Task::Runs(Run::default());
            }
            Task::Ask => {
                let why = fiber.why.clone();
                fiber.stops(FiberState::Running, None);
                fiber.task = Task::Asked(why);
            }
            Task::Asked(ref why) => {
                let why = why.clone();
                self.answered(name, answer, why.as_deref());
            }
            Task::Runs(_) => return self.run(name),
        }
        true
    }

    /// It stops without ending, unless it was told to end.
    fn set_aside(&mut self, name: &str, state: FiberState, why: Option<&str>) {
        let fiber = self.fibers.get_mut(name).expect("it is there");
        if fiber.cancel.is_some() {
            self.end(name, FiberState::Cancelled, None, None);
        } else {
            fiber.stops(state, why);
        }
    }

    /// Its agent says what becomes of it.
    fn answered(&mut self, name: &str, answer: Answer, why: Option<&str>) {
        let fiber = self.fibers.get_mut(name).expect("it is there");
        match answer {
            Answer::Resume => fiber.task = Task::Start,
            Answer::Restart if fiber.in_doubt() => self.set_aside(name, FiberState::Interrupted, Some("may have executed")),
            Answer::Restart => fiber.begin_anew(),
            Answer::Skip => self.set_aside(name, FiberState::Interrupted, why),
            Answer::Complete => self.end(name, FiberState::Completed, None, Some(vec!["said so".to_owned()])),
            Answer::Fail => self.end(name, FiberState::Failed, Some("said so"), None),
        }
    }

    /// What a fiber does that is in memory.
    fn run(&mut self, name: &str) -> bool {
        let now = self.now;
        let ended = |child: &str| match self.fibers.get(child).map(|child| child.state) {
            None => Some("notfound"),
            Some(FiberState::Completed) => Some("completed"),
            Some(FiberState::Failed) => Some("failed"),
            Some(FiberState::Cancelled) => Some("cancelled"),
            Some(_) => None,
        };
        let joined = if let Place::Joining { child } = &self.fibers[name].at { ended(child) } else { None };
        let fiber = self.fibers.get_mut(name).expect("it is there");
        let Task::Runs(run) = fiber.task.clone() else { return false };
        if run.told.is_none() && run.gave.is_none() && run.dropped.is_some_and(|at| at <= now) {
            self.end(name, FiberState::Cancelled, None, None);
            return true;
        }
        if let Some(order) = run.told {
            fiber.passed += 1;
            fiber.checkpoint(if order == Order::Pass { Place::Gate } else { Place::Told(order) });
            fiber.stops_at_a_checkpoint();
            return true;
        }
        match fiber.at.clone() {
            Place::Gate => return false,
            Place::Sleeping { until } if until <= now => return false,
            Place::Hearing { .. } if !fiber.messages.is_empty() => {
                let word = fiber.messages.remove(0);
                fiber.hears(word.to_string());
            }
            Place::Hearing { until } if until.is_some_and(|until| until <= now) => fiber.hears("nothing".to_owned()),
            Place::Sleeping { .. } | Place::Hearing { .. } => fiber.stops(FiberState::Waiting, None),
            Place::Joining { .. } => match joined {
                Some(how) => fiber.hears(how.to_owned()),
                None => fiber.stops(FiberState::Waiting, None),
            },
            Place::Told(Order::Pass) => unreachable!("it is at the gate then"),
            Place::Told(Order::Sleep(seconds)) => fiber.checkpoint(Place::Sleeping { until: now + ms(seconds) }),
            Place::Told(Order::Hear) => fiber.checkpoint(Place::Hearing { until: None }),
            Place::Told(Order::HearFor(seconds)) => fiber.checkpoint(Place::Hearing { until: Some(now + ms(seconds)) }),
            Place::Told(Order::Spawn(child)) => {
                fiber.children.push(child.clone());
                fiber.checkpoint(Place::Gate);
                let new = Fiber::new(false, None, fiber.agent, Some(name.to_owned()));
                self.fibers.insert(child, new);
            }
            Place::Told(Order::Join) => match fiber.children.pop() {
                Some(child) => fiber.checkpoint(Place::Joining { child }),
                None => return false,
            },
            Place::Told(Order::Act) => return self.act(name, &run),
            Place::Told(Order::Fail) if fiber.mended => return false,
            Place::Told(Order::Fail) => self.end(name, FiberState::Failed, Some("broken"), None),
            Place::Told(Order::End) => {
                let heard = fiber.heard.clone();
                self.end(name, FiberState::Completed, None, Some(heard));
            }
        }
        true
    }

    /// What a fiber does that has come to its effect.
    fn act(&mut self, name: &str, run: &Run) -> bool {
        let fiber = self.fibers.get_mut(name).expect("it is there");
        let number = fiber.number;
        let there = fiber.ops.get(&number).cloned();
        match (&run.gave, there) {
            (Some(Ok(gave)), Some(act)) => {
                let done = Act { state: OpState::Completed, outcome: Some(gave.clone()), ..act };
                fiber.ops.insert(number, done);
                fiber.hears(gave.clone());
                fiber.stops_at_a_checkpoint();
            }
            (Some(Err(why)), Some(act)) => {
                fiber.ops.insert(number, Act { state: OpState::Failed, outcome: Some(why.clone()), ..act });
                self.end(name, FiberState::Failed, Some("declined"), None);
            }
            _ if run.acts => return false,
            // The process that began it has died, and nobody knows how it ended.
            (None, Some(Act { state: OpState::Started, .. })) => self.set_aside(name, FiberState::Parked, Some("may have executed")),
            (None, Some(Act { state: OpState::Completed, outcome, .. })) => fiber.hears(outcome.expect("what it gave")),
            (None, Some(Act { state: OpState::Failed, resolved: true, .. })) => self.end(name, FiberState::Failed, Some("declined"), None),
            _ => {
                fiber.ops.insert(number, Act { state: OpState::Started, outcome: None, resolved: false });
                if let Task::Runs(run) = &mut fiber.task {
                    run.acts = true;
                }
            }
        }
        true
    }
}

pub(crate) fn ms(seconds: u64) -> i64 {
    i64::try_from(seconds).expect("few of them") * 1000
}
