//! One operation of a fiber: the body of a step that asked for `|op|`, over all its attempts.
//!
//! An op has a record in the store only once there is something to keep: a stash or a failed attempt. The record goes with
//! the step's checkpoint. A record can only be there for the checkpoint count at which it was written, so an op asks the
//! store for one only there; a step on the usual path reads and writes nothing more than its checkpoint.
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use super::events::EventKind;
use super::frame::{Frame, OpRecord, Run, Sink, Stopped};
use super::saved::text_to_keep;
use crate::error::{Error, ErrorKind, Result};
use crate::exact;

/// What the ops of one run share.
pub(crate) struct Ops {
    /// The fiber's id.
    fiber: String,
    /// The checkpoint count for which the store may have a record; `u64::MAX` for none.
    recorded_at: AtomicU64,
    /// The op whose record the next checkpoint ends.
    finished: Mutex<Option<String>>,
    /// Whether the fiber is asked to stop.
    stop: watch::Sender<bool>,
}

impl Ops {
    /// For the first run of a fiber: there are no records.
    pub(crate) fn first(fiber: &str) -> Self {
        Ops::again(fiber, u64::MAX)
    }

    /// For any later run, which begins with `checkpoints` made.
    pub(crate) fn again(fiber: &str, checkpoints: u64) -> Self {
        Ops {
            fiber: fiber.to_owned(),
            recorded_at: AtomicU64::new(checkpoints),
            finished: Mutex::new(None),
            stop: watch::Sender::new(false),
        }
    }

    /// Whether the store may have something of what began after so many checkpoints.
    pub(crate) fn may_be_recorded(&self, checkpoints: u64) -> bool {
        self.recorded_at.load(Ordering::Relaxed) == checkpoints
    }

    /// The op that ends with the checkpoint that is being written.
    pub(crate) fn take_finished(&self) -> Option<String> {
        locked(&self.finished).take()
    }

    fn finish_later(&self, id: &str) {
        *locked(&self.finished) = Some(id.to_owned());
    }

    /// Ready when the fiber is asked to stop.
    pub(crate) async fn asked_to_stop(&self) {
        // The sender is in `self`, so the wait cannot fail.
        let _ = self.stop.subscribe().wait_for(|asked| *asked).await;
    }

    pub(crate) fn is_asked_to_stop(&self) -> bool {
        *self.stop.borrow()
    }

    /// Asks the fiber to stop: every [`Op::cancelled`] becomes ready.
    pub(crate) fn ask_to_stop(&self) {
        self.stop.send_replace(true);
    }
}

/// A step under way, given to its body by `step!(|op| ..)`.
///
/// ```
/// # use forever_runtime as forever;
/// # async fn charge(_: &str) -> forever::Result<u64> { Ok(1) }
/// // step!("import", |op| import(op).await?)
/// async fn import(op: &forever::Op) -> forever::Result<u64> {
///     let mut done: u64 = op.stashed()?.unwrap_or_default();
///     while done < 10 {
///         done += charge(&format!("{}-{done}", op.id())).await?;
///         op.stash(&done).await?; // a later run of this step goes on from here
///     }
///     Ok(done)
/// }
/// # let _ = import;
/// ```
pub struct Op {
    shared: Arc<Shared>,
    attempt: u32,
}

/// What all attempts of one op share.
struct Shared {
    run: Arc<Run>,
    id: String,
    step: &'static str,
    /// What the store knows, or knows as soon as a write that is under way is done.
    state: Mutex<State>,
    /// Held while a record is written, so that records arrive in the order of the calls.
    writing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Clone, Default)]
struct State {
    failed: u32,
    stash: Option<String>,
}

