//! Operations: the state of a step between its attempts, and the ledger of effects.
//!
//! An [`Op`] is one operation over all its attempts. The op of a plain step has a record in the
//! store only once there is something to store: a stash, a log or a failed attempt. The checkpoint
//! of the step deletes the record, so that a step without these writes nothing but its checkpoint.
//! The op of an `effect` has a record from before its body runs, and it is not deleted. Loading a
//! fiber also loads the operations that an earlier run left open. From then on a run knows what is
//! stored without reading it again.
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::known::Place;
use crate::error::{Error, ErrorKind, Result};
use crate::exact;
use crate::frame::activation::Frame;
use crate::frame::backend::RunBackend;
use crate::frame::run::Run;
use crate::frame::saved::{text_to_keep, unreadable};
use crate::runtime::events::EventKind;
use crate::runtime::exit::Exit;
use crate::store::{OpKind, OpRecord, OpRetry, OpState};

/// Step under way, given to its body by `step!(|op| ..)`.
///
/// ```
/// # use forever_runtime as forever;
/// # async fn charge(_: &str) -> forever::Result<u64> { Ok(1) }
/// // step!("import", |op| import(op).await?)
/// async fn import(op: &forever::ops::Op) -> forever::Result<u64> {
///     let mut done: u64 = op.stashed()?.unwrap_or_default();
///     while done < 10 {
///         done += charge(&format!("{}-{done}", op.id())).await?;
///         op.stash(&done).await?; // a later run of this step goes on from here
///     }
///     Ok(done)
/// }
/// # let _ = import;
/// ```
#[derive(Clone)]
pub struct Op {
    pub(super) shared: Arc<Shared>,
    pub(super) attempt: u32,
}

/// State that all attempts of an op share.
pub(super) struct Shared {
    pub(super) run: Arc<Run>,
    pub(super) id: String,
    /// The stored name of the step; empty for a manual operation.
    pub(super) step: &'static str,
    /// The record as the store has it, or will have it after the write that is under way.
    pub(super) record: Mutex<OpRecord>,
    /// Whether the body reported an unknown outcome.
    pub(super) unknown: AtomicBool,
    /// Held while a record is written, so that records are written in the order of the calls.
    pub(super) writing: tokio::sync::Mutex<()>,
}

impl Op {
    /// The op of a record, at its next attempt.
    pub(crate) fn of(run: Arc<Run>, step: &'static str, record: OpRecord) -> Op {
        let attempt = record.failed.saturating_add(1);
        let (id, record) = (record.id.clone(), Mutex::new(record));
        Op {
            shared: Arc::new(Shared { run, id, step, record, unknown: AtomicBool::new(false), writing: tokio::sync::Mutex::default() }),
            attempt,
        }
    }

    /// Id of this operation, 32 hexadecimal digits: the same in every run of this step at this
    /// place of this fiber, and different from all others.
    ///
    /// It is a hash of the fiber's id, the names of the function and the step, the number of
    /// checkpoints that the fiber has made, and the `key` of an effect. When the process dies
    /// between the effect and the checkpoint, the step runs again under the same id.
    pub fn id(&self) -> &str {
        &self.shared.id
    }

    /// Idempotency key for the other side, such as for the header `Idempotency-Key`: the
    /// [id](Op::id).
    pub fn idempotency_key(&self) -> &str {
        self.id()
    }

    /// Number of this attempt, from 1. Counts only failures that `retry` handles, not
    /// interruptions.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Stores `value` for a later run of this step, and replaces the earlier stash. It is durable
    /// when this returns.
    ///
    /// The stash is deleted when the step has finished.
    ///
    /// # Errors
    /// Of kind [`Value`](ErrorKind::Value) when `value` cannot be serialised exactly or takes more
    /// than 16 MiB. A store that cannot write gives the body no error: the fiber is interrupted,
    /// and resumes from its last checkpoint.
    pub async fn stash<V: Serialize + ?Sized>(&self, value: &V) -> Result<()> {
        let text = self.text_of(value)?;
        self.shared.write(|op| op.stash = Some(text)).await;
        self.backend().progressed();
        self.backend().tell(EventKind::Stashed);
        Ok(())
    }

