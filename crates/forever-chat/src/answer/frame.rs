//! The frame of a turn, in which its attempts execute the runs of their hook.
use forever_runtime::__layers::{ContextOfLayer, Exit, FrameOfLayer};
use forever_runtime::__private::Frame;
use forever_runtime::fiber::FiberContext;

use crate::runs::{EndedRun, Locals, RUN, Runs, Start};
use crate::turn::Turn;

/// The fiber of a turn, whose attempts run functions in it.
#[derive(Debug)]
pub(super) struct TurnFrame<'run> {
    pub(super) frame: &'run mut Frame,
    pub(super) ctx: &'run FiberContext,
    pub(super) locals: Locals,
}

impl TurnFrame<'_> {
    /// The runs of an attempt, at its start.
    pub(super) fn runs(&self) -> Runs {
        if self.locals.ended.iter().any(EndedRun::had_secrets) {
            self.ctx.hold_secrets();
        }
        Runs::new(self.locals.ended.clone(), self.frame.called().map(str::to_owned))
    }

    /// Whether a run is under way in the stored snapshot.
    pub(super) fn has_call(&self) -> bool {
        self.frame.called().is_some()
    }

    /// Progress of the functions, in checkpoints.
    pub(super) fn checkpoints(&self) -> u64 {
        self.ctx.checkpoints()
    }

    /// Exit of the activation: a snapshot that cannot be read parks it, unless its `migrate`
    /// function has not been tried yet.
    pub(super) fn parked_by(&self, exit: Exit) -> Exit {
        match exit {
            Exit::Unreadable { why, depth, .. } if self.ctx.was_unreadable(depth) => Exit::Parked(why),
            exit => exit,
        }
    }

    /// Executes the runs of the hook until the activation has to end.
    pub(super) async fn serve(&mut self, turn: &Turn) -> Exit {
        let runs = &turn.inner().runs;
        let ctx = self.ctx.hosted(turn.clone());
        loop {
            let start = runs.begun().await;
            match self.carry_out(start, &ctx).await {
                Ok(ended) => runs.end(ended),
                // It was asked to stop, or the attempt is over: the attempt's own end decides.
                Err(Exit::Again(_)) => return runs.stop().await,
                Err(Exit::Interrupted(error)) if error.is_closed() => return runs.stop().await,
                Err(exit) => return exit,
            }
        }
    }

    async fn carry_out(&mut self, start: Start, ctx: &FiberContext) -> Result<EndedRun, Exit> {
        let ended = start(self.frame, ctx, &self.locals).await?;
        self.locals.ended.push(ended.clone());
        self.frame.store(RUN, |save| self.locals.save(save)).await?;
        Ok(ended)
    }
}
