//! Counts, for each step, how often its body ran, and whether it ran after it was finished.
use anyhow::{Context, ensure};

use super::journal::Line;
use super::work::Cut;

/// Counts of one step.
pub(crate) struct Step {
    pub(crate) name: String,
    /// Number of starts of its body.
    pub(crate) ran: u32,
    /// Number of ends of its body.
    pub(crate) ended: u32,
    /// Number of runs that began after its checkpoint was stored.
    pub(crate) repeated: u32,
    /// Whether its checkpoint is stored.
    pub(crate) stored: bool,
}

/// All steps of the fiber, in order.
pub(crate) struct Tally {
    pub(crate) steps: Vec<Step>,
    /// By checkpoint, the number of steps that are finished with it.
    finished: Vec<usize>,
    /// State of the worker, by the last lines of the journal.
    pub(crate) place: Place,
}

/// State of a worker.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    BeforeSteps,
    Inside(usize),
    After(usize),
}

impl Tally {
    /// Counts of a fiber that has not run.
    pub(crate) fn new(cuts: Vec<Cut>) -> Self {
        let (mut steps, mut finished) = (Vec::new(), Vec::new());
        for cut in cuts {
            if let Cut::Step(name) = cut {
                steps.push(Step { name, ran: 0, ended: 0, repeated: 0, stored: false });
            }
            finished.push(steps.len());
        }
        Tally { steps, finished, place: Place::BeforeSteps }
    }

    /// Counts a line of the journal; returns the step's number.
    pub(crate) fn count(&mut self, line: &Line) -> anyhow::Result<usize> {
        let (Line::Started(name) | Line::Finished(name)) = line;
        let number = self.steps.iter().position(|step| step.name == *name);
        let number = number.with_context(|| format!("there is no step `{name}`, but its body ran"))?;
        let step = &mut self.steps[number];
        if let Line::Finished(_) = line {
            step.ended += 1;
            self.place = Place::After(number);
        } else {
            step.ran += 1;
            step.repeated += u32::from(step.stored);
            self.place = Place::Inside(number);
        }
        Ok(number)
    }

    /// Records that this many checkpoints are stored. A step that was finished once stays finished.
    pub(crate) fn stored(&mut self, checkpoints: u64) -> anyhow::Result<()> {
        let finished = match usize::try_from(checkpoints)? {
            0 => 0,
            n => *self.finished.get(n - 1).with_context(|| format!("{checkpoints} checkpoints are stored, more than there are"))?,
        };
        for step in &mut self.steps[..finished] {
            ensure!(step.ended > 0, "`{}` is stored, but its body never came to its end", step.name);
            step.stored = true;
        }
        Ok(())
    }

    /// Number of finished steps.
    pub(crate) fn finished(&self) -> usize {
        self.steps.iter().filter(|step| step.stored).count()
    }

    /// Number of bodies that ended, finished or not.
    pub(crate) fn ended(&self) -> usize {
        self.steps.iter().filter(|step| step.ended > 0).count()
    }

    /// Number of times that a finished step ran again.
    pub(crate) fn repeated(&self) -> u32 {
        self.steps.iter().map(|step| step.repeated).sum()
    }
}
