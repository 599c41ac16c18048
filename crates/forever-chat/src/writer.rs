//! Writes a log: gathers chunks while others are being stored, and publishes them once they are.
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forever_runtime::__layers::{Engine, Fence, chain, race};
use forever_runtime::store::{StreamBatch, TurnSeq, TurnWrite};
use forever_runtime::{Error, ErrorKind, Result};
use tokio::sync::watch;

use crate::log::Log;

/// How chunks are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Batching {
    /// Maximum number of chunks that wait to be stored; further writers wait.
    pub(crate) chunks: usize,
    /// Maximum number of bytes that wait.
    pub(crate) bytes: usize,
    /// Minimum pause between two commits of the same turn, unless a caller waits for the second.
    pub(crate) pause: Duration,
}

impl Default for Batching {
    fn default() -> Self {
        Batching { chunks: 256, bytes: 256 << 10, pause: Duration::from_millis(4) }
    }
}

/// The writing end of a log.
#[derive(Debug)]
pub(crate) struct Writer {
    engine: Engine,
    fence: Arc<Fence>,
    turn: TurnSeq,
    pub(crate) log: Arc<Log>,
    batching: Batching,
    waiting: Mutex<Waiting>,
    /// Notified when chunks were stored, or cannot be.
    moved: watch::Sender<()>,
    /// Notified when a caller waits for the next commit.
    awaited: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Number of the first chunk that is not stored.
    first: u64,
    chunks: Vec<Arc<str>>,
    bytes: usize,
    /// Number up to which a caller waits for chunks to be stored.
    wanted: u64,
    /// Whether a writer waits for room.
    crowded: bool,
    /// Whether a task is storing chunks.
    storing: bool,
    /// Why nothing more can be stored.
    failed: Option<Arc<Error>>,
}

impl Waiting {
    fn next(&self) -> u64 {
        self.first + self.chunks.len() as u64
    }

    /// Whether a caller waits for the next commit.
    fn is_awaited(&self) -> bool {
        self.crowded || self.wanted > self.first
    }

    fn failure(&self) -> Result<()> {
        match &self.failed {
            Some(why) => Err(Error::new(why.kind(), chain(&**why))),
            None => Ok(()),
        }
    }
}

