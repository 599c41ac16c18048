//! Layer 2: fibers. What a `#[fiber]` function is to the runtime, and what runs it.
//!
//! `machine` is the static description that the macro writes; `frame` is one activation of a machine, the only thing
//! generated code talks to; `saved` and `iter` say what can be kept across a cut point.

pub(crate) mod borrows;
pub(crate) mod closure;
pub(crate) mod compatibility;
pub(crate) mod core;
pub(crate) mod detached;
pub(crate) mod dispatch;
pub(crate) mod drive;
pub(crate) mod eager;
pub(crate) mod events;
pub(crate) mod fence;
pub(crate) mod frame;
mod generated;
pub(crate) mod handle;
pub(crate) mod held;
pub(crate) mod iter;
pub(crate) mod keeps_order;
mod kinds;
pub(crate) mod layout;
mod live;
pub(crate) mod locals;
pub(crate) mod log;
pub(crate) mod machine;
pub(crate) mod managed;
pub(crate) mod messages;
pub(crate) mod op;
pub(crate) mod owner;
pub(crate) mod parts;
pub(crate) mod position;
pub(crate) mod recovery;
pub(crate) mod registry;
pub(crate) mod remains;
pub(crate) mod retention;
pub(crate) mod retry;
mod runner;
pub(crate) mod saved;
pub(crate) mod select;
pub(crate) mod side;
mod sink;
mod snapshot;
pub(crate) mod spawn;
pub(crate) mod step;
pub(crate) mod step_error;
pub(crate) mod step_span;
mod sync;
pub(crate) mod timer;
pub(crate) mod topics;
pub(crate) mod waits;
pub(crate) mod within;

use std::any::Any;
use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::clock::{Clock, SystemClock};
pub use eager::EagerIterator;
use frame::{Frame, Run};
pub use keeps_order::KeepsOrder;
pub use layout::{Drift, Layout, Problem};
use locals::{Locals, Save, Unreadable};
use machine::Machine;
pub use op::Op;
pub use retry::{Backoff, Retry};
pub use snapshot::Snapshot;

/// A durable function: what `#[fiber]` implements for the type that carries its name.
///
/// A value of the type is an invocation, the arguments of one run.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a fiber",
    label = "not a fiber",
    note = "make the function a `#[fiber]`, or `.await` it in a `step!`"
)]
pub trait Fiber: Send + Sized + 'static {
    /// What the function gives back in its `Ok`; it is stored.
    type Output: Value;
    /// What it gives back in its `Err`; its text is stored.
    type Error: Failure;

    #[doc(hidden)]
    const MACHINE: &'static Machine;

    #[doc(hidden)]
    fn needs(needs: &mut Needs<'_>);

    #[doc(hidden)]
    fn save(&self, save: &mut Save<'_>);

    #[doc(hidden)]
    fn load(arguments: &mut Locals) -> Result<Self, Unreadable>;

    /// Runs from the start (`Some`) or from the frame's resume target (`None`).
    #[doc(hidden)]
    fn drive<'run>(
        start: Option<Self>,
        ctx: &'run FiberContext,
        frame: &'run mut Frame,
    ) -> impl Future<Output = Result<Self::Output, Self::Error>> + Send + 'run;
}

/// What a fiber can give back: anything that serde can write and read again, and that can be sent to another thread.
#[diagnostic::on_unimplemented(
    message = "the value of a fiber and of a `recv!` is stored, but its type `{Self}` cannot be saved",
    label = "cannot be saved",
    note = "derive `serde::Serialize` and `serde::Deserialize` for it; it must also be `Send` and hold no references"
)]
pub trait Value: Serialize + DeserializeOwned + Send + 'static {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned + Send + 'static> Value for T {}

/// An invocation that could be awaited: none can.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{F}` is a fiber, which does not run by `.await`",
    label = "the invocation of a fiber",
    note = "in another fiber: `call!({F}(..))?` runs it inline, `spawn!({F}(..))` starts it by itself; elsewhere: `forever.run({F}(..)).await?`"
)]
pub trait Awaitable<'never, F> {}

/// What a fiber can fail with: anything whose text can be stored.
#[diagnostic::on_unimplemented(
    message = "the error of a fiber is stored as text, but `{Self}` is no error",
    label = "not an error",
    note = "implement `std::error::Error` for it (it must be `Send` and `Sync`), or return `anyhow::Result<..>`"
)]
pub trait Failure: Into<Box<dyn std::error::Error + Send + Sync>> + Send {}

