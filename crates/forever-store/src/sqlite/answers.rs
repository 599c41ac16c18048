//! Sends callers their answers.
//!
//! To wake a task from a thread that is not its runtime's is expensive: its place in the queue is
//! behind a lock, and a sleeping thread has to be woken for it. After a large commit the writer
//! would spend as long on this as on the statements, while the next batch waits. So it hands the
//! answers over to one task of the runtime, which wakes the others as its neighbours, while the
//! writer already syncs the next batch.
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::job::{Failure, Job};
use super::sync::{HANDED_OVER, Handle};

/// Settles one job and answers its caller.
pub(super) fn answer(mut job: Box<dyn Job>, ran: Result<(), Failure>) {
    job.settle(ran);
    job.answer();
}

/// Settles the jobs of a batch and answers their callers, through a task of the runtime if there
/// are many.
pub(super) fn answer_all(ran: impl ExactSizeIterator<Item = (Box<dyn Job>, Result<(), Failure>)>, on: Option<&Handle>) {
    let Some(on) = on.filter(|_| ran.len() >= HANDED_OVER) else {
        for (job, ran) in ran {
            answer(job, ran);
        }
        return;
    };
    // Settled here: what follows a commit precedes the next one.
    let settled = ran.map(|(mut job, ran)| {
        job.settle(ran);
        job
    });
    let mut answers = Answers(settled.collect());
    on.spawn(async move { answers.send() });
}

/// Answers that are due, also when the runtime that was to send them has shut down.
struct Answers(Vec<Box<dyn Job>>);

impl Answers {
    fn send(&mut self) {
        for job in self.0.drain(..) {
            // The values that a job of the program owns are dropped here. A panic is printed, and
            // is no reason for the others to get no answer.
            let _ = catch_unwind(AssertUnwindSafe(|| job.answer()));
        }
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.send();
    }
}
