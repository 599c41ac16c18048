//! Steps that are effects: stored as started before the body runs, and as completed with the
//! checkpoint.
//!
//! Generated code loops: [`Effect::next`] returns the value if there is one already, and
//! [`Effect::run`] makes an attempt. The outcome is unknown after a crash in the body, and after a
//! timeout, which drops the body in the middle. Then `next` applies [`OnUnknown`]. An error of the
//! body itself is a known outcome: it is retried or leaves the step.
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::Serialize;
use tracing::warn;

use crate::error::{Error, ErrorKind};
use crate::exact;
use crate::frame::activation::Frame;
use crate::frame::codec::Codec;
use crate::frame::fiber::Failure;
use crate::frame::pause::Pauses;
use crate::frame::retry::Retry;
use crate::frame::run::Run;
use crate::frame::saved::unreadable;
use crate::frame::step::{Attempt, Attempts};
use crate::frame::step_error::{FromLibraryError, Make, StepError, Trouble};
use crate::guard::guarded;
use crate::ops::known::{Place, may_have_executed, unknown};
use crate::ops::on_unknown::{OnUnknown, Policy, ask};
use crate::ops::op::Op;
use crate::ops::under_way::UnderWay;
use crate::runtime::events::EventKind;
use crate::runtime::exit::Exit;
use crate::runtime::race::race;
use crate::store::{OpKind, OpRecord, OpState};

/// A step that is an effect, and its attempts.
#[doc(hidden)]
pub struct Effect<E> {
    attempts: Attempts<E>,
    /// What the operation's last record says of its outcome.
    standing: Standing<E>,
    limit: Option<Duration>,
    make: Option<Make<E>>,
    function: &'static str,
    policy: Policy<(), E>,
    in_branch: bool,
    /// While an attempt is under way whose body has not begun.
    under_way: Option<UnderWay>,
    /// Time at which the next attempt is due, if the fiber is to leave memory until then.
    pause: Option<i64>,
    /// Whether it has not left memory, and waits there.
    stays: bool,
    /// Number of the last attempt that this run has made, from 1.
    tried: Option<u32>,
}

enum Standing<E> {
    /// It was not executed: it is stored as started, and the body begins.
    New,
    /// As `New`, after a failed attempt of this run.
    Failed,
    /// In doubt: why the outcome is unknown, and the error of an attempt of this run.
    Unknown(String, Option<Trouble<E>>),
    /// It is stored as started, and was not executed.
    Ready,
    /// Its outcome is stored.
    Ended,
}

/// What a step does next.
#[doc(hidden)]
#[derive(Debug)]
pub enum Next<T, E> {
    /// Ends with this value, which is known.
    Value(T),
    /// Ends with this error.
    Error(E),
    /// Runs its body.
    Run,
}

/// A timeout, and how its error becomes one of the fiber's. Made apart from the effect, so that the
/// compiler reports an error type for which there is no such way at the timeout.
#[doc(hidden)]
pub fn timeout<E: FromLibraryError>(limit: Duration) -> (Duration, fn(Error) -> E) {
    (limit, E::__made_of)
}

/// A step's value, of the type that its `on_unknown` is for.
///
/// See [`bounds`](crate::bounds) for when a program names it.
#[diagnostic::on_unimplemented(
    message = "this `on_unknown` is for a step that gives `{T}`, but the step gives `{Self}`",
    label = "for a step that gives `{T}`",
    note = "`OnUnknown<T, E>` has the type of the step's value and the error type of the fiber; both are inferred where they are not written"
)]
pub trait Gives<T> {
    #[doc(hidden)]
    fn of(value: T) -> Self;
}

#[diagnostic::do_not_recommend]
impl<T> Gives<T> for T {
    fn of(value: T) -> T {
        value
    }
}

/// A value that is part of an operation's id.
///
/// See [`bounds`](crate::bounds) for when a program names it.
#[diagnostic::on_unimplemented(
    message = "the `key` of an effect is part of what it is stored by, but `{Self}` cannot be saved",
    label = "cannot be saved",
    note = "derive `serde::Serialize` for `{Self}`, or give the parts that tell one operation from another: `key = (&order.id, cents)`"
)]
pub trait Key {
    /// The canonical text of a key, for an operation's id.
    #[doc(hidden)]
    fn __key(&self) -> Result<String, String>;
}