impl Op {
    /// Begins or resumes the op of the step `step` of the function `function`, at the place where the run now stands.
    ///
    /// The future is never ready if the store cannot be read; the reason is with the driver then.
    pub(crate) async fn begin(run: Arc<Run>, function: &'static str, step: &'static str) -> Op {
        let checkpoints = run.checkpoints.load(Ordering::Relaxed);
        let id = stable_id(&run.ops.fiber, function, step, checkpoints);
        let mut state = State::default();
        if run.ops.may_be_recorded(checkpoints) {
            match run.sink.load_op(&id).await {
                Ok(None) => {}
                Ok(Some(record)) => {
                    run.ops.finish_later(&id);
                    state = State { failed: record.failed, stash: record.stash };
                }
                Err(error) => interrupt(&run, error).await,
            }
        }
        let attempt = state.failed.saturating_add(1);
        let shared = Shared { run, id, step, state: Mutex::new(state), writing: tokio::sync::Mutex::default() };
        Op { shared: Arc::new(shared), attempt }
    }

    /// The same for every run of this step at this place of this fiber, and for no other: 32 hexadecimal digits.
    ///
    /// Made for idempotency keys: when the process dies between the effect and the checkpoint, the step runs again under the
    /// same id. It is a hash of the fiber's id, the step's name and the number of checkpoints that the fiber has made.
    pub fn id(&self) -> &str {
        &self.shared.id
    }

    /// Which attempt this is, from 1. Only failures that `retry` answers count, not interruptions.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Keeps `value` for a later run of this step, in place of what was stashed before. It is durable when this returns.
    ///
    /// It goes when the step has finished.
    ///
    /// # Errors
    /// Of kind [`Value`](ErrorKind::Value) when `value` cannot be serialised exactly or takes more than 16 MiB. A store that
    /// cannot write is no error of the body's: the fiber is interrupted, and goes on from its last checkpoint.
    pub async fn stash<V: Serialize + ?Sized>(&self, value: &V) -> Result<()> {
        let text = self.text_of(value)?;
        self.shared.write(|state| state.stash = Some(text)).await;
        self.sink().tell(EventKind::Stashed);
        Ok(())
    }

    /// What this step stashed last, in this run or an earlier one; `None` if nothing.
    ///
    /// # Errors
    /// Of kind [`Value`](ErrorKind::Value) when it cannot be read as a `V`.
    pub fn stashed<V: DeserializeOwned>(&self) -> Result<Option<V>> {
        let state = self.shared.state();
        let Some(text) = &state.stash else { return Ok(None) };
        exact::from_str(text).map(Some).map_err(|why| {
            let wanted = std::any::type_name::<V>();
            Error::new(ErrorKind::Value, format!("stash of step `{}` cannot be read as `{wanted}`: {why}", self.shared.step))
        })
    }

    /// Ready when the fiber is asked to stop, because it is cancelled or because the runtime closes.
    ///
    /// A body that watches it can end early and keep what it has; one that does not is dropped in the end.
    pub async fn cancelled(&self) {
        self.shared.run.ops.asked_to_stop().await;
    }

    /// Whether the fiber is asked to stop.
    pub fn is_cancelled(&self) -> bool {
        self.shared.run.ops.is_asked_to_stop()
    }

    /// The op of the attempt that comes now.
    pub(crate) fn current(&self) -> Op {
        Op { shared: Arc::clone(&self.shared), attempt: self.failed().saturating_add(1) }
    }

    /// How many attempts have failed.
    pub(crate) fn failed(&self) -> u32 {
        self.shared.state().failed
    }

    /// Stores how many attempts have failed; never ready if that cannot be stored.
    pub(crate) async fn record_failed(&self, failed: u32) {
        self.shared.write(|state| state.failed = failed).await;
    }

    pub(crate) fn sink(&self) -> &dyn Sink {
        &*self.shared.run.sink
    }