    /// Last value that this step stashed, in this run or an earlier one; `None` if there is none.
    ///
    /// # Errors
    /// Of kind [`Value`](ErrorKind::Value) when the stash cannot be read as a `V`. A `#[fiber]`
    /// function that ends in an error for that is parked: the code has changed, and the stash is
    /// not lost.
    pub fn stashed<V: DeserializeOwned>(&self) -> Result<Option<V>> {
        let Some(text) = self.record().stash else { return Ok(None) };
        exact::from_str(&text).map(Some).map_err(|why| {
            let why = format!("stash of {} {}", self.shared.name(), unreadable::<V>(why));
            if self.backend().parks() {
                self.shared.run.cannot_read(why.clone());
            }
            Error::new(ErrorKind::Value, why)
        })
    }

    /// Marks `error` as an unknown outcome, and returns it.
    ///
    /// For an error that leaves open whether the effect was executed: a connection that broke after
    /// the request was sent, an answer that cannot be read. Any other error through `?` means that
    /// the effect was not executed. After this one [`OnUnknown`](crate::ops::OnUnknown) decides, as
    /// after a crash. In a step that is no effect it is an error like any other.
    ///
    /// ```ignore
    /// step!("charge", effect, |op| bank.charge(op.id()).await.map_err(|e| if e.is_timeout() { op.unknown(e) } else { e })?)
    /// ```
    pub fn unknown<E>(&self, error: E) -> E {
        self.shared.unknown.store(true, Ordering::Relaxed);
        error
    }

    /// Takes the mark that the body reported an unknown outcome.
    pub(super) fn take_unknown(&self) -> bool {
        self.shared.unknown.swap(false, Ordering::Relaxed)
    }

    /// Ready when the fiber is cancelled.
    ///
    /// A body that awaits this can undo what it has begun; any other is dropped after
    /// [`cancel_grace`](crate::Builder::cancel_grace).
    pub async fn cancelled(&self) {
        self.shared.run.ops.cancelled().await;
    }

    /// Whether the fiber is cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.shared.run.ops.is_cancelled()
    }

    /// Ready when the runtime begins to close: this process ends, and the fiber does not.
    ///
    /// The body runs again when the fiber is resumed, here or in another process. One that wants to
    /// end early [stashes](Op::stash) what it has and returns [`interrupted`](Op::interrupted); one
    /// that continues is dropped after the deadline of [`close`](crate::Forever::close).
    ///
    /// From the start of the close on no error is an outcome or a failed attempt. The value of a
    /// plain step is one unless its body has seen this; the value of an effect is one in any case.
    ///
    /// ```
    /// # use forever_runtime as forever;
    /// # async fn page(_: usize) -> forever::Result<String> { Ok("text".into()) }
    /// // step!("crawl", |op| crawl(op).await?)
    /// async fn crawl(op: &forever::ops::Op) -> forever::Result<Vec<String>> {
    ///     let mut pages: Vec<String> = op.stashed()?.unwrap_or_default();
    ///     while pages.len() < 1000 {
    ///         if op.is_closing() {
    ///             op.stash(&pages).await?;
    ///             return Err(op.interrupted());
    ///         }
    ///         pages.push(page(pages.len()).await?);
    ///     }
    ///     Ok(pages)
    /// }
    /// # let _ = crawl;
    /// ```
    pub async fn closing(&self) {
        self.shared.run.closing(Some(&self.record())).await;
    }

    /// Whether the runtime closes. The body has seen it then; see [`closing`](Op::closing).
    pub fn is_closing(&self) -> bool {
        self.shared.run.sees_closing(Some(&self.record()))
    }

    /// The error of a body that ends early because its process ends, of kind
    /// [`Interrupted`](ErrorKind::Interrupted). In a fiber that runs on it is an error like any
    /// other.
    pub fn interrupted(&self) -> Error {
        Error::new(ErrorKind::Interrupted, format!("{} was interrupted: its process ends", self.shared.name()))
    }

    /// The op at the attempt that comes now.
    pub(crate) fn current(&self) -> Op {
        Op { shared: Arc::clone(&self.shared), attempt: self.failed().saturating_add(1) }
    }

    /// Begins an attempt.
    pub(crate) fn begin_attempt(&self) {
        let run = &self.shared.run;
        run.tx_position.attempt();
        run.outputs.begin_attempt(run.tx_position.branch().as_deref());
    }

    /// Number of attempts that have failed.
    pub(crate) fn failed(&self) -> u32 {
        self.shared.record().failed
    }

    /// The record as it is stored.
    pub(crate) fn record(&self) -> OpRecord {
        self.shared.record().clone()
    }

    /// Stores the number of failed attempts, and the retry if there is to be one; never ready if
    /// that cannot be stored.
    pub(crate) async fn record_failed(&self, failed: u32, retry: Option<OpRetry>, state: OpState) {
        self.shared.write(|op| (op.failed, op.retry, op.state) = (failed, retry, state)).await;
    }

    /// Begins the count of failed attempts anew for this run. What is stored stays.
    pub(crate) fn forget_failed(&self) {
        let record = {
            let mut record = self.shared.record();
            (record.failed, record.retry) = (0, None);
            record.clone()
        };
        self.shared.run.ops.remember(&record);
    }

    /// When the next attempt is due, if one has failed.
    pub(crate) fn next_ms(&self) -> Option<i64> {
        self.shared.record().retry.as_ref().map(|retry| retry.next_ms)
    }

    pub(crate) fn run(&self) -> &Run {
        &self.shared.run
    }

    pub(crate) fn backend(&self) -> &dyn RunBackend {
        &*self.shared.run.backend
    }

    pub(crate) fn step(&self) -> &'static str {
        self.shared.step
    }

    /// Source of jitter: a number that differs between ops and between attempts, but not between
    /// runs.
    pub(crate) fn chance(&self, failed: u32) -> u32 {
        let hash = Sha256::new().chain_update(self.id()).chain_update(failed.to_be_bytes()).finalize();
        u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]])
    }

    pub(super) fn text_of<V: Serialize + ?Sized>(&self, value: &V) -> Result<String> {
        text_to_keep(value).map_err(|why| Error::new(ErrorKind::Value, format!("stash of {} {why}", self.shared.name())))
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attempt {} of {}, op {}", self.attempt, self.shared.name(), self.shared.id)
    }
}

