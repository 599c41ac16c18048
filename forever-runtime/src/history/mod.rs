//! History: the checkpoints that a fiber has made, with the values of its locals at each.
//!
//! `recorder` writes one item per checkpoint to the stream [`HISTORY`](crate::store::HISTORY) of
//! the fiber, in the transaction of the checkpoint; `item` is the format of an item, `splice` how a
//! long text is said by what changed in it, and `past` reads them back.
mod item;
mod past;
mod recorder;
mod splice;

#[cfg(test)]
mod tests;

pub(crate) use item::{Change, Changes, Origin, item_of};
pub use past::{ChangedValue, HistoryEntry, HistoryOrigin};
pub(crate) use past::{Past, PastAt, Stood, with_whole_values};
pub(crate) use recorder::Recorder;

/// How many checkpoints of a fiber are kept: [`Builder::history`](crate::Builder::history).
///
/// A kept checkpoint says which values changed, so that the locals of every kept one can be read
/// ([`Forever::locals_at`](crate::Forever::locals_at)). It is stored in the transaction of the checkpoint,
/// and deleted with the fiber.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::Forever;
/// use forever::fiber::History;
///
/// // Each fiber can be looked at, and forked, at its last 20 checkpoints.
/// let builder = Forever::builder().in_memory().history(History::last(20));
/// # let _ = builder;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct History(Depth);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    Off,
    Last(u32),
    All,
}

impl History {
    /// Keeps none, for fibers that make thousands of checkpoints a second: with a history each
    /// writes about twice as much.
    pub const fn off() -> Self {
        History(Depth::Off)
    }

    /// Keeps at least the last `checkpoints` of each fiber. Older ones are deleted some at a time.
    /// The default is the last 100.
    pub const fn last(checkpoints: u32) -> Self {
        History(if checkpoints == 0 { Depth::Off } else { Depth::Last(checkpoints) })
    }

    /// Keeps all for as long as the fiber is stored.
    pub const fn all() -> Self {
        History(Depth::All)
    }

    /// A recorder for one activation of a function with this layout, unless nothing is kept.
    pub(crate) fn recorder(self, layout: &str, now_ms: i64) -> Option<Recorder> {
        match self.0 {
            Depth::Off => None,
            Depth::Last(checkpoints) => Some(Recorder::new(Some(checkpoints), layout, now_ms)),
            Depth::All => Some(Recorder::new(None, layout, now_ms)),
        }
    }
}

/// The last 100 checkpoints.
impl Default for History {
    fn default() -> Self {
        History::last(100)
    }
}
