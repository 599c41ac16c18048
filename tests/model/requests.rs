//! What somebody asks of a runtime, and what it does to the [`Model`].
use forever::ErrorKind;
use forever::fiber::FiberState;
use forever::ops::OpState;

use crate::driver::Order;
use crate::model::{Act, Fiber, GRACE, Model, Place, Process, Run, Task, ms};

/// One thing that is asked for, with everything chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Perhaps to die at a write, on either side of it.
    Open {
        process: Process,
        dies: Option<(u64, bool)>,
    },
    Close,
    /// The process is gone, without a word.
    Kill,
    /// So many seconds pass.
    Pass {
        seconds: u64,
    },
    Spawn {
        name: String,
        how: Named,
        guest: bool,
        agent: Option<&'static str>,
    },
    Tell {
        name: String,
        order: Order,
    },
    /// Its effect ends.
    Give {
        name: String,
        gave: Result<String, String>,
    },
    Send {
        name: String,
        word: u64,
    },
    Cancel {
        name: String,
        reason: String,
    },
    Resume {
        name: String,
    },
    Restart {
        name: String,
    },
    /// By hand.
    Resolve {
        name: String,
        completes: bool,
    },
    ResolveOp {
        name: String,
        number: u64,
        how: How,
    },
    Delete {
        state: FiberState,
    },
    /// The same, polled so many times and then dropped.
    GivenUp {
        asked: Box<Asked>,
        polls: u64,
    },
}

/// By what it can be joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Named {
    Key,
    Id,
    Nothing,
}

/// How an operation is said to have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Completed,
    NotExecuted,
    Failed,
}

/// What whoever asked is told: whether a fiber was made, how many were deleted.
pub(crate) type Said = Result<u64, ErrorKind>;

impl Model {
    /// Does what is asked for, in the one write that it takes; its fibers have not gone on yet.
    pub(crate) fn does(&mut self, asked: &Asked) -> Said {
        match asked {
            Asked::GivenUp { asked, .. } => return self.does(asked),
            Asked::Open { process, .. } => self.open(*process),
            Asked::Close => {
                for fiber in self.fibers.values_mut().filter(|fiber| fiber.state == FiberState::Running) {
                    (fiber.state, fiber.why) = (FiberState::Interrupted, Some("was closed".to_owned()));
                }
                self.dies();
            }
            Asked::Kill => self.dies(),
            Asked::Pass { seconds } => self.now += ms(*seconds),
            Asked::Spawn { name, how, guest, agent } => return self.spawn(name, *how, *guest, *agent),
            Asked::Tell { name, order } => {
                if let Task::Runs(run) = &mut self.fiber(name)?.task {
                    run.told = Some(order.clone());
                }
            }
            Asked::Give { name, gave } => {
                if let Task::Runs(run) = &mut self.fiber(name)?.task {
                    run.gave = Some(gave.clone());
                }
            }
            Asked::Send { name, word } => {
                let fiber = self.fiber(name)?;
                if fiber.state.is_final() {
                    return Err(ErrorKind::InvalidState);
                }
                fiber.messages.push(*word);
                if fiber.state == FiberState::Waiting && matches!(fiber.at, Place::Hearing { .. }) {
                    fiber.pending();
                }
            }
            Asked::Cancel { name, reason } => return self.cancel(name, reason),
            Asked::Resume { name } => self.stopped(name, false)?.again(),
            Asked::Restart { name } => {
                let fiber = self.stopped(name, true)?;
                if fiber.in_doubt() {
                    return Err(ErrorKind::InvalidState);
                }
                if fiber.state == FiberState::Cancelled {
                    // What it had not received was reported with its end.
                    fiber.messages.clear();
                }
                fiber.begin_anew();
            }
            Asked::Resolve { name, completes } => {
                let fiber = self.fiber(name)?;
                if !matches!(fiber.state, FiberState::Interrupted | FiberState::Parked) {
                    return Err(ErrorKind::InvalidState);
                }
                let (state, why, result) = match completes {
                    true => (FiberState::Completed, None, Some(vec!["said so".to_owned()])),
                    false => (FiberState::Failed, Some("said so"), None),
                };
                self.end(name, state, why, result);
            }
            Asked::ResolveOp { name, number, how } => return self.resolve_op(name, *number, *how),
            Asked::Delete { state } => {
                let before = self.fibers.len();
                // What children and fibers without a name of the program's are called nobody asks for again.
                let is_given = |name: &str| name.starts_with(['i', 'k']);
                let goes = |fiber: &Fiber| fiber.state == *state && !fiber.in_doubt();
                let past = self.fibers.iter().filter(|(name, fiber)| is_given(name) && goes(fiber));
                self.past.extend(past.map(|(name, fiber)| (name.clone(), fiber.guest)));
                self.fibers.retain(|_, fiber| !goes(fiber));
                let there: Vec<_> = self.fibers.keys().cloned().collect();
                for fiber in self.fibers.values_mut() {
                    fiber.parent = fiber.parent.take().filter(|parent| there.contains(parent));
                }
                return Ok((before - self.fibers.len()) as u64);
            }
        }
        Ok(0)
    }