    pub(crate) fn step(&self) -> &'static str {
        self.shared.step
    }

    /// A number that differs from op to op and from attempt to attempt but not from run to run: where jitter falls.
    pub(crate) fn chance(&self, failed: u32) -> u32 {
        let hash = Sha256::new().chain_update(self.id()).chain_update(failed.to_be_bytes()).finalize();
        u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]])
    }

    fn text_of<V: Serialize + ?Sized>(&self, value: &V) -> Result<String> {
        let step = self.shared.step;
        text_to_keep(value).map_err(|why| Error::new(ErrorKind::Value, format!("stash of step `{step}` {why}")))
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attempt {} of step `{}`, op {}", self.attempt, self.shared.step, self.shared.id)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// Changes what is known, then stores it; never ready if it cannot be stored.
    async fn write(&self, change: impl FnOnce(&mut State)) {
        let turn = self.writing.lock().await;
        let record = {
            let mut state = self.state();
            change(&mut state);
            OpRecord { id: self.id.clone(), step: self.step.to_owned(), failed: state.failed, stash: state.stash.clone() }
        };
        let ops = &self.run.ops;
        ops.recorded_at.store(self.run.checkpoints.load(Ordering::Relaxed), Ordering::Relaxed);
        ops.finish_later(&self.id);
        let saved = self.run.sink.save_op(record).await;
        drop(turn);
        if let Err(error) = saved {
            interrupt(&self.run, error).await;
        }
    }
}

impl Frame {
    /// The op of a step's body that takes one.
    pub fn op(&self, cut: u32) -> impl Future<Output = Op> + Send + use<> {
        let machine = self.machine;
        Op::begin(Arc::clone(&self.run), machine.name, machine.cuts[cut as usize].name)
    }
}

/// Ends the run for a reason that is not the fiber's: the driver drops the future at its next look.
async fn interrupt(run: &Run, error: Error) {
    run.stop(Stopped::Interrupted(error));
    std::future::pending::<()>().await;
}

