//! Policies for an operation whose outcome is unknown.
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;

use crate::error::{Error, chain};
use crate::frame::fiber::Failure;
use crate::frame::run::Run;
use crate::frame::step_error::FromLibraryError;
use crate::future::BoxFuture;
use crate::guard::{guarded_future, guarded_text};
use crate::ops::op::Op;
use crate::runtime::race::race;

/// Policy for an operation whose outcome is unknown:
/// `step!("charge", effect, on_unknown = OnUnknown::Retry, |op| ..)`.
///
/// The outcome is unknown when the process died in the operation, or when it took longer than its
/// `timeout`. `T` is the value of the step and `E` the error type of the fiber; both are inferred.
///
/// Choose [`Retry`](OnUnknown::Retry) if the other side takes an idempotency key,
/// [`check`](OnUnknown::check) if it can be queried, [`Fail`](OnUnknown::Fail) if the program has
/// another way, and [`Park`](OnUnknown::Park), the default, if a person has to decide.
///
/// ```
/// # use forever_runtime as forever;
/// # struct Bank;
/// # impl Bank {
/// #     async fn pay(&self, _: &str) -> forever::Result<String> { Ok("receipt-1".into()) }
/// #     async fn find(&self, _: &str) -> forever::Result<Option<String>> { Ok(None) }
/// # }
/// use forever::fiber::FiberContext;
/// use forever::ops::OnUnknown;
///
/// async fn charge(ctx: &FiberContext, bank: &Bank) -> forever::Result<String> {
///     // `None` says that the payment was not made: then the body runs again.
///     let was_paid = OnUnknown::check(async |op| bank.find(op.id()).await);
///     ctx.op("charge", (), |op| async move { bank.pay(op.id()).await }).on_unknown(was_paid).await
/// }
/// ```
pub struct OnUnknown<'a, T, E>(pub(super) Policy<Check<'a, T, E>, E>);

/// The policy; `C` is the check that queries the other side.
pub(super) enum Policy<C, E> {
    Retry,
    Park,
    Fail(fn(Error) -> E),
    Check(C),
}

impl<C, E> Policy<C, E> {
    /// The policy without its check, which borrows.
    pub(super) fn alone(&self) -> Policy<(), E> {
        match self {
            Policy::Retry => Policy::Retry,
            Policy::Park => Policy::Park,
            Policy::Fail(make) => Policy::Fail(*make),
            Policy::Check(_) => Policy::Check(()),
        }
    }
}

/// Queries the other side about an operation.
pub(super) type Check<'a, T, E> = Box<dyn FnMut(Op) -> BoxFuture<'a, Result<Option<T>, E>> + Send + 'a>;

/// Runs a check, once no earlier worker can be in the middle of the operation: its request could
/// still arrive after a "no".
///
/// `Err` continues the sentence of why the outcome is unknown. A panic is one, too: what a check
/// does says nothing of the operation.
pub(super) async fn ask<T, E: Failure>(check: &mut Check<'_, T, E>, op: Op, run: &Run) -> Result<Option<T>, String> {
    match run.backend.earlier_lease_over().await {
        Ok(()) => answer_of(check, op, run).await,
        Err(closed) => Err(format!("and cannot be asked about: {closed}")),
    }
}

async fn answer_of<T, E: Failure>(check: &mut Check<'_, T, E>, op: Op, run: &Run) -> Result<Option<T>, String> {
    let limit = run.backend.check_timeout();
    match race(guarded_future(|| check(op)), run.backend.sleep(limit)).await {
        Some(Ok(answer)) => answer.map_err(|error| format!("and its check failed: {}", guarded_text(|| chain(&*error.into())))),
        Some(Err(why)) => Err(format!("and its check {why}")),
        None => Err(format!("and its check took longer than {limit:?}")),
    }
}

#[allow(non_upper_case_globals, reason = "they are what would be the variants of an enum, if a variant could have bounds of its own")]
impl<T, E> OnUnknown<'_, T, E> {
    /// Runs the body again under the same id. Right where the other side ignores an id that it has
    /// seen.
    pub const Retry: Self = OnUnknown(Policy::Retry);

    /// Parks the fiber until a person resolves the operation:
    /// [`Forever::resolve_op`](crate::Forever::resolve_op).
    pub const Park: Self = OnUnknown(Policy::Park);
}