impl Shared {
    pub(super) fn record(&self) -> MutexGuard<'_, OpRecord> {
        locked(&self.record)
    }

    /// Name of the op in messages.
    pub(super) fn name(&self) -> String {
        let record = self.record();
        match record.kind {
            OpKind::ByHand => format!("operation `{}`", record.step),
            _ => format!("step `{}`", record.step),
        }
    }

    /// Changes the record and stores it; never ready if it cannot be stored.
    pub(super) async fn write(&self, change: impl FnOnce(&mut OpRecord)) {
        let turn = self.writing.lock().await;
        let record = {
            let mut record = self.record();
            change(&mut record);
            record.clone()
        };
        self.run.ops.remember(&record);
        let saved = self.run.backend.ledger().save(record).await;
        drop(turn);
        if let Err(error) = saved {
            interrupt::<()>(&self.run, error).await;
        }
    }

    /// Appends to the log; never ready if that cannot be stored.
    pub(super) async fn append(&self, items: Vec<String>) {
        let turn = self.writing.lock().await;
        let record = self.record().clone();
        self.run.ops.remember(&record);
        let saved = self.run.backend.ledger().append(record, items).await;
        drop(turn);
        if let Err(error) = saved {
            interrupt::<()>(&self.run, error).await;
        }
        self.run.backend.progressed();
    }
}

impl Frame {
    /// The op for the body of a plain step that takes one.
    pub fn op(&self, cut: u32) -> Op {
        let (machine, run) = (self.machine, &self.run);
        let cut = &machine.cuts[cut as usize];
        let number = run.checkpoints.load(Ordering::Relaxed);
        let place = Place {
            kind: OpKind::Step,
            machine,
            step: cut.name.into(),
            was: cut.was.into_iter().map(Into::into).collect(),
            steps: None,
            key: None,
            number,
        };
        Op::of(Arc::clone(run), cut.name, run.ops.of_step(place))
    }
}

/// Interrupts the run; the executor drops the future at its next poll.
pub(super) async fn interrupt<T>(run: &Run, error: Error) -> T {
    run.halt(Exit::interrupted(error)).await
}

