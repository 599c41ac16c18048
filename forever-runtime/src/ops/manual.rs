//! Manual operations, in code that is no step:
//! `ctx.op("charge", &order.id, |op| async move { .. })`.
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use serde::Serialize;

use crate::error::{Error, ErrorKind, Result};
use crate::exact;
use crate::frame::context::FiberContext;
use crate::frame::fiber::{Failure, Value};
use crate::frame::run::Run;
use crate::frame::saved::unreadable;
use crate::guard::guarded;
use crate::ops::effect::key;
use crate::ops::known::unknown;
use crate::ops::on_unknown::{OnUnknown, Policy, ask};
use crate::ops::op::{Op, interrupt};
use crate::ops::under_way::UnderWay;
use crate::runtime::exit::Exit;
use crate::store::{OpKind, OpRecord, OpState};

/// Builder of a manual operation; made by [`FiberContext::op`] and
/// [`RecoveredFiber::op`](crate::agent::RecoveredFiber::op). `.await` runs it, or returns its stored
/// result.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::fiber::FiberContext;
/// use forever::ops::OnUnknown;
///
/// # async fn pay(_: &str, _: u64) -> forever::Result<String> { Ok("receipt-1".into()) }
/// async fn charge(ctx: &FiberContext, cents: u64) -> forever::Result<String> {
///     // The bank knows the key, so that a second request pays nothing.
///     ctx.op("charge", cents, |op| async move { pay(op.idempotency_key(), cents).await })
///         .on_unknown(OnUnknown::Retry)
///         .await
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), forever::BoxError> {
/// # let forever = forever::Forever::builder().in_memory().open().await?;
/// # let job = |ctx: FiberContext| async move { charge(&ctx, 500).await };
/// # assert_eq!(forever.spawn_closure("job", job).await?, "receipt-1");
/// # forever.close().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "an operation is carried out when this is awaited"]
pub struct OpCall<'a, F, T, E> {
    run: Arc<Run>,
    /// The stored name of the fiber's function.
    function: Arc<str>,
    kind: String,
    key: Result<String, String>,
    body: F,
    on_unknown: OnUnknown<'a, T, E>,
}

impl FiberContext {
    /// Runs an operation once: the ledger of `effect` steps, for closure fibers and for code
    /// between steps.
    ///
    /// `kind` and `key` identify the operation: the same kind with an equal key, anywhere in this
    /// fiber, is the same operation. Once it has completed, its result is returned and the body
    /// does not run again; after an error the body may run again. Its id is made of the fiber's id,
    /// the kind and the key. The start is stored before the body runs, and the result after it: two
    /// commits.
    ///
    /// ```
    /// # use forever_runtime as forever;
    /// # async fn pay(_: &str, _: u64) -> forever::Result<String> { Ok("receipt".into()) }
    /// async fn checkout(ctx: &forever::fiber::FiberContext, order: u32) -> forever::Result<String> {
    ///     ctx.op("charge", order, |op| async move { pay(op.idempotency_key(), 100).await }).await
    /// }
    /// # let _ = checkout;
    /// ```
    ///
    /// [`OpCall::on_unknown`] decides what happens when the outcome is unknown; by default the
    /// fiber is parked. A closure fiber cannot resume after a crash: its agent's recovery hook uses
    /// the same ledger, through [`RecoveredFiber::op`](crate::agent::RecoveredFiber::op).
    ///
    /// # Errors
    /// The body's, which is stored with the operation. Those of the library, converted to an `E`:
    /// of kind [`Value`](ErrorKind::Value) when the key or the result cannot be saved, or the
    /// stored result cannot be read; of kind [`Conflict`](ErrorKind::Conflict) when the operation
    /// is under way. When the store fails, a `#[fiber]` function is interrupted, and a closure
    /// fiber gets the error, of kind [`Store`](ErrorKind::Store). Either is interrupted when it
    /// begins an operation while the runtime closes, once those that are under way have ended.
    pub fn op<'a, F, B, T, E>(&self, kind: impl Into<String>, key: impl Serialize, body: F) -> OpCall<'a, F, T, E>
    where
        F: FnOnce(Op) -> B,
        B: Future<Output = Result<T, E>>,
    {
        OpCall::new(Arc::clone(&self.run), Arc::clone(&self.name), kind.into(), &key, body)
    }
}