#[diagnostic::do_not_recommend]
impl<E: Into<Box<dyn std::error::Error + Send + Sync>> + Send> Failure for E {}

/// Implemented by `Result` alone, so that an alias as return type (`anyhow::Result<T>`) can be taken apart.
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

/// A function's return type, by which [`Never`] is named.
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

/// What a running fiber knows of itself.
#[derive(Debug)]
pub struct FiberContext {
    id: String,
    name: Arc<str>,
    resuming: bool,
    resources: Resources,
    clock: Arc<dyn Clock>,
    run: Arc<Run>,
}

impl FiberContext {
    /// A context without a runtime behind it.
    #[cfg_attr(not(feature = "testing"), allow(dead_code, reason = "for the testing kit"))]
    pub(crate) fn new(id: String, resources: Resources, run: &Arc<Run>) -> Self {
        FiberContext { id, name: "".into(), resuming: false, resources, clock: Arc::new(SystemClock::new()), run: Arc::clone(run) }
    }

    /// The same for a function that this one calls.
    pub(crate) fn of_callee(&self) -> Self {
        let FiberContext { id, name, resuming, resources, clock, run } = self;
        let (id, name, resources) = (id.clone(), Arc::clone(name), resources.clone());
        FiberContext { id, name, resuming: *resuming, resources, clock: Arc::clone(clock), run: Arc::clone(run) }
    }

    /// What all frames of the run share.
    pub(crate) fn run(&self) -> &Arc<Run> {
        &self.run
    }

    /// The fiber's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The stored name of the fiber's function.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether this run began in the middle, from a snapshot.
    pub fn is_resuming(&self) -> bool {
        self.resuming
    }

    /// The runtime's clock.
    pub fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Ready when the fiber is asked to stop, because it is cancelled or because the runtime closes.
    pub async fn cancelled(&self) {
        self.run.ops.asked_to_stop().await;
    }

    /// Whether the fiber is asked to stop.
    pub fn is_cancelled(&self) -> bool {
        self.run.ops.is_asked_to_stop()
    }

    /// # Panics
    /// When the runtime lacks it: the failure of this fiber, with a message that names the type.
    #[doc(hidden)]
    pub fn resource<T: Send + Sync + 'static>(&self) -> Res<T> {
        // Those of registered fibers are checked at open; this is one that is only called by another.
        self.resources.get().unwrap_or_else(|| {
            let what = std::any::type_name::<T>();
            panic!("a fiber called from `{}` needs a `{what}`: add it with `.resource(..)`, and the fiber with `.fiber(..)`", self.name)
        })
    }
}

/// A resource of the runtime, found by its type: a client, a model, a configuration. Never saved, given anew on every resume.
pub struct Res<T: ?Sized>(Arc<T>);

impl<T: ?Sized> Clone for Res<T> {
    fn clone(&self) -> Self {
        Res(Arc::clone(&self.0))
    }
}

impl<T: ?Sized> Deref for Res<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: std::fmt::Debug + ?Sized> std::fmt::Debug for Res<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The resources of a runtime, by type.
#[derive(Clone, Default)]
pub(crate) struct Resources(Vec<Arc<dyn Any + Send + Sync>>);

impl std::fmt::Debug for Resources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} resources", self.0.len())
    }
}

impl Resources {
    /// Adds a resource; a second one of the same type takes the first one's place.
    pub(crate) fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        self.0.retain(|r| !r.is::<T>());
        self.0.push(Arc::new(value));
    }

    pub(crate) fn get<T: Send + Sync + 'static>(&self) -> Option<Res<T>> {
        self.0.iter().find_map(|r| Arc::clone(r).downcast::<T>().ok()).map(Res)
    }
}

/// Collects the resources that a fiber needs and the runtime lacks.
#[doc(hidden)]
#[derive(Debug)]
pub struct Needs<'a> {
    resources: &'a Resources,
    /// Parameter name and type name of each missing resource.
    pub(crate) missing: Vec<(&'static str, &'static str)>,
}

impl<'a> Needs<'a> {
    pub(crate) fn new(resources: &'a Resources) -> Self {
        Needs { resources, missing: Vec::new() }
    }

    pub fn resource<T: Send + Sync + 'static>(&mut self, parameter: &'static str) {
        if self.resources.get::<T>().is_none() {
            self.missing.push((parameter, std::any::type_name::<T>()));
        }
    }
}