#[allow(non_upper_case_globals, reason = "as above")]
impl<T, E: FromLibraryError> OnUnknown<'_, T, E> {
    /// Ends the step in an error of kind [`OpUnknown`](crate::ErrorKind::OpUnknown), which the
    /// program can handle. In the ledger the operation stays `started` until it is resolved.
    pub const Fail: Self = OnUnknown(Policy::Fail(E::__made_of));
}

impl<'a, T, E> OnUnknown<'a, T, E> {
    /// Queries the other side. `Some` is the result of the operation; `None` means that it was not
    /// executed, and the body runs.
    ///
    /// An error, a panic, or no answer within [`check_timeout`](crate::Builder::check_timeout) parks
    /// the fiber.
    ///
    /// ```ignore
    /// step!("charge", effect, on_unknown = OnUnknown::check(async |op| payments.find(op.id()).await), |op| ..)
    /// ```
    ///
    /// The closure returns an `Option<T>`, or a `Result<Option<T>, E>` with the fiber's error type.
    pub fn check<F, A>(mut check: impl FnMut(Op) -> F + Send + 'a) -> Self
    where
        F: Future<Output = A> + Send + 'a,
        A: Answer<T, E>,
        T: 'a,
        E: 'a,
    {
        OnUnknown(Policy::Check(Box::new(move |op| {
            let asked = check(op);
            Box::pin(async move { asked.await.answer() })
        })))
    }
}

impl<T, E> crate::frame::retry::Policy<E> for OnUnknown<'_, T, E> {}

impl<T, E> Default for OnUnknown<'_, T, E> {
    fn default() -> Self {
        OnUnknown::Park
    }
}

impl<T, E> fmt::Debug for OnUnknown<'_, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Policy::Retry => "Retry",
            Policy::Park => "Park",
            Policy::Fail(_) => "Fail",
            Policy::Check(_) => "check",
        })
    }
}

/// Return type of a check.
///
/// See [`OnUnknown`] for an example.
#[diagnostic::on_unimplemented(
    message = "a check gives `Option<{T}>` or `Result<Option<{T}>, {E}>`, not `{Self}`",
    label = "not an answer",
    note = "`Some` is what the operation gave, `None` says that it was not carried out"
)]
pub trait Answer<T, E> {
    #[doc(hidden)]
    fn answer(self) -> Result<Option<T>, E>;
}

impl<T, E> Answer<T, E> for Option<T> {
    fn answer(self) -> Result<Option<T>, E> {
        Ok(self)
    }
}

impl<T, E> Answer<T, E> for Result<Option<T>, E> {
    fn answer(self) -> Result<Option<T>, E> {
        self
    }
}

/// Finds out whether an error type can be made of the library's: `(&Probe::<E>::new()).made()`,
/// where both traits below are in scope and `E` is known.
#[doc(hidden)]
#[derive(Debug)]
pub struct Probe<E>(PhantomData<fn() -> E>);

impl<E> Probe<E> {
    #[allow(clippy::new_without_default, reason = "only generated code makes one")]
    pub const fn new() -> Self {
        Probe(PhantomData)
    }
}

/// Implemented where it can; method lookup finds it first.
#[doc(hidden)]
pub trait Made<E> {
    fn made(&self) -> Option<fn(Error) -> E>;
}

impl<E: From<Error>> Made<E> for Probe<E> {
    fn made(&self) -> Option<fn(Error) -> E> {
        Some(<E as From<Error>>::from)
    }
}

/// Implemented otherwise; method lookup finds it second, because it takes one more reference.
#[doc(hidden)]
pub trait NotMade<E> {
    fn made(&self) -> Option<fn(Error) -> E>;
}

impl<E> NotMade<E> for &Probe<E> {
    fn made(&self) -> Option<fn(Error) -> E> {
        None
    }
}