impl<'a, F, T, E> OpCall<'a, F, T, E> {
    pub(crate) fn new(run: Arc<Run>, function: Arc<str>, kind: String, by: &impl Serialize, body: F) -> Self {
        OpCall { run, function, kind, key: key(by), body, on_unknown: OnUnknown::Park }
    }

    /// Policy for an operation that an earlier run began and whose outcome is unknown. Defaults to
    /// [`OnUnknown::Park`].
    pub fn on_unknown(mut self, policy: OnUnknown<'a, T, E>) -> Self {
        self.on_unknown = policy;
        self
    }
}

impl<'a, F, B, T, E> IntoFuture for OpCall<'a, F, T, E>
where
    F: FnOnce(Op) -> B + Send + 'a,
    B: Future<Output = Result<T, E>> + Send + 'a,
    T: Value,
    E: Failure + From<Error> + fmt::Display + Send + 'a,
{
    type Output = Result<T, E>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.carry_out())
    }
}

impl<F, B, T, E> OpCall<'_, F, T, E>
where
    F: FnOnce(Op) -> B,
    B: Future<Output = Result<T, E>>,
    T: Value,
    E: Failure + From<Error> + fmt::Display,
{
    async fn carry_out(self) -> Result<T, E> {
        let OpCall { run, function, kind, key, body, on_unknown } = self;
        let key = key.map_err(|why| Error::new(ErrorKind::Value, format!("key of operation `{kind}` cannot be saved: {why}")))?;
        let ops = &run.ops;
        let fresh = ops.by_hand(&function, &kind, key);
        let Some(under_way) = UnderWay::begin(ops, &fresh.id, OpKind::ByHand) else {
            let (id, key) = (&fresh.id, fresh.key.as_deref().unwrap_or_default());
            return Err(Error::new(ErrorKind::Conflict, format!("operation `{kind}` with key {key} ({id}) is under way already")).into());
        };
        let record = match stored(&run, run.backend.ledger().load(&fresh.id).await).await? {
            None => fresh,
            Some(record) if record.state == OpState::Completed => return read(&record).map_err(E::from),
            // Resolved as failed: the error that the person gave is the result.
            Some(OpRecord { state: OpState::Failed, resolved: true, outcome, id, .. }) => {
                let why = outcome.unwrap_or_default();
                return Err(Error::new(ErrorKind::OpFailed, format!("operation `{id}` of kind `{kind}` has failed: {why}")).into());
            }
            Some(record) if record.state == OpState::Started => match decide(&run, record, on_unknown).await? {
                Decided::Value(value) => return Ok(value),
                Decided::Run(record) => *record,
                Decided::Unknown(error) if run.is_interrupted() => return Err(cut_off(&run, under_way, error.into()).await),
                Decided::Unknown(error) if run.backend.parks() => run.halt(Exit::parked(run.secrets.text(error.to_string()))).await,
                Decided::Unknown(error) => return Err(error.into()),
            },
            Some(record) => OpRecord { state: OpState::Started, outcome: None, resolved: false, ..record },
        };
        if run.backend.is_told_to_stop() {
            // An operation that begins now would be interrupted, and then be in doubt. A hook is
            // called again; a fiber does not fail because its runtime closes.
            return Err(cut_off(&run, under_way, Exit::told_to_stop().into()).await);
        }
        save(&run, record.clone()).await?;
        let op = Op::of(Arc::clone(&run), "", record);
        match under_way.carry_out(body(op.clone())).await {
            Ok(value) => {
                let ended = completed(op.record(), &value)?;
                save(&run, ended).await?;
                Ok(value)
            }
            // The record stays as it is stored: started, outcome unknown.
            Err(error) if op.take_unknown() => Err(if run.is_interrupted() { cut_off(&run, under_way, error).await } else { error }),
            Err(error) if run.is_interrupted() => {
                save(&run, OpRecord { state: OpState::NotExecuted, ..op.record() }).await?;
                Err(cut_off(&run, under_way, error).await)
            }
            Err(error) => {
                let record = op.record();
                let failed = record.failed.saturating_add(1);
                let ended = OpRecord { state: OpState::Failed, outcome: Some(format!("{error:#}")), stash: None, failed, ..record };
                save(&run, ended).await?;
                Err(error)
            }
        }
    }
}