#[diagnostic::do_not_recommend]
impl<K: Serialize + ?Sized> Key for K {
    fn __key(&self) -> Result<String, String> {
        guarded(|| exact::to_canonical(self).map_err(|why| why.to_string()))
    }
}

/// The canonical text of a key, for an operation's id.
pub(crate) fn key<K: Key + ?Sized>(key: &K) -> Result<String, String> {
    key.__key()
}

impl Frame {
    /// Begins a step that is an effect, or resumes it.
    pub async fn effect<E>(
        &self,
        cut: u32,
        key: Option<Result<String, String>>,
        retry: Option<Retry<E>>,
        make: Option<Make<E>>,
    ) -> Effect<E> {
        let (run, machine) = (&self.run, self.machine);
        let cut = &machine.cuts[cut as usize];
        let number = run.checkpoints.load(Ordering::Relaxed);
        let place = |key| Place {
            kind: OpKind::Effect,
            machine,
            step: cut.name.into(),
            was: cut.was.into_iter().map(Into::into).collect(),
            steps: None,
            key,
            number,
        };
        Effect::begun(run, cut.name, place, key, retry, make).await
    }
}

impl<E> Effect<E> {
    /// The effect at a place that the key is part of.
    pub(crate) async fn begun(
        run: &Arc<Run>,
        step: &'static str,
        place: impl FnOnce(Option<String>) -> Place,
        key: Option<Result<String, String>>,
        retry: Option<Retry<E>>,
        make: Option<Make<E>>,
    ) -> Effect<E> {
        let key = match key.transpose() {
            Ok(key) => key,
            Err(why) => run.halt(Exit::failed(format!("key of step `{step}` cannot be saved: {why}"))).await,
        };
        let place = place(key);
        let function = place.machine.name;
        let (record, doubtful) = match run.ops.of_effect(place) {
            Ok(found) => found,
            Err(why) => run.halt(Exit::parked(run.secrets.text(why))).await,
        };
        let standing = match record.state {
            OpState::Started if doubtful => Standing::Unknown("was interrupted".to_owned(), None),
            // A person resolved it, or the fiber failed in the step, so that no checkpoint
            // followed.
            OpState::Completed if doubtful => Standing::Ended,
            OpState::Failed if doubtful && record.resolved => Standing::Ended,
            _ => Standing::New,
        };
        let op = Op::of(Arc::clone(run), step, record);
        Effect {
            attempts: Attempts::new(op, retry),
            standing,
            limit: None,
            make,
            function,
            policy: Policy::Park,
            in_branch: false,
            under_way: None,
            pause: None,
            stays: false,
            tried: None,
        }
    }

    /// Marks a branch of a `steps!`. Its outcome is stored at once, because the next checkpoint
    /// comes only after all branches.
    pub(crate) fn in_branch(self, pauses: Pauses) -> Self {
        Effect { in_branch: true, attempts: self.attempts.in_branch(pauses), ..self }
    }

    /// When the next attempt is due, if the fiber leaves memory until then. The body does not run
    /// then, and [`next`](Effect::next) is asked again.
    pub fn pauses_until(&mut self) -> Option<i64> {
        let until = self.pause.take();
        self.stays |= until.is_some();
        until
    }

    /// Sets the timeout of each attempt.
    pub fn within(mut self, (limit, make): (Duration, fn(Error) -> E)) -> Self {
        self.make = Some(make);
        self.within_caught(limit)
    }

