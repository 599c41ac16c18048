//! Faults of a run, drawn from its seed.
use std::fmt;
use std::time::Duration;

use crate::testing::dice::Dice;

/// Most faults of one run.
const FAULTS: u64 = 6;

/// The longest time between two deploys of which one follows the other shortly.
const SHORTLY: Duration = Duration::from_secs(1);

/// One fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) at: Trigger,
    pub(super) kind: Kind,
}

/// Moment of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trigger {
    /// At a write, counted over all workers. It hits the worker that writes.
    Write(u64),
    /// At a time, whatever the worker of this slot does.
    Time(Duration, usize),
}

/// Kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The worker is gone, and another one starts in its place.
    Crash { after: bool, down: Duration },
    /// The worker is closed, and another one starts in its place.
    Restart { down: Duration },
    /// The worker stands still.
    Pause { after: bool, length: Duration },
    /// The worker does not reach the store, or its answers do not reach the worker.
    Partition { length: Duration },
    /// One answer is lost.
    AnswerLost { stored: bool },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Crash { after, down } => write!(f, "crash {}for {down:?}", if after { "after it " } else { "before it " })?,
            Kind::Restart { down } => write!(f, "close, and start again after {down:?}")?,
            Kind::Pause { after, length } => write!(f, "pause {}for {length:?}", if after { "after it " } else { "before it " })?,
            Kind::Partition { length } => write!(f, "partition for {length:?}")?,
            Kind::AnswerLost { stored: true } => f.write_str("the write is stored, and its answer is lost")?,
            Kind::AnswerLost { stored: false } => f.write_str("the write is lost, and its caller does not know")?,
        }
        match self.at {
            Trigger::Write(number) => write!(f, " (write {number})"),
            Trigger::Time(at, slot) => write!(f, " (at {at:?}, slot {})", slot + 1),
        }
    }
}

/// The faults of a seed, for a program with so many writes in so much time.
pub(super) fn plan(seed: u64, slots: usize, writes: u64, length: Duration, lease: Duration) -> Vec<Fault> {
    let mut dice = Dice::new(seed ^ 0x5eed_0fa0_17ab_1e55);
    let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX).max(1);
    let length_ms = u64::try_from(length.as_millis()).unwrap_or(u64::MAX).max(1);
    let faults = 1 + dice.below(FAULTS);
    let mut plan = Vec::new();
    for _ in 0..faults {
        let at = match dice.below(4) {
            0 => Trigger::Time(Duration::from_millis(dice.below(length_ms)), usize::try_from(dice.below(slots.max(1) as u64)).unwrap_or(0)),
            // Takeovers make more writes than the uninterrupted run has.
            _ => Trigger::Write(1 + dice.below(writes + writes / 4 + 1)),
        };
        // Both sides of a lease.
        let length = Duration::from_millis(lease_ms / 2 + dice.below(lease_ms * 3));
        let (after, down) = (dice.below(2) == 0, Duration::from_millis(dice.below(lease_ms * 2)));
        let kind = match dice.below(10) {
            0..=2 => Kind::Crash { after, down },
            3 => Kind::Restart { down },
            4..=6 => Kind::Pause { after, length },
            7 | 8 => Kind::Partition { length },
            _ => Kind::AnswerLost { stored: after },
        };
        plan.push(Fault { at, kind });
    }
    plan
}

/// Rolling deploys: one worker after the other is closed and starts again, while the others run;
/// every second one shortly after the one before, so that what is handed over is handed on. The
/// program takes so much time when no worker is busy, and some six times as much then.
pub(super) fn deploys(seed: u64, slots: usize, deploys: u32, length: Duration) -> Vec<Fault> {
    let mut dice = Dice::new(seed ^ 0x0dec_10de_5eed_0001);
    let between = (length * 3 / deploys.max(1)).max(Duration::from_millis(1));
    let mut below = |limit: Duration| Duration::from_millis(dice.below(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).max(1)));
    let mut plan = Vec::new();
    let mut at = Duration::ZERO;
    for (number, slot) in (0..deploys).zip((0..slots.max(1)).cycle()) {
        at = if number % 2 == 0 { between * number + below(between) } else { at + below(SHORTLY) };
        plan.push(Fault { at: Trigger::Time(at, slot), kind: Kind::Restart { down: below(between) } });
    }
    plan
}