impl Writer {
    /// Continues after `stored` chunks.
    pub(crate) fn new(engine: Engine, fence: Arc<Fence>, turn: TurnSeq, log: Arc<Log>, stored: u64, batching: Batching) -> Arc<Self> {
        let waiting = Mutex::new(Waiting { first: stored, ..Waiting::default() });
        let (moved, awaited) = (watch::Sender::new(()), watch::Sender::new(()));
        Arc::new(Writer { engine, fence, turn, log, batching, waiting, moved, awaited })
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is room for more chunks.
    pub(crate) async fn room(&self) -> Result<()> {
        let mut moved = self.moved.subscribe();
        loop {
            {
                let mut waiting = self.waiting();
                waiting.failure()?;
                if waiting.chunks.len() < self.batching.chunks.max(1) && waiting.bytes < self.batching.bytes.max(1) {
                    return Ok(());
                }
                waiting.crowded = true;
            }
            self.awaited.send_replace(());
            self.moves(&mut moved).await;
        }
    }

    /// Appends chunks to those that wait to be stored: all of them, or none if `apply` fails.
    /// `apply` is called once nothing else can fail.
    ///
    /// It never waits, so a caller that is dropped has done both or neither. Callers wait for room
    /// before, with [`room`](Self::room).
    pub(crate) fn accept(self: &Arc<Self>, chunks: Vec<Arc<str>>, apply: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut waiting = self.waiting();
        waiting.failure()?;
        if !waiting.storing {
            let writer = Arc::clone(self);
            // A runtime that closes starts no task: a caller that waits for the chunks stores them.
            waiting.storing = self.engine.start(async move { writer.store().await }).is_ok();
        }
        apply()?;
        waiting.bytes += chunks.iter().map(|chunk| chunk.len()).sum::<usize>();
        waiting.chunks.extend(chunks);
        Ok(())
    }

    /// Waits until all written chunks are stored.
    pub(crate) async fn flush(&self) -> Result<()> {
        let mut moved = self.moved.subscribe();
        let until = {
            let mut waiting = self.waiting();
            waiting.wanted = waiting.next();
            waiting.wanted
        };
        self.awaited.send_replace(());
        loop {
            {
                let waiting = self.waiting();
                waiting.failure()?;
                if waiting.first >= until {
                    return Ok(());
                }
            }
            self.moves(&mut moved).await;
        }
    }

    /// Waits until chunks were stored, or cannot be; stores them if no other caller does.
    async fn moves(&self, moved: &mut watch::Receiver<()>) {
        if self.takes_over() {
            let _storing = Storing(self);
            return self.store().await;
        }
        // The sender is in `self`, so the wait cannot fail.
        let _ = moved.changed().await;
    }

    /// Whether chunks wait that no other caller stores; marks them as being stored.
    fn takes_over(&self) -> bool {
        let mut waiting = self.waiting();
        let takes_over = !waiting.storing && !waiting.chunks.is_empty() && waiting.failed.is_none();
        waiting.storing |= takes_over;
        takes_over
    }

    /// Stores waiting chunks until there are none.
    async fn store(&self) {
        loop {
            let (first, chunks) = {
                let mut waiting = self.waiting();
                if waiting.chunks.is_empty() {
                    waiting.storing = false;
                    return;
                }
                (waiting.first, self.batch(&waiting.chunks))
            };
            let count = chunks.len();
            let data = chunks.join("\n");
            let row = StreamBatch { first, count: count as u64, data, stored_ms: self.engine.now_ms() };
            let stored = self.engine.store().append_chunks(self.fence.claim(), self.turn, row).await;
            let failed = match self.fence.checked(stored) {
                Ok(TurnWrite::Done) => None,
                Ok(TurnWrite::NotRunning | TurnWrite::HasFiber) => Some(over()),
                Err(error) => Some(error),
            };
            {
                let mut waiting = self.waiting();
                if let Some(error) = failed {
                    waiting.failed = Some(Arc::new(error));
                    waiting.storing = false;
                    drop(waiting);
                    self.moved.send_replace(());
                    return;
                }
                let gone: usize = waiting.chunks.drain(..count).map(|chunk| chunk.len()).sum();
                waiting.bytes -= gone;
                waiting.first += count as u64;
                waiting.crowded = false;
            }
            self.log.publish(first, chunks);
            self.moved.send_replace(());
            if !self.batching.pause.is_zero() {
                // After the pause, or as soon as a caller waits.
                let _ = tokio::time::timeout(self.batching.pause, self.awaited()).await;
            }
        }
    }

    /// The chunks of the next row: as many as may wait, and at least one.
    fn batch(&self, chunks: &[Arc<str>]) -> Vec<Arc<str>> {
        let mut bytes = 0;
        let fits = |chunk: &&Arc<str>| {
            bytes += chunk.len();
            bytes <= self.batching.bytes
        };
        let count = chunks.iter().take(self.batching.chunks).take_while(fits).count().max(1);
        chunks.iter().take(count).cloned().collect()
    }

    /// Resolves when a caller waits for the next commit, or the runtime closes.
    async fn awaited(&self) {
        let mut awaited = self.awaited.subscribe();
        let told = async {
            while !self.waiting().is_awaited() {
                // The sender is in `self`, so the wait cannot fail.
                let _ = awaited.changed().await;
            }
        };
        race(told, self.engine.closing()).await;
    }
}

/// Lets another caller store what is left when this one is dropped.
struct Storing<'a>(&'a Writer);

impl Drop for Storing<'_> {
    fn drop(&mut self) {
        self.0.waiting().storing = false;
        self.0.moved.send_replace(());
    }
}

/// Error of a write to a turn that has ended.
pub(crate) fn over() -> Error {
    Error::new(ErrorKind::Conflict, "the turn has ended")
}
