//! Workers of two versions that are alive at the same time, over one schema of Postgres.
use std::collections::BTreeSet;

use crate::deploy::End;
use crate::judge::{Judge, Left, Side, topics_of};
use crate::model::program::Program;
use crate::oracle::run;
use crate::state::State;

/// How often a fiber goes from one version to the other, at most.
const HANDED_OVER: usize = 2;

impl Judge {
    /// A fiber is left by one version, and goes on where both versions have workers.
    pub(crate) async fn fleet(&mut self, what: &str, left: &Left<'_>, to: Side<'_>) {
        self.counts.add("fleets");
        let path = left.path.with_extension("fleet");
        self.copy(left, &path).await;
        let (old, new) = (left.by, to);
        let (end, log) = new.code.finish_beside(old.code, &path, &topics_of([old.program, new.program]), &left.clock).await;
        let mut ends = BTreeSet::new();
        possible(&left.state, [old.program, new.program], HANDED_OVER, &mut ends);
        let of_old = run(old.program, &left.state).end;
        let wrong = match &end {
            End::Completed(result) if ends.contains(result) => None,
            // A worker of the version that left it can always go on.
            End::Parked(_) if of_old.is_err() => None,
            _ => Some(format!("{end:?} after {log:?} in place of {of_old:?} or one of {ends:?}")),
        };
        if let Some(wrong) = wrong {
            self.fail(&format!("{what}, in a mixed fleet"), &wrong, Some(left));
        }
    }
}

/// The results that a fiber can come to that two versions carry on in turn, each from what the other has stored.
fn possible(state: &State, programs: [&Program; 2], handed_over: usize, ends: &mut BTreeSet<i64>) {
    let mut seen = BTreeSet::new();
    for program in programs {
        let outcome = run(program, state);
        ends.extend(outcome.end.ok().map(|(result, _)| result));
        for stop in outcome.stops.into_iter().filter(|_| handed_over > 0) {
            if seen.insert(format!("{:?}", stop.state)) {
                possible(&stop.state, programs, handed_over - 1, ends);
            }
        }
    }
}
