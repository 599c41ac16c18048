//! The threads that call SQLite: one that writes, and for files one that reads.
//!
//! The writer takes all queued jobs, runs them in one transaction, commits once, and only then
//! answers each caller. So callers that come together share one sync of the disk, and a caller that
//! comes alone does not wait for others. A job that fails takes back only its own changes.
//!
//! Where a commit does not sync, the handover to the thread takes longer than the commit. So a
//! caller that is alone may borrow the connection and run a short job on its own thread, under the
//! rules of [`pace`](super::pace): never ahead of a queued job, and never a commit that syncs.
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::answers::answer;
use super::batch::{Served, run_batch, run_inline};
use super::conn::Conn;
use super::file_guard::Kept;
use super::job::{Call, Job, Scope};
use super::log::Log;
use super::pace::{Caller, Pace};
use super::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use super::sync::thread::JoinHandle;
use super::sync::{Handle, Mutex, QUEUE, Spin, heard, mpsc, oneshot, thread, yield_now};
use crate::error::{Error, ErrorKind, Result};
use crate::witness::{Asks, Witness};

/// How long the writer spins for the next job before it sleeps. A fiber often requests its next
/// checkpoint right after the last one, sooner than a sleeping thread would wake.
const WRITER_SPIN: Duration = Duration::from_micros(50);

/// A thread with a connection, and its queue.
pub(crate) struct Worker {
    queue: mpsc::Sender<Box<dyn Job>>,
    pace: Pace,
    witness: Option<Arc<dyn Witness>>,
    shared: Arc<Shared>,
    /// Whether short jobs may run on the thread of their caller.
    inline: bool,
    /// Whether every job runs there.
    all_inline: bool,
    /// A reserved place in the queue for the job that wakes the thread to stop. All others may be
    /// held by callers that never resume.
    last: Mutex<Option<mpsc::OwnedPermit<Box<dyn Job>>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Closed when the thread has released everything.
    gone: Mutex<Option<oneshot::Receiver<()>>>,
}

/// State shared by the thread of a worker and its callers.
#[derive(Default)]
struct Shared {
    /// The connection, while the worker has one. The thread holds it for a batch, a caller for one
    /// job.
    ///
    /// Boxed, because the thread writes to it with each statement, and callers write to the field
    /// beside it with each call.
    served: Mutex<Option<Box<Served>>>,
    /// Number of jobs that are queued, or taken from the queue and not answered yet.
    queued: OwnCacheLine<AtomicUsize>,
    stop: AtomicBool,
}

/// Keeps a value that several threads write away from other values. Processors load two lines of 64
/// bytes at a time.
#[derive(Default)]
#[repr(align(128))]
struct OwnCacheLine<T>(T);

impl Shared {
    /// Runs a job on this thread, after all jobs that were queued before. Returns the job if it has
    /// to go to the worker's thread.
    ///
    /// A panic of the job ends the worker, as on its own thread. The job is dropped, which answers
    /// its caller with "closed".
    fn run_inline(&self, mut job: Box<dyn Job>, even_if_it_syncs: bool) -> Result<Inline, Box<dyn Job>> {
        let Ok(mut served) = self.served.try_lock() else { return Err(job) };
        // Checked with the connection locked: the thread counts its jobs down before it releases
        // the connection.
        if self.queued.0.load(Ordering::Acquire) > 0 || self.stop.load(Ordering::Acquire) {
            return Err(job);
        }
        let Some(on) = served.as_mut().filter(|on| even_if_it_syncs || on.commits_without_sync()) else { return Err(job) };
        match catch_unwind(AssertUnwindSafe(|| run_inline(on, job.as_mut()))) {
            Ok(Some(ran)) => {
                answer(job, ran);
                Ok(Inline::Answered)
            }
            Ok(None) => Err(job),
            Err(_) => {
                // Before another caller locks the connection.
                self.stop.store(true, Ordering::Release);
                Ok(Inline::Panicked)
            }
        }
    }
}

/// Outcome of a job on the thread of its caller.
enum Inline {
    Answered,
    Panicked,
}

/// A job that counts as queued: until its answer if it is queued, otherwise until this is dropped.
struct Queued<'a>(Option<&'a AtomicUsize>);

impl<'a> Queued<'a> {
    fn new(queued: &'a AtomicUsize) -> Self {
        queued.fetch_add(1, Ordering::AcqRel);
        Queued(Some(queued))
    }