/// Locks a mutex. No panic under these locks leaves them inconsistent, so poison is ignored.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::*;
    use crate::frame::backend::Checkpoint;
    use crate::frame::machine::{Cut, CutKind, Machine};
    use crate::frame::saved::LONGEST_TEXT;
    use crate::future::BoxFuture;
    use crate::ops::known::Left;
    use crate::ops::ledger::Ledger;
    use crate::ops::memory::MemoryLedger;
    use crate::store::{BranchResult, StreamAppend};

    const fn cut(name: &'static str) -> Cut {
        Cut {
            name,
            explicit: true,
            of: 1,
            body: "",
            was: None,
            kind: CutKind::Step,
            effect: false,
            decides: false,
            wraps: "",
            locals: &[],
            branches: &[],
            topics: &[],
            next: &[],
            line: 1,
        }
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
        secrets: &[],
        source: None,
    };

    /// A store in memory that records its calls.
    #[derive(Default)]
    pub(crate) struct Store {
        pub(crate) ledger: MemoryLedger,
        diary: Mutex<Vec<String>>,
        broken: AtomicBool,
        /// When it was first asked for the time.
        begun: std::sync::OnceLock<tokio::time::Instant>,
    }

    impl Store {
        /// Takes the calls since this was last called.
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

    impl RunBackend for Store {
        fn now_ms(&self) -> i64 {
            self.begun.get_or_init(tokio::time::Instant::now).elapsed().as_millis().try_into().unwrap()
        }

        fn save_branch(&self, _: u64, _: BranchResult, _: Vec<StreamAppend>) -> BoxFuture<'_, Result<(), Error>> {
            self.answer("arrive".to_owned(), ())
        }

        fn commit(&self, checkpoint: Checkpoint) -> BoxFuture<'_, Result<(), Error>> {
            let before = self.ledger.tables().ops.len();
            self.ledger.pass(&checkpoint.ops);
            let gone = before - self.ledger.tables().ops.len();
            let mut entry = format!("commit {}, {gone} go", checkpoint.at);
            for op in &checkpoint.ops.settled {
                entry += ", ";
                entry += op.state.as_str();
            }
            self.answer(entry, ())
        }

        fn ledger(&self) -> &dyn Ledger {
            self
        }
    }

    impl Ledger for Store {
        fn save(&self, op: OpRecord) -> BoxFuture<'_, Result<(), Error>> {
            let OpRecord { step, state, failed, stash, .. } = &op;
            let entry = format!("save {step} {state} failed {failed} stash {}", stash.as_deref().unwrap_or("-"));
            // The ledger is in memory, so the write is done before its future is polled.
            drop(self.ledger.save(op));
            self.answer(entry, ())
        }

        fn load<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<OpRecord>, Error>> {
            self.ledger.load(id)
        }

        fn append(&self, op: OpRecord, items: Vec<String>) -> BoxFuture<'_, Result<(), Error>> {
            let entry = format!("append {} to {}", items.join(","), op.step);
            drop(self.ledger.append(op, items));
            self.answer(entry, ())
        }

        fn log<'a>(&'a self, op: &'a OpRecord) -> BoxFuture<'a, Result<Vec<String>, Error>> {
            self.ledger.log(op)
        }
    }

    pub(crate) fn first_run(store: &Arc<Store>) -> Frame {
        Frame::start(&MACHINE, Run::first("fiber-1", store.clone(), false))
    }

    pub(crate) fn later_run(store: &Arc<Store>, checkpoints: u64) -> Frame {
        let left = Left { checkpoints, ops: store.ledger.since(checkpoints), ..Left::default() };
        Frame::start(&MACHINE, Run::again("fiber-1", store.clone(), left))
    }

    /// The reason of the interruption that kept `future` from becoming ready.
    pub(crate) async fn interrupted<T>(frame: &Frame, future: impl Future<Output = T>) -> String {
        assert!(tokio::time::timeout(Duration::from_secs(1 << 30), future).await.is_err(), "it became ready");
        match frame.run.take_stopped() {
            Some(Exit::Interrupted(error)) => error.to_string(),
            other => panic!("stopped for {other:?}"),
        }
    }

    #[tokio::test]
    async fn an_op_that_keeps_nothing_costs_nothing() {
        let store = Arc::new(Store::default());
        let mut fiber = first_run(&store);
        let op = fiber.op(0);
        assert_eq!((op.attempt(), op.stashed::<u8>().unwrap()), (1, None));
        fiber.checkpoint(0, |_| {}).await;
        fiber.op(1);
        assert_eq!(store.diary(), ["commit first, 0 go"]);
    }

    #[tokio::test]
    async fn a_stash_is_there_for_the_next_run_until_the_step_has_finished() {
        let store = Arc::new(Store::default());
        let fiber = first_run(&store);
        let op = fiber.op(0);
        op.stash("draft").await.unwrap();
        op.stash(&vec![1, 2]).await.unwrap();
        assert_eq!(op.stashed::<Vec<u8>>().unwrap(), Some(vec![1, 2]));
        assert_eq!(store.diary(), [r#"save first started failed 0 stash "draft""#, "save first started failed 0 stash [1,2]"]);

        let mut fiber = later_run(&store, 0);
        let op = fiber.op(0);
        assert_eq!((op.attempt(), op.stashed::<Vec<u8>>().unwrap()), (1, Some(vec![1, 2])));
        fiber.checkpoint(0, |_| {}).await;
        let next = fiber.op(1);
        assert_eq!(next.stashed::<Vec<u8>>().unwrap(), None);
        fiber.checkpoint(1, |_| {}).await;
        assert_eq!(store.diary(), ["commit first, 1 go", "commit second, 0 go"]);
        assert!(store.ledger.tables().ops.is_empty());
    }

    #[tokio::test]
    async fn a_resumed_run_without_records_writes_only_its_checkpoints() {
        let store = Arc::new(Store::default());
        let mut fiber = later_run(&store, 7);
        fiber.op(0);
        fiber.checkpoint(0, |_| {}).await;
        fiber.op(1);
        assert_eq!(store.diary(), ["commit first, 0 go"]);
    }

    #[tokio::test]
    async fn a_step_entered_again_in_the_same_run_sees_its_stash() {
        let store = Arc::new(Store::default());
        let fiber = first_run(&store);
        fiber.op(0).stash(&1).await.unwrap();
        assert_eq!(fiber.op(0).stashed::<u8>().unwrap(), Some(1));
        assert_eq!(fiber.op(1).stashed::<u8>().unwrap(), None);
    }

    #[tokio::test]
    async fn an_id_is_the_same_in_every_run_and_differs_between_places() {
        let store = Arc::new(Store::default());
        let mut fiber = first_run(&store);
        let id = fiber.op(0).id().to_owned();
        // Ids are stored and sent to others. If they were computed in another way, effects would
        // repeat.
        assert_eq!(id, "4d867f1e80eb361a1341301bfedb8a1a");
        assert_eq!(fiber.op(0).id(), id);
        assert_eq!(later_run(&store, 0).op(0).id(), id);
        let mut others = vec![fiber.op(1).id().to_owned(), later_run(&store, 1).op(0).id().to_owned()];
        others.push(Frame::start(&MACHINE, Run::first("fiber-2", store.clone(), false)).op(0).id().to_owned());
        fiber.checkpoint(0, |_| {}).await;
        assert_eq!(fiber.op(0).id(), others[1], "in the next round of a loop");
        others.push(id);
        others.sort();
        others.dedup();
        assert_eq!(others.len(), 4);
    }

    #[tokio::test]
    async fn a_stash_that_is_too_long_is_an_error_and_keeps_the_one_before() {
        let store = Arc::new(Store::default());
        let op = first_run(&store).op(0);
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
        let op = first_run(&store).op(0);
        op.stash("text").await.unwrap();
        let error = op.stashed::<u8>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Value);
        assert!(error.to_string().starts_with("stash of step `first` cannot be read as `u8`: "), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_cannot_write_interrupts_the_fiber() {
        let store = Arc::new(Store::default());
        let fiber = first_run(&store);
        let op = fiber.op(0);
        store.break_down();
        assert_eq!(interrupted(&fiber, op.stash(&1)).await, "disk on fire");
    }

    #[tokio::test]
    async fn an_op_learns_that_its_fiber_is_cancelled() {
        let store = Arc::new(Store::default());
        let fiber = first_run(&store);
        let op = fiber.op(0);
        assert!(!op.is_cancelled());
        let waiting = async {
            op.cancelled().await;
            op.is_cancelled()
        };
        let asking = async {
            fiber.run.ops.close();
            tokio::task::yield_now().await;
            assert!(!op.is_cancelled(), "the end of the process is no cancel");
            fiber.run.ops.cancel();
        };
        let (cancelled, ()) = tokio::join!(waiting, asking);
        assert!(cancelled);
        fiber.op(1).cancelled().await;
    }
}
