//! The outside world of generated fibers. It can be told to let certain calls begin and never answer.
use std::sync::Arc;

use forever_edits::answer;
use tokio::sync::watch;

/// Clones are the same world.
#[derive(Debug, Clone)]
pub(crate) struct Io(Arc<watch::Sender<World>>);

#[derive(Debug)]
struct World {
    hangs: Hangs,
    /// Whether children never end.
    children_hang: bool,
    started: usize,
    hanging: usize,
    log: Vec<String>,
}

/// Which calls begin and never answer, by how many began before, and one of several side by side by what it would answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hangs {
    Never,
    One { from: usize, answer: i64 },
    From(usize),
}

#[allow(dead_code, reason = "not every seed calls all of them")]
#[allow(clippy::unnecessary_wraps, reason = "`OnUnknown::check` takes a result")]
impl Io {
    pub(crate) fn new(hangs: Hangs, children_hang: bool) -> Self {
        Io(Arc::new(watch::Sender::new(World { hangs, children_hang, started: 0, hanging: 0, log: Vec::new() })))
    }

    async fn called(&self, label: &str, input: i64) -> i64 {
        let mut hangs = false;
        self.0.send_modify(|world| {
            let at = world.started;
            world.started += 1;
            hangs = match world.hangs {
                Hangs::Never => false,
                Hangs::One { from, answer } => world.hanging == 0 && at >= from && forever_edits::answer(label, input) == answer,
                Hangs::From(number) => at >= number,
            };
            if hangs {
                world.hanging += 1;
            } else {
                world.log.push(format!("{label}({input})"));
            }
        });
        if hangs {
            std::future::pending::<()>().await;
        }
        answer(label, input)
    }

    pub(crate) async fn num(&self, label: &str, input: i64) -> anyhow::Result<i64> {
        Ok(self.called(label, input).await)
    }

    /// What a transaction does: it never hangs.
    pub(crate) fn booked(&self, label: &str, input: i64) -> anyhow::Result<i64> {
        self.0.send_modify(|world| {
            world.started += 1;
            world.log.push(format!("{label}({input})"));
        });
        Ok(answer(label, input))
    }

    pub(crate) async fn note(&self, label: &str, input: i64) {
        self.called(label, input).await;
    }

    fn found(&self, label: &str, input: i64) -> i64 {
        self.0.send_modify(|world| world.log.push(format!("?{label}({input})")));
        answer(label, input)
    }

    pub(crate) fn found_num(&self, label: &str, input: i64) -> anyhow::Result<Option<i64>> {
        Ok(Some(self.found(label, input)))
    }

    /// Never ready in a world in which children never end.
    pub(crate) async fn child(&self) {
        let hangs = self.0.borrow().children_hang;
        if hangs {
            std::future::pending::<()>().await;
        }
    }

    /// Whether a call hangs.
    pub(crate) fn hangs(&self) -> bool {
        self.0.borrow().hanging > 0
    }

    /// The calls that were answered, those of branches that ran side by side in an order of their own.
    pub(crate) fn log(&self) -> Vec<String> {
        sorted(self.0.borrow().log.clone())
    }
}

/// Sorts neighbouring lines of calls that run side by side, which begin with `~`, and of what is found of such.
pub(crate) fn sorted(mut log: Vec<String>) -> Vec<String> {
    log.chunk_by_mut(|a, b| ["~", "?~"].iter().any(|way| a.starts_with(way) && b.starts_with(way))).for_each(<[_]>::sort);
    log
}