    /// The job is in the queue: the thread counts it down.
    fn sent(mut self) {
        self.0 = None;
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        if let Some(queued) = self.0 {
            queued.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Closes the connection of a worker when its thread ends, also by a panic.
struct Closing(Arc<Shared>);

impl Drop for Closing {
    fn drop(&mut self) {
        let served = self.0.served.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(served);
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("waiting", &(self.queue.max_capacity() - self.queue.capacity())).finish_non_exhaustive()
    }
}

impl Worker {
    /// Starts a thread around the result of `open`: a connection, and a resource to release after
    /// it.
    pub(crate) fn start<K: Kept + Send + 'static>(
        name: &str,
        witness: Option<Arc<dyn Witness>>,
        open: impl FnOnce() -> Result<Held<K>> + Send + 'static,
    ) -> Result<(Self, Opened)> {
        let (queue, jobs) = mpsc::channel(QUEUE + 1);
        let last = Mutex::new(queue.clone().try_reserve_owned().ok());
        let (told, opened) = oneshot::channel();
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let (going, gone) = oneshot::channel::<()>();
        let of_caller = witness.clone();
        let work = move || {
            match open() {
                Err(why) => drop(told.send(Err(why))),
                Ok(Held { conn, log, kept, answers_on }) => {
                    let writes = log.is_some();
                    let answers_on = answers_on.filter(|_| witness.is_none());
                    let closing = Closing(of_thread);
                    let served = Box::new(Served::new(conn, log, witness, Box::new(kept), answers_on));
                    *closing.0.served.lock().unwrap_or_else(PoisonError::into_inner) = Some(served);
                    if told.send(Ok(())).is_ok() {
                        serve(&closing.0, writes, jobs);
                    }
                }
            }
            drop(going);
        };
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(work)
            .map_err(|e| Error::new(ErrorKind::Store, format!("failed to start the thread `{name}`")).with_source(e))?;
        let (thread, gone) = (Mutex::new(Some(thread)), Mutex::new(Some(gone)));
        Ok((Worker { queue, pace: Pace::new(), witness: of_caller, shared, inline: false, all_inline: false, last, thread, gone }, opened))
    }

    /// Lets [short jobs](Self::call_short) run on the thread of their caller. With a witness, all
    /// jobs run on the worker's thread, in the order that the witness sees.
    pub(crate) fn with_inline_jobs(mut self) -> Self {
        self.inline = self.witness.is_none();
        self
    }

    /// Lets every job run on the thread of its caller, so that its future is ready when it is first
    /// polled.
    pub(crate) fn with_all_jobs_inline(mut self) -> Self {
        self.all_inline = true;
        self
    }

    /// Number of callers that wait for an answer.
    pub(crate) fn callers(&self) -> usize {
        self.pace.callers()
    }

    /// Runs `work` on the thread; `what` completes "failed to ..". The job is queued when the
    /// future is first polled.
    pub(crate) fn call<T, F>(&self, what: &'static str, scope: Scope, work: F) -> impl Future<Output = Result<T>> + Send + use<'_, T, F>
    where
        T: Send + 'static,
        F: FnMut(&Conn) -> rusqlite::Result<T> + Send + 'static,
    {
        self.call_then(what, scope, work, |out| out)
    }

    /// As [`call`](Self::call), for work that runs no code of the program and takes microseconds:
    /// it may run on the thread of the caller.
    pub(crate) fn call_short<T, F>(
        &self,
        what: &'static str,
        scope: Scope,
        work: F,
    ) -> impl Future<Output = Result<T>> + Send + use<'_, T, F>
    where
        T: Send + 'static,
        F: FnMut(&Conn) -> rusqlite::Result<T> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let job = Box::new(Call::new(what, scope, work, |out| out, answer));
        self.ask_seen(job, answered, self.inline)
    }

    /// As [`call`](Self::call), with a function to run after the commit and before the answer, also
    /// if the caller is gone by then.
    pub(crate) fn call_then<T, F, A, U>(
        &self,
        what: &'static str,
        scope: Scope,
        work: F,
        then: A,
    ) -> impl Future<Output = Result<U>> + Send + use<'_, T, F, A, U>
    where
        T: Send + 'static,
        F: FnMut(&Conn) -> rusqlite::Result<T> + Send + 'static,
        A: FnOnce(T) -> U + Send + 'static,
        U: Send + 'static,
    {
        // The job is boxed here, so that no future on the way holds its parts.
        let (answer, answered) = oneshot::channel();
        let job = Box::new(Call::new(what, scope, work, then, answer));
        self.ask_seen(job, answered, false)
    }

    /// Runs `work` on the thread as its last job: jobs queued later are not run.
    pub(crate) fn call_last<F>(&self, what: &'static str, work: F) -> impl Future<Output = Result<()>> + Send + use<'_, F>
    where
        F: FnMut(&Conn) -> rusqlite::Result<()> + Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        self.call_then(what, Scope::Many, work, move |()| shared.stop.store(true, Ordering::Release))
    }

    async fn ask_seen<U>(&self, job: Box<dyn Job>, answered: oneshot::Receiver<Result<U>>, short: bool) -> Result<U> {
        let Some(witness) = &self.witness else { return self.ask(job, answered, short).await };
        let asks = Asks::new(witness.as_ref());
        let answer = self.ask(job, answered, short).await;
        witness.hears().await;
        drop(asks);
        answer
    }

    async fn ask<U>(&self, mut job: Box<dyn Job>, mut answered: oneshot::Receiver<Result<U>>, short: bool) -> Result<U> {
        if self.all_inline {
            match self.shared.run_inline(job, true) {
                Ok(Inline::Answered) => return answered.try_recv().unwrap_or_else(|_| Err(Error::closed())),
                Ok(Inline::Panicked) => {
                    self.tell_to_stop();
                    return Err(Error::closed());
                }
                Err(back) => job = back,
            }
        }
        let caller = Caller::new(&self.pace);
        if short && caller.spins().is_some() {
            match self.shared.run_inline(job, false) {
                Ok(Inline::Answered) => {
                    caller.answered(true);
                    if self.pace.has_spun_long() {
                        // After the commit: before it, a call that comes meanwhile would be stored
                        // first.
                        yield_now().await;
                    }
                    return answered.try_recv().unwrap_or_else(|_| Err(Error::closed()));
                }
                Ok(Inline::Panicked) => {
                    self.tell_to_stop();
                    return Err(Error::closed());
                }
                Err(back) => job = back,
            }
        }
        let queued = Queued::new(&self.shared.queued.0);
        // Usually there is room, and nothing to wait for.
        if let Err(refused) = self.queue.try_send(job) {
            let mpsc::error::TrySendError::Full(job) = refused else { return Err(Error::closed()) };
            Box::pin(self.queue.send(job)).await.map_err(|_| Error::closed())?;
        }
        queued.sent();
        if let Some(limit) = caller.spins() {
            if self.pace.has_spun_long() {
                // A fiber that never sleeps would keep all others from its thread.
                yield_now().await;
            }
            let mut spin = Spin::new(limit);
            loop {
                match answered.try_recv() {
                    Ok(answer) => {
                        caller.answered(true);
                        return answer;
                    }
                    Err(oneshot::error::TryRecvError::Closed) => return Err(Error::closed()),
                    Err(oneshot::error::TryRecvError::Empty) if spin.once() => {}
                    Err(oneshot::error::TryRecvError::Empty) => break,
                }
            }
        }
        let answer = heard(answered).await.unwrap_or_else(|_| Err(Error::closed()));
        caller.answered(false);
        answer
    }

    /// Ends the thread after its current batch, and drops queued jobs. Returns when the connection
    /// is closed.
    pub(crate) fn stop(&self) {
        self.tell_to_stop();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // The panic was printed already, and nothing is left to do.
            let _ = thread.join();
        }
    }

    /// As [`stop`](Self::stop), but does not block the caller's thread.
    pub(crate) async fn stopped(&self) {
        self.tell_to_stop();
        let gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(gone) = gone {
            let _ = heard(gone).await;
        }
        self.stop();
    }

    fn tell_to_stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(place) = self.last.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let (answer, _) = oneshot::channel();
            let nothing = |_: &Conn| Ok(());
            place.send(Box::new(Call::new("stop", Scope::Read, nothing, |()| (), answer)));
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Resources of a thread while it runs.
pub(crate) struct Held<K> {
    pub(crate) conn: Conn,
    /// The write-ahead log, on the thread that writes it.
    pub(crate) log: Option<Log>,
    /// Released after the connection.
    pub(crate) kept: K,
    /// Who sends the answers of large batches, if not the thread.
    pub(crate) answers_on: Option<Handle>,
}

/// Resolves when the thread has opened its connection.
pub(crate) type Opened = oneshot::Receiver<Result<()>>;

fn serve(shared: &Shared, writes: bool, mut jobs: mpsc::Receiver<Box<dyn Job>>) {
    let mut batch = Vec::new();
    while let Some(first) = next(&mut jobs, writes) {
        batch.push(first);
        while batch.len() < QUEUE {
            let Ok(next) = jobs.try_recv() else { break };
            batch.push(next);
        }
        // A caller may hold it, for one short job.
        let mut served = shared.served.lock().unwrap_or_else(PoisonError::into_inner);
        // Checked after the lock: the job that wakes the thread to stop may be among these, and
        // nothing else may come.
        if shared.stop.load(Ordering::Acquire) {
            return;
        }
        let Some(on) = served.as_mut() else { return };
        let taken = batch.len();
        let ends = on.ends_before(&mut batch);
        run_batch(on, &mut batch);
        shared.queued.0.fetch_sub(taken, Ordering::AcqRel);
        if ends {
            return;
        }
        // After the answers, so that no caller waits for this.
        on.tidy();
    }
}

/// The next job; a writer spins for it a little before it sleeps.
fn next(jobs: &mut mpsc::Receiver<Box<dyn Job>>, writes: bool) -> Option<Box<dyn Job>> {
    let mut spin = Spin::new(if writes { WRITER_SPIN } else { Duration::ZERO });
    loop {
        match jobs.try_recv() {
            Ok(job) => return Some(job),
            Err(mpsc::error::TryRecvError::Disconnected) => return None,
            Err(mpsc::error::TryRecvError::Empty) if writes && spin.once() => {}
            Err(mpsc::error::TryRecvError::Empty) => return jobs.blocking_recv(),
        }
    }
}