    fn fiber(&mut self, name: &str) -> Result<&mut Fiber, ErrorKind> {
        self.fibers.get_mut(name).ok_or(ErrorKind::NotFound)
    }

    /// A fiber that may run again; only one that begins anew may have been cancelled.
    fn stopped(&mut self, name: &str, anew: bool) -> Result<&mut Fiber, ErrorKind> {
        let fiber = self.fiber(name)?;
        match fiber.state {
            FiberState::Failed | FiberState::Parked | FiberState::Interrupted => Ok(fiber),
            FiberState::Cancelled if anew => Ok(fiber),
            _ => Err(ErrorKind::InvalidState),
        }
    }

    /// What ran in the process before has died with it; whatever does not wait is looked at.
    fn open(&mut self, process: Process) {
        self.process = Some(process);
        for fiber in self.fibers.values_mut() {
            if fiber.state == FiberState::Running {
                fiber.deaths += 1;
                (fiber.state, fiber.why) = (FiberState::Interrupted, Some("process died".to_owned()));
            }
            fiber.task = match fiber.state {
                FiberState::Interrupted if fiber.agent.is_some() => Task::Ask,
                FiberState::Interrupted | FiberState::Pending | FiberState::Parked => Task::Start,
                _ => Task::None,
            };
        }
        let waits = |fiber: &&Fiber| fiber.state == FiberState::Waiting && !self.knows(fiber);
        self.unknown = self.fibers.iter().filter(|(_, fiber)| waits(fiber)).map(|(name, _)| name.clone()).collect();
    }

    /// What is not stored is gone.
    pub(crate) fn dies(&mut self) {
        self.process = None;
        self.unknown.clear();
        self.fibers.values_mut().for_each(|fiber| fiber.task = Task::None);
    }

    fn spawn(&mut self, name: &str, how: Named, guest: bool, agent: Option<&'static str>) -> Said {
        if guest && !self.process.is_some_and(|process| process.guests) {
            return Err(ErrorKind::NotRegistered);
        }
        if let Some(there) = self.fibers.get(name) {
            return if there.guest == guest { Ok(0) } else { Err(ErrorKind::Conflict) };
        }
        if let Some(was_guest) = self.past.get(name) {
            return if *was_guest == guest { Ok(0) } else { Err(ErrorKind::Conflict) };
        }
        let key = (how == Named::Key).then(|| name.to_owned());
        self.fibers.insert(name.to_owned(), Fiber::new(guest, key, agent, None));
        Ok(1)
    }

    fn cancel(&mut self, name: &str, reason: &str) -> Said {
        if self.fiber(name)?.state.is_final() {
            return Err(ErrorKind::InvalidState);
        }
        let below: Vec<_> = self.fibers.keys().filter(|other| self.is_below(other, name)).cloned().collect();
        let open: Vec<_> = below.into_iter().filter(|other| !self.fibers[other].state.is_final()).collect();
        for other in &open {
            self.fiber(other)?.cancel.get_or_insert_with(|| reason.to_owned());
        }
        // Those that run end by themselves; first the others, so that none of them is woken by the end of another.
        let now = self.now;
        for other in &open {
            let fiber = self.fiber(other)?;
            if let Task::Runs(Run { dropped, .. }) = &mut fiber.task {
                dropped.get_or_insert(now + GRACE);
            }
            if fiber.state != FiberState::Running {
                fiber.state = FiberState::Cancelled;
            }
        }
        for other in &open {
            if self.fibers[other].state == FiberState::Cancelled {
                self.end(other, FiberState::Cancelled, None, None);
            }
        }
        Ok(0)
    }

    fn is_below(&self, name: &str, top: &str) -> bool {
        let above = |name: &String| self.fibers.get(name)?.parent.clone();
        std::iter::successors(Some(name.to_owned()), above).any(|there| there == top)
    }

    fn resolve_op(&mut self, name: &str, number: u64, how: How) -> Said {
        let fiber = self.fiber(name)?;
        let there = fiber.ops.get(&number).cloned().ok_or(ErrorKind::NotFound)?;
        if there.state != OpState::Started || fiber.state == FiberState::Running {
            return Err(ErrorKind::InvalidState);
        }
        let (state, outcome) = match how {
            How::Completed => (OpState::Completed, Some("said so".to_owned())),
            How::NotExecuted => (OpState::NotExecuted, None),
            How::Failed => (OpState::Failed, Some("declined".to_owned())),
        };
        fiber.ops.insert(number, Act { state, outcome, resolved: true });
        if fiber.state == FiberState::Parked {
            fiber.again();
        }
        Ok(0)
    }
}
