//! Counts, for each step, how often its body ran, and whether it ran when it was finished already.
use anyhow::{Context, ensure};

use super::journal::Line;
use super::work::Cut;

/// What is known of one step.
pub(crate) struct Step {
    pub(crate) name: String,
    /// How often its body started.
    pub(crate) ran: u32,
    /// How often its body came to its end.
    pub(crate) ended: u32,
    /// How many of those runs began when its checkpoint was stored.
    pub(crate) repeated: u32,
    /// Whether its checkpoint is stored.
    pub(crate) stored: bool,
}

/// All steps of the fiber, in order.
pub(crate) struct Tally {
    pub(crate) steps: Vec<Step>,
    /// For each checkpoint, how many steps are finished with it.
    finished: Vec<usize>,
    /// What the last lines of the journal say of the worker that wrote them.
    pub(crate) place: Place,
}

/// Where a worker is.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    BeforeSteps,
    Inside(usize),
    After(usize),
}

impl Tally {
    /// Nothing has run.
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

    /// Takes a line of the journal; gives the step's number.
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

    /// Takes note that so many checkpoints are stored. A step that was finished once stays so.
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

    /// How many steps are finished.
    pub(crate) fn finished(&self) -> usize {
        self.steps.iter().filter(|step| step.stored).count()
    }

    /// How many bodies came to their end, finished or not.
    pub(crate) fn ended(&self) -> usize {
        self.steps.iter().filter(|step| step.ended > 0).count()
    }

    /// How often a finished step ran again.
    pub(crate) fn repeated(&self) -> u32 {
        self.steps.iter().map(|step| step.repeated).sum()
    }
}