/// The id of an op: a hash, so that it has one length and says nothing of the fiber to whom it is sent.
fn stable_id(fiber: &str, function: &str, step: &str, checkpoints: u64) -> String {
    let mut hash = Sha256::new();
    for part in ["step", fiber, function, step] {
        // With its length, so that no two lists of parts run together to the same text.
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.update(checkpoints.to_be_bytes());
    hex(&hash.finalize()[..16])
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

/// Nothing under these locks can panic half way, so a poisoned one is as good as any.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use super::super::frame::{BoxFuture, Checkpoint, Sink};
    use super::super::machine::{Cut, CutKind, Machine};
    use super::super::saved::LONGEST_TEXT;
    use super::*;

    const fn cut(name: &'static str) -> Cut {
        Cut { name, explicit: true, of: 1, body: "", was: None, kind: CutKind::Step, locals: &[], next: &[], line: 1 }
    }

    pub(crate) static MACHINE: Machine = Machine {
        name: "work",
        version: 0,
        max_recoveries: None,
        arguments: &[],
        cuts: &[cut("first"), cut("second")],
        first: &[0],
        topics: &[],
        migrate: None,
    };

    /// A store in memory that keeps a diary.
    #[derive(Default)]
    pub(crate) struct Store {
        pub(crate) ops: Mutex<BTreeMap<String, OpRecord>>,
        diary: Mutex<Vec<String>>,
        broken: AtomicBool,
    }

    impl Store {
        /// What was asked of the store since the last look.
        pub(crate) fn diary(&self) -> Vec<String> {
            std::mem::take(&mut *locked(&self.diary))
        }

        pub(crate) fn break_down(&self) {
            self.broken.store(true, Ordering::Relaxed);
        }

        fn answer<T: Send + 'static>(&self, entry: String, value: T) -> BoxFuture<'static, Result<T, Error>> {
            locked(&self.diary).push(entry);
            let broken = self.broken.load(Ordering::Relaxed);
            Box::pin(async move { if broken { Err(Error::new(ErrorKind::Store, "disk on fire")) } else { Ok(value) } })
        }
    }

    impl Sink for Store {
        fn arrive(&self, _: u64, _: u32, _: String) -> BoxFuture<'_, Result<(), Error>> {
            self.answer("arrive".to_owned(), ())
        }

        fn arrived(&self, _: u64) -> BoxFuture<'_, Result<Vec<(u32, String)>, Error>> {
            self.answer("arrived".to_owned(), Vec::new())
        }

        fn commit(&self, checkpoint: Checkpoint) -> BoxFuture<'_, Result<(), Error>> {
            let finished = checkpoint.finished_op.and_then(|id| locked(&self.ops).remove(&id));
            self.answer(format!("commit {} ends {}", checkpoint.at, finished.map_or("nothing".to_owned(), |op| op.step)), ())
        }

        fn save_op(&self, record: OpRecord) -> BoxFuture<'_, Result<(), Error>> {
            let entry = format!("save {} failed {} stash {}", record.step, record.failed, record.stash.as_deref().unwrap_or("-"));
            locked(&self.ops).insert(record.id.clone(), record);
            self.answer(entry, ())
        }

        fn load_op<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<OpRecord>, Error>> {
            let record = locked(&self.ops).get(id).cloned();
            self.answer(format!("load {}", if record.is_some() { "found" } else { "nothing" }), record)
        }
    }

    pub(crate) fn first_run(store: &Arc<Store>) -> Frame {
        Frame::start(&MACHINE, Run::first("fiber-1", store.clone()))
    }

    pub(crate) fn later_run(store: &Arc<Store>, checkpoints: u64) -> Frame {
        Frame::start(&MACHINE, Run::again("fiber-1", store.clone(), checkpoints))
    }

    /// The reason for which `future` never became ready.
    pub(crate) async fn interrupted<T>(frame: &Frame, future: impl Future<Output = T>) -> String {
        assert!(tokio::time::timeout(Duration::from_secs(1 << 30), future).await.is_err(), "it became ready");
        match frame.run.take_stopped() {
            Some(Stopped::Interrupted(error)) => error.to_string(),
            other => panic!("stopped for {other:?}"),
        }
    }

    #[tokio::test]
    async fn an_op_that_keeps_nothing_costs_nothing() {
        let store = Arc::new(Store::default());
        let mut fiber = first_run(&store);
        let op = fiber.op(0).await;
        assert_eq!((op.attempt(), op.stashed::<u8>().unwrap()), (1, None));
        fiber.checkpoint(0, |_| {}).await;
        fiber.op(1).await;
        assert_eq!(store.diary(), ["commit first ends nothing"]);
    }

    #[tokio::test]
    async fn a_stash_is_there_for_the_next_run_until_the_step_has_finished() {
        let store = Arc::new(Store::default());
        let fiber = first_run(&store);
        let op = fiber.op(0).await;
        op.stash("draft").await.unwrap();
        op.stash(&vec![1, 2]).await.unwrap();
        assert_eq!(op.stashed::<Vec<u8>>().unwrap(), Some(vec![1, 2]));
        assert_eq!(store.diary(), [r#"save first failed 0 stash "draft""#, "save first failed 0 stash [1,2]"]);

        let mut fiber = later_run(&store, 0);
        let op = fiber.op(0).await;
        assert_eq!((op.attempt(), op.stashed::<Vec<u8>>().unwrap()), (1, Some(vec![1, 2])));
        fiber.checkpoint(0, |_| {}).await;
        let next = fiber.op(1).await;
        assert_eq!(next.stashed::<Vec<u8>>().unwrap(), None);
        fiber.checkpoint(1, |_| {}).await;
        assert_eq!(store.diary(), ["load found", "commit first ends first", "commit second ends nothing"]);
        assert!(locked(&store.ops).is_empty());
    }

    #[tokio::test]
    async fn a_resumed_run_looks_for_a_record_only_where_it_resumed() {
        let store = Arc::new(Store::default());
        let mut fiber = later_run(&store, 7);
        fiber.op(0).await;
        fiber.checkpoint(0, |_| {}).await;
        fiber.op(1).await;
        assert_eq!(store.diary(), ["load nothing", "commit first ends nothing"]);
    }

    #[tokio::test]
    async fn a_step_entered_again_in_the_same_run_sees_its_stash() {
        let store = Arc::new(Store::default());
        let fiber = first_run(&store);
        fiber.op(0).await.stash(&1).await.unwrap();
        assert_eq!(fiber.op(0).await.stashed::<u8>().unwrap(), Some(1));
        assert_eq!(fiber.op(1).await.stashed::<u8>().unwrap(), None);
    }

    #[tokio::test]
    async fn an_id_is_the_same_in_every_run_and_differs_between_places() {
        let store = Arc::new(Store::default());
        let mut fiber = first_run(&store);
        let id = fiber.op(0).await.id().to_owned();
        // Written down, because ids are stored and sent to others: a new way to make them would repeat their effects.
        assert_eq!(id, "4d867f1e80eb361a1341301bfedb8a1a");
        assert_eq!(fiber.op(0).await.id(), id);
        assert_eq!(later_run(&store, 0).op(0).await.id(), id);
        let mut others = vec![fiber.op(1).await.id().to_owned(), later_run(&store, 1).op(0).await.id().to_owned()];
        others.push(Frame::start(&MACHINE, Run::first("fiber-2", store.clone())).op(0).await.id().to_owned());
        fiber.checkpoint(0, |_| {}).await;
        assert_eq!(fiber.op(0).await.id(), others[1], "in the next round of a loop");
        others.push(id);
        others.sort();
        others.dedup();
        assert_eq!(others.len(), 4);
        assert_ne!(stable_id("a", "bc", "d", 0), stable_id("ab", "c", "d", 0));
    }

    #[tokio::test]
    async fn a_stash_that_is_too_long_is_an_error_and_keeps_the_one_before() {
        let store = Arc::new(Store::default());
        let op = first_run(&store).op(0).await;
        op.stash("small").await.unwrap();
        op.stash(&"x".repeat(LONGEST_TEXT - 2)).await.unwrap();
        let error = op.stash(&"x".repeat(LONGEST_TEXT - 1)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Value);
        assert_eq!(error.to_string(), "stash of step `first` takes 16777217 bytes, more than the 16777216 that are allowed");
        assert_eq!(op.stashed::<String>().unwrap().unwrap().len(), LONGEST_TEXT - 2);
    }

    #[tokio::test]
    async fn a_stash_read_as_another_type_is_an_error_that_names_the_step() {
        let store = Arc::new(Store::default());
        let op = first_run(&store).op(0).await;
        op.stash("text").await.unwrap();
        let error = op.stashed::<u8>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Value);
        assert!(error.to_string().starts_with("stash of step `first` cannot be read as `u8`: "), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_cannot_write_interrupts_the_fiber() {
        let store = Arc::new(Store::default());
        let fiber = first_run(&store);
        let op = fiber.op(0).await;
        store.break_down();
        assert_eq!(interrupted(&fiber, op.stash(&1)).await, "disk on fire");
        let later = later_run(&store, 0);
        assert_eq!(interrupted(&later, later.op(0)).await, "disk on fire");
    }

    #[tokio::test]
    async fn an_op_learns_that_its_fiber_is_asked_to_stop() {
        let store = Arc::new(Store::default());
        let fiber = first_run(&store);
        let op = fiber.op(0).await;
        assert!(!op.is_cancelled());
        let waiting = async {
            op.cancelled().await;
            op.is_cancelled()
        };
        let asking = async {
            tokio::task::yield_now().await;
            fiber.run.ops.ask_to_stop();
        };
        let (stopped, ()) = tokio::join!(waiting, asking);
        assert!(stopped);
        fiber.op(1).await.cancelled().await;
    }
}