    /// Sets the timeout of each attempt of a step with `catch`.
    pub fn within_caught(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// The op of the next attempt.
    pub fn op(&self) -> Op {
        self.attempts.op()
    }

    /// Returns what the step does next; never ready if the step parks or interrupts the fiber.
    pub async fn next<T>(&mut self, on_unknown: &mut OnUnknown<'_, T, E>, codec: Codec<T>) -> Next<T, E>
    where
        E: Failure + fmt::Display,
    {
        match self.decide(on_unknown, codec).await {
            Next::Value(value) => Next::Value(value),
            Next::Run => Next::Run,
            Next::Error(trouble) => Next::Error(self.own(trouble).await),
        }
    }

    /// As [`next`](Effect::next), for a step with `catch`.
    pub async fn next_caught<T>(&mut self, on_unknown: &mut OnUnknown<'_, T, E>, codec: Codec<T>) -> Next<T, StepError>
    where
        E: Failure + fmt::Display,
    {
        match self.decide(on_unknown, codec).await {
            Next::Value(value) => Next::Value(value),
            Next::Run => Next::Run,
            Next::Error(trouble) => Next::Error(self.caught(trouble)),
        }
    }

    async fn decide<T>(&mut self, on_unknown: &mut OnUnknown<'_, T, E>, codec: Codec<T>) -> Next<T, Trouble<E>>
    where
        E: Failure + fmt::Display,
    {
        let next = self.proceed(on_unknown, codec).await;
        self.run_of().ops.has_decided(self.op().id());
        next
    }

    async fn proceed<T>(&mut self, on_unknown: &mut OnUnknown<'_, T, E>, codec: Codec<T>) -> Next<T, Trouble<E>>
    where
        E: Failure + fmt::Display,
    {
        self.policy = on_unknown.0.alone();
        if let Policy::Fail(make) = self.policy {
            self.make = Some(make);
        }
        let (why, trouble) = match std::mem::replace(&mut self.standing, Standing::Ready) {
            Standing::Ready => return Next::Run,
            standing @ (Standing::Failed | Standing::New) if self.pauses() => {
                self.standing = standing;
                return Next::Run;
            }
            Standing::Failed => {
                self.start().await;
                return Next::Run;
            }
            Standing::New => {
                self.start().await;
                return self.begin();
            }
            Standing::Ended => return self.ended(codec).await,
            Standing::Unknown(why, trouble) => (why, trouble),
        };
        let record = self.op().record();
        self.run_of().backend.gives(self.function, self.op().step(), codec.check());
        match &mut on_unknown.0 {
            Policy::Retry => self.again(why, trouble, OpState::Started).await,
            Policy::Park => self.park(may_have_executed(&record, &why)).await,
            Policy::Fail(_) => Next::Error(self.fail(&record, &why)),
            Policy::Check(check) => {
                let run = self.run_of();
                match ask(check, self.op(), &run).await {
                    Ok(Some(value)) => match self.done(&value, codec).await {
                        Ok(()) => Next::Value(value),
                        Err(why) => run.halt(Exit::failed(why)).await,
                    },
                    Ok(None) => self.again(why, trouble, OpState::NotExecuted).await,
                    Err(cause) => {
                        run.error_counts().await;
                        self.park(may_have_executed(&record, &format!("{why}, {cause}"))).await
                    }
                }
            }
        }
    }

    /// Makes an attempt. At its timeout the body is dropped, and the outcome is unknown.
    pub async fn run<T>(&mut self, body: impl Future<Output = Result<T, E>>, codec: Codec<T>) -> Attempt<T, E>
    where
        E: fmt::Display,
    {
        match self.attempt(body, codec).await {
            Attempt::Done(value) => Attempt::Done(value),
            Attempt::Again => Attempt::Again,
            Attempt::Failed(trouble) => Attempt::Failed(self.own(trouble).await),
        }
    }

    /// As [`run`](Effect::run), for a step with `catch`.
    pub async fn run_caught<T>(&mut self, body: impl Future<Output = Result<T, E>>, codec: Codec<T>) -> Attempt<T, StepError>
    where
        E: Failure + fmt::Display,
    {
        match self.attempt(body, codec).await {
            Attempt::Done(value) => Attempt::Done(value),
            Attempt::Again => Attempt::Again,
            Attempt::Failed(trouble) => Attempt::Failed(self.caught(trouble)),
        }
    }

    async fn attempt<T>(&mut self, body: impl Future<Output = Result<T, E>>, codec: Codec<T>) -> Attempt<T, Trouble<E>>
    where
        E: fmt::Display,
    {
        let under_way = self.under_way.take().or_else(|| self.begins());
        self.op().begin_attempt();
        self.tried = Some(self.op().attempt());
        let result = match self.limit {
            None => body.await,
            Some(limit) => {
                let over = self.run_of().backend.sleep(limit);
                let Some(result) = race(body, over).await else {
                    drop(under_way);
                    self.op().run().error_counts().await;
                    let why = format!("took longer than {limit:?}");
                    let error = Error::new(ErrorKind::Timeout, format!("step `{}` {why}", self.op().step()));
                    self.standing = Standing::Unknown(why, Some(Trouble::Library(error)));
                    return Attempt::Again;
                };
                result
            }
        };
        match result {
            Ok(value) => match self.done(&value, codec).await {
                Ok(()) => Attempt::Done(value),
                Err(why) => self.run_of().halt(Exit::failed(why)).await,
            },
            Err(error) if self.op().take_unknown() => {
                drop(under_way);
                self.op().run().error_counts().await;
                self.standing = Standing::Unknown(self.op().run().unknown(&error), Some(Trouble::Body(error)));
                Attempt::Again
            }
            Err(_) if self.op().run().is_interrupted() => self.not_executed(under_way).await,
            Err(error) => {
                if let Some(trouble) = self.failed(Trouble::Body(error), OpState::NotExecuted).await {
                    return Attempt::Failed(trouble);
                }
                self.standing = Standing::Failed;
                Attempt::Again
            }
        }
    }

    /// The error of a step of one attempt whose outcome the body does not know. A `check` does not
    /// run here, because the body may have moved what it captures: the fiber is interrupted, and
    /// resumes from its last snapshot.
    pub async fn unsure(&mut self) -> E
    where
        E: fmt::Display,
    {
        let trouble = self.undecided().await;
        self.own(trouble).await
    }

    /// As [`unsure`](Effect::unsure), for a step with `catch`.
    pub async fn unsure_caught(&mut self) -> StepError
    where
        E: Failure + fmt::Display,
    {
        let trouble = self.undecided().await;
        self.caught(trouble)
    }

    async fn undecided(&mut self) -> Trouble<E>
    where
        E: fmt::Display,
    {
        let Standing::Unknown(why, Some(trouble)) = std::mem::replace(&mut self.standing, Standing::Ready) else {
            unreachable!("the body has said so, or has taken too long")
        };
        let record = self.op().record();
        match self.policy {
            Policy::Retry => {
                self.settle(OpState::Failed, format!("{trouble:#}")).await;
                trouble
            }
            Policy::Park => self.park(may_have_executed(&record, &why)).await,
            Policy::Fail(_) => self.fail(&record, &why),
            Policy::Check(()) => self.run_of().halt(Exit::interrupted(unknown(&record, &why))).await,
        }
    }

    /// The error of an operation that is in doubt. It stays in doubt if the program comes to it
    /// again.
    fn fail(&self, record: &OpRecord, why: &str) -> Trouble<E> {
        self.run_of().ops.doubt(&record.id);
        Trouble::Library(unknown(record, why))
    }

    /// The error as one of the fiber's type. The fiber fails where that type cannot be made of an
    /// error of the library.
    async fn own(&self, trouble: Trouble<E>) -> E {
        match trouble.own(self.make) {
            Ok(error) => error,
            Err(error) => self.run_of().halt(Exit::failed(error.to_string())).await,
        }
    }

    fn caught(&self, trouble: Trouble<E>) -> StepError
    where
        E: Failure,
    {
        trouble.caught(self.tried.unwrap_or(self.op().attempt()))
    }

    /// Stores that another attempt is to come, or returns the error if there is none. `known` is
    /// what is known of the operation until then.
    async fn failed(&mut self, trouble: Trouble<E>, known: OpState) -> Option<Trouble<E>>
    where
        E: fmt::Display,
    {
        let wait = match &trouble {
            Trouble::Body(error) => self.attempts.wait_after(Some(error)),
            Trouble::Library(error) => {
                let error = self.make.map(|make| make(Error::new(error.kind(), error.to_string())));
                self.attempts.wait_after(error.as_ref())
            }
        };
        let Some(wait) = wait else {
            self.settle(OpState::Failed, format!("{trouble:#}")).await;
            return Some(trouble);
        };
        self.attempts.again_after(wait, format!("{trouble:#}"), known).await;
        None
    }

    /// Stores that the body has ended in an error because the process ends, and interrupts the
    /// fiber: the body runs again under the same id.
    async fn not_executed<T>(&self, under_way: Option<UnderWay>) -> T {
        self.op().shared.write(|op| op.state = OpState::NotExecuted).await;
        drop(under_way);
        self.run_of().interrupt().await
    }

    /// Runs the body again under the same id: it was not executed, or the other side recognizes the
    /// id. If an attempt of this run has failed, that uses up a retry; after an attempt of an
    /// earlier run the body runs as soon as it is due.
    async fn again<T>(&mut self, why: String, trouble: Option<Trouble<E>>, known: OpState) -> Next<T, Trouble<E>>
    where
        E: fmt::Display,
    {
        let Some(trouble) = trouble else {
            if self.pauses() {
                self.standing = Standing::Unknown(why, None);
                return Next::Run;
            }
            self.due().await;
            return self.begin();
        };
        if let Some(trouble) = self.failed(trouble, known).await {
            return Next::Error(trouble);
        }
        if self.pauses() {
            self.standing = Standing::Failed;
            return Next::Run;
        }
        self.start().await;
        Next::Run
    }

    /// Whether the fiber leaves memory before the next attempt. A branch waits, and its `steps!`
    /// leaves memory.
    fn pauses(&mut self) -> bool {
        if !self.stays && !self.in_branch {
            self.pause = self.attempts.pauses_until();
        }
        self.pause.is_some()
    }

    /// Begins an attempt.
    fn begin<T>(&self) -> Next<T, Trouble<E>> {
        let op = self.op();
        op.shared.run.backend.tell(EventKind::StepStarted { step: op.step().into() });
        Next::Run
    }

    /// The stored outcome.
    async fn ended<T>(&mut self, codec: Codec<T>) -> Next<T, Trouble<E>> {
        let record = self.op().record();
        let text = record.outcome.clone().unwrap_or_default();
        let run = self.run_of();
        if record.state == OpState::Failed {
            run.ops.settle(&record);
            let message = format!("operation `{}` of step `{}` has failed: {text}", record.id, record.step);
            return Next::Error(Trouble::Library(Error::new(ErrorKind::OpFailed, message)));
        }
        let read = guarded(|| codec.restore(&text));
        match read {
            Ok(value) => {
                run.ops.settle(&record);
                Next::Value(value)
            }
            Err(why) => {
                // The person who resolved it can do so again, with a value that fits.
                self.op().shared.write(|op| (op.state, op.outcome, op.resolved) = (OpState::Started, None, false)).await;
                let what = if record.resolved { "was resolved with" } else { "has given" };
                let why = format!("{what} a value that {}", unreadable::<T>(why));
                self.park(may_have_executed(&record, &why)).await
            }
        }
    }

    /// Waits until the next attempt is due; never ready if the runtime closes.
    async fn due(&self) {
        let run = self.run_of();
        // Others need not wait for it.
        run.ops.has_decided(self.op().id());
        self.attempts.is_due().await;
        if run.backend.is_told_to_stop() {
            // An effect that begins now would be interrupted, and then be in doubt.
            run.interrupt::<()>().await;
        }
    }

    /// Marks it as under way.
    fn begins(&self) -> Option<UnderWay> {
        UnderWay::begin(&self.run_of().ops, self.op().id(), OpKind::Effect)
    }

    /// Stores that an attempt begins, when it is due; never ready if that cannot be stored, or the
    /// runtime closes.
    async fn start(&mut self) {
        self.due().await;
        self.under_way = self.begins();
        self.op().shared.write(|op| (op.state, op.outcome, op.resolved) = (OpState::Started, None, false)).await;
    }

    /// Settles the operation with a value, which is stored with the checkpoint.
    async fn done<T>(&self, value: &T, codec: Codec<T>) -> Result<(), String> {
        let text = guarded(|| codec.save(value));
        let text = text.map_err(|why| format!("the value of step `{}` cannot be saved: {why}", self.op().step()))?;
        self.settle(OpState::Completed, text).await;
        Ok(())
    }

    async fn settle(&self, state: OpState, outcome: String) {
        let op = self.op();
        if self.in_branch {
            return op
                .shared
                .write(|op| (op.state, op.outcome, op.failed, op.retry, op.stash) = (state, Some(outcome), 0, None, None))
                .await;
        }
        let record = OpRecord { state, outcome: Some(outcome), failed: 0, retry: None, stash: None, ..op.record() };
        op.shared.run.ops.settle(&record);
    }

    async fn park<T>(&self, why: String) -> T {
        warn!(step = self.op().step(), op = self.op().id(), "{why}");
        self.run_of().halt(Exit::parked(why)).await
    }

    fn run_of(&self) -> Arc<Run> {
        Arc::clone(&self.op().shared.run)
    }
}

impl<E> fmt::Debug for Effect<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Effect").field(&self.op()).finish()
    }
}
