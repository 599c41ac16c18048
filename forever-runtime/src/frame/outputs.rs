//! What the code of a run has sent to readers of its fiber and is not stored yet: items of its
//! output streams, and its progress.
//!
//! It is stored in the transaction of what the run stores next: a checkpoint, the result of the
//! branch that has sent it, or the end. So code that is not run again has sent what it sent exactly
//! once. What an attempt of a step has sent is dropped when the next one begins.
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::store::{PROGRESS, StreamAppend, output_stream};

/// Outputs of a run that are not stored yet.
#[derive(Debug, Default)]
pub(crate) struct Outputs(Mutex<Pending>);

#[derive(Debug, Default)]
struct Pending {
    items: Vec<Item>,
    progress: Option<String>,
}

#[derive(Debug)]
struct Item {
    stream: String,
    json: String,
    /// Name of the branch of a `steps!` that has sent it.
    branch: Option<String>,
    /// Whether it belongs to the attempt that is under way.
    of_attempt: bool,
}

impl Outputs {
    /// Adds an item, JSON, to a stream.
    pub(crate) fn send(&self, stream: &str, json: String, branch: Option<String>) {
        self.pending().items.push(Item { stream: output_stream(stream), json, branch, of_attempt: true });
    }

    /// Replaces the progress, JSON.
    pub(crate) fn set_progress(&self, progress: String) {
        self.pending().progress = Some(progress);
    }

    /// A step begins: what was sent before it is of no attempt.
    pub(crate) fn begin_step(&self) {
        self.pending().items.iter_mut().for_each(|item| item.of_attempt = false);
    }

    /// An attempt begins: what the one before has sent is dropped.
    pub(crate) fn begin_attempt(&self, branch: Option<&str>) {
        self.pending().items.retain(|item| !item.of_attempt || item.branch.as_deref() != branch);
    }

    /// Takes everything out, to be stored.
    pub(crate) fn take(&self) -> Vec<StreamAppend> {
        let Pending { items, progress } = std::mem::take(&mut *self.pending());
        let mut appends = by_stream(items);
        // It replaces the first item, and is the only one.
        appends.extend(progress.map(|data| StreamAppend { name: PROGRESS.into(), first: Some(0), count: 1, data, keep: None }));
        appends
    }

    /// Takes out what a branch of a `steps!` has sent, to be stored.
    pub(crate) fn take_of_branch(&self, branch: &str) -> Vec<StreamAppend> {
        by_stream(self.pending().items.extract_if(.., |item| item.branch.as_deref() == Some(branch)).collect())
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Items of each stream together, in their order.
fn by_stream(items: Vec<Item>) -> Vec<StreamAppend> {
    let mut appends: Vec<StreamAppend> = Vec::new();
    for Item { stream, json, .. } in items {
        match appends.iter_mut().find(|append| append.name == stream) {
            Some(append) => {
                append.data.push('\n');
                append.data.push_str(&json);
                append.count += 1;
            }
            None => appends.push(StreamAppend { name: stream.into(), first: None, count: 1, data: json, keep: None }),
        }
    }
    appends
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(appends: &[StreamAppend]) -> Vec<(&str, Option<u64>, u64, &str)> {
        appends.iter().map(|append| (&*append.name, append.first, append.count, append.data.as_str())).collect()
    }

    #[test]
    fn items_keep_their_order_and_the_last_progress_counts() {
        let outputs = Outputs::default();
        for (stream, item) in [("a", "1"), ("b", "\"x\""), ("a", "2")] {
            outputs.send(stream, item.to_owned(), None);
            outputs.set_progress(item.to_owned());
        }
        assert_eq!(texts(&outputs.take()), [("out/a", None, 2, "1\n2"), ("out/b", None, 1, "\"x\""), (PROGRESS, Some(0), 1, "2")]);
        assert_eq!(outputs.take(), []);
    }

    #[test]
    fn failed_attempts_of_a_step_or_branch_have_sent_nothing() {
        let outputs = Outputs::default();
        let send = |item: &str, branch: Option<&str>| outputs.send("a", item.to_owned(), branch.map(str::to_owned));
        send("0", None);
        outputs.begin_step();
        outputs.begin_attempt(None);
        send("1", None);
        outputs.begin_attempt(None);
        send("2", None);
        assert_eq!(texts(&outputs.take()), [("out/a", None, 2, "0\n2")]);

        send("3", None);
        outputs.begin_step();
        for branch in ["x", "y"] {
            outputs.begin_attempt(Some(branch));
            send(&format!("\"{branch}\""), Some(branch));
        }
        outputs.begin_attempt(Some("y"));
        assert_eq!(texts(&outputs.take_of_branch("y")), []);
        send("4", Some("y"));
        assert_eq!(texts(&outputs.take_of_branch("y")), [("out/a", None, 1, "4")]);
        assert_eq!(texts(&outputs.take()), [("out/a", None, 2, "3\n\"x\"")]);
    }
}
