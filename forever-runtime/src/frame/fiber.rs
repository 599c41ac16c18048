//! Fiber functions as the runtime sees them: the traits that `#[fiber]` implements.
use std::future::Future;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::frame::activation::Frame;
use crate::frame::arguments::Arguments;
use crate::frame::context::FiberContext;
use crate::frame::locals::Unreadable;
use crate::frame::machine::Machine;
use crate::frame::resources::Needs;
use crate::frame::saved::ReturnValue;

/// A durable function: what `#[fiber]` implements for the type that carries its name.
///
/// A value of the type is an invocation, the arguments of one run.
///
/// Programs name it in code for any function:
///
/// ```
/// # use forever_runtime as forever;
/// use forever::Forever;
/// use forever::fiber::Fiber;
///
/// /// A runtime to test one function: `runtime_of::<order>()`.
/// async fn runtime_of<F: Fiber>() -> forever::Result<Forever> {
///     Forever::builder().in_memory().fiber::<F>().open().await
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a fiber",
    label = "not a fiber",
    note = "make the function a `#[fiber]`, or `.await` it in a `step!`"
)]
pub trait Fiber: Send + Sized + 'static {
    /// Type of the value in the function's `Ok`; it is stored.
    type Output: ReturnValue;
    /// Type of the error in its `Err`; its text is stored.
    type Error: Failure;

    #[doc(hidden)]
    const MACHINE: &'static Machine;

    #[doc(hidden)]
    fn needs(needs: &mut Needs<'_>);

    /// Saves the arguments, or reads an invocation. It is one function so that a type that cannot
    /// be saved is one error.
    #[doc(hidden)]
    fn arguments(access: Arguments<'_, '_, Self>) -> Result<Option<Self>, Unreadable>;

    /// Runs from the start (`Some`) or from the frame's resume target (`None`).
    #[doc(hidden)]
    fn drive<'run>(
        start: Option<Self>,
        ctx: &'run FiberContext,
        frame: &'run mut Frame,
    ) -> impl Future<Output = Result<Self::Output, Self::Error>> + Send + 'run;
}

/// A value that is stored whole: serde can write and read it, and it is `Send`.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::bounds::Value;
/// use forever::fiber::{FiberContext, FiberError};
///
/// /// Runs a future as a fiber, for its row, its events and its place in the inspector.
/// async fn visible<T: Value>(
///     forever: &forever::Forever,
///     work: impl Future<Output = forever::Result<T>> + Send + 'static,
/// ) -> Result<T, FiberError> {
///     forever.spawn_closure("work", |_: FiberContext| work).await
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "the value is stored, but its type `{Self}` cannot be saved",
    label = "cannot be saved",
    note = "derive `serde::Serialize` and `serde::Deserialize` for it; it must also be `Send` and hold no references"
)]
pub trait Value: Serialize + DeserializeOwned + Send + 'static {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned + Send + 'static> Value for T {}

/// An invocation that can be awaited: there is none.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{F}` is a fiber, which does not run by `.await`",
    label = "the invocation of a fiber",
    note = "in another fiber: `call!({F}(..))?` runs it inline, `spawn!({F}(..))` starts it by itself; elsewhere: `forever.run({F}(..)).await?`"
)]
pub trait Awaitable<'never, F> {}

/// An error that a fiber can return: its text can be stored.
#[diagnostic::on_unimplemented(
    message = "the error of a fiber is stored as text, but `{Self}` is no error",
    label = "not an error",
    note = "implement `std::error::Error` for it (it must be `Send` and `Sync`), or return `anyhow::Result<..>`"
)]
pub trait Failure: Into<Box<dyn std::error::Error + Send + Sync>> + Send {}

#[diagnostic::do_not_recommend]
impl<E: Into<Box<dyn std::error::Error + Send + Sync>> + Send> Failure for E {}

/// Implemented for `Result` alone, to get the types out of an alias as return type
/// (`anyhow::Result<T>`).
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a fiber must return a `Result`, not `{Self}`",
    label = "not a `Result`",
    note = "return `anyhow::Result<..>` or `Result<.., YourError>`: a fiber that ends in `Err` is stored as failed"
)]
pub trait IsResult {
    type Ok;
    type Err;
}

impl<T, E> IsResult for Result<T, E> {
    type Ok = T;
    type Err = E;
}

/// The return type of a function, through which [`Never`] is named.
#[doc(hidden)]
pub trait Returns {
    type Value;
}

impl<T> Returns for fn() -> T {
    type Value = T;
}

/// `!`, which cannot be written as a type of its own.
#[doc(hidden)]
pub type Never = <fn() -> ! as Returns>::Value;