/// Interrupts the fiber at an operation that is cut off because its process ends, or gives a hook
/// its error. The operations that the code runs beside it end first: either would drop them.
async fn cut_off<E>(run: &Run, under_way: UnderWay, error: E) -> E {
    under_way.others_over().await;
    if run.backend.parks() {
        run.interrupt::<()>().await;
    }
    error
}

enum Decided<T> {
    Value(T),
    Run(Box<OpRecord>),
    /// Whether it was executed remains unknown.
    Unknown(Error),
}

/// Decides about an operation that an earlier run began.
async fn decide<T: Value, E: Failure + From<Error>>(
    run: &Arc<Run>,
    record: OpRecord,
    policy: OnUnknown<'_, T, E>,
) -> Result<Decided<T>, E> {
    let why = match policy.0 {
        Policy::Retry => return Ok(Decided::Run(Box::new(record))),
        Policy::Fail(make) => return Err(make(unknown(&record, "was interrupted"))),
        Policy::Park => "was interrupted".to_owned(),
        Policy::Check(mut check) => match ask(&mut check, Op::of(Arc::clone(run), "", record.clone()), run).await {
            Ok(Some(value)) => {
                save(run, completed(record, &value)?).await?;
                return Ok(Decided::Value(value));
            }
            Ok(None) => return Ok(Decided::Run(Box::new(record))),
            Err(trouble) => format!("was interrupted, {trouble}"),
        },
    };
    Ok(Decided::Unknown(unknown(&record, &why)))
}

async fn save(run: &Run, record: OpRecord) -> Result<()> {
    stored(run, run.backend.ledger().save(record).await).await
}

/// Handles a result of the store. When the store fails, a fiber that can resume is interrupted, as
/// at a checkpoint; other code gets the error.
async fn stored<T>(run: &Run, came: Result<T>) -> Result<T> {
    match came {
        Err(error) if run.backend.resumes() => interrupt(run, error).await,
        came => came,
    }
}

/// The record of an operation that completed with `value`.
fn completed<T: Value>(record: OpRecord, value: &T) -> Result<OpRecord> {
    let text = guarded(|| exact::to_string(value).map_err(|why| why.to_string()));
    let unsaved = |why| Error::new(ErrorKind::Value, format!("the result of operation `{}` cannot be saved: {why}", record.step));
    let outcome = Some(text.map_err(unsaved)?);
    Ok(OpRecord { state: OpState::Completed, outcome, stash: None, failed: 0, ..record })
}

fn read<T: Value>(record: &OpRecord) -> Result<T> {
    let text = record.outcome.as_deref().unwrap_or_default();
    guarded(|| exact::from_str(text).map_err(|why| why.to_string())).map_err(|why| {
        let OpRecord { id, step, .. } = record;
        Error::new(ErrorKind::Value, format!("the stored result of operation `{step}` ({id}) {}", unreadable::<T>(why)))
    })
}

impl<F, T, E> fmt::Debug for OpCall<'_, F, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpCall")
            .field("kind", &self.kind)
            .field("key", &self.key)
            .field("on_unknown", &self.on_unknown)
            .finish_non_exhaustive()
    }
}
