//! The context of a running fiber, given to its function as `ctx`.
use std::any::Any;
use std::sync::Arc;

use crate::clock::{Clock, SystemClock};
use crate::frame::resources::{Res, Resources};
use crate::frame::run::Run;

/// Context of a running fiber: its id, its name, its resources and its runtime.
///
/// ```
/// # use forever_runtime as forever;
/// # struct Http;
/// # impl Http {
/// #     async fn get(&self, _: &str, _: &str) -> forever::Result<String> { Ok(String::new()) }
/// # }
/// use forever::fiber::FiberContext;
///
/// // In `#[fiber] async fn research(ctx: &FiberContext, ..)`: step!(fetch(ctx, &url).await?)
/// async fn fetch(ctx: &FiberContext, url: &str) -> forever::Result<String> {
///     ctx.set_progress(&format!("fetching {url}"))?;
///     let http = ctx.resource::<Http>();
///     http.get(url, ctx.id()).await
/// }
/// ```
#[derive(Debug)]
pub struct FiberContext {
    pub(crate) id: String,
    pub(crate) name: Arc<str>,
    pub(crate) resuming: bool,
    pub(crate) resources: Resources,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) run: Arc<Run>,
    /// Whether the last activation was cut off: it neither ended nor waited nor parked.
    pub(crate) interrupted: bool,
    /// Value that the last activation has passed on within this process, by
    /// [`Exit::Again`](crate::runtime::exit::Exit::Again).
    pub(crate) handed_over: Option<Arc<dyn Any + Send + Sync>>,
    /// Value that the layer above gives to the functions it calls.
    pub(crate) host: Option<Arc<dyn Any + Send + Sync>>,
}

impl FiberContext {
    /// A context without a runtime.
    #[cfg_attr(not(feature = "testing"), allow(dead_code, reason = "for the testing kit"))]
    pub(crate) fn new(id: String, resources: Resources, run: &Arc<Run>) -> Self {
        let (clock, run) = (Arc::new(SystemClock::new()), Arc::clone(run));
        FiberContext { id, name: "".into(), resuming: false, resources, clock, run, interrupted: false, handed_over: None, host: None }
    }

    /// The context of a function that this one calls.
    pub(crate) fn of_callee(&self) -> Self {
        let FiberContext { id, name, resuming, resources, clock, run, interrupted, handed_over: _, host } = self;
        let (id, name, resources) = (id.clone(), Arc::clone(name), resources.clone());
        let (clock, run, host) = (Arc::clone(clock), Arc::clone(run), host.clone());
        FiberContext { id, name, resuming: *resuming, resources, clock, run, interrupted: *interrupted, handed_over: None, host }
    }

    /// The context of functions that the layer above calls, which look up `host` by its type.
    pub(crate) fn hosted<T: Send + Sync + 'static>(&self, host: T) -> Self {
        FiberContext { host: Some(Arc::new(host)), ..self.of_callee() }
    }

    /// The value that the layer above gives to the functions it calls.
    pub(crate) fn host<T: 'static>(&self) -> Option<&T> {
        self.host.as_deref()?.downcast_ref()
    }

    /// The fiber's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The stored name of the fiber's function.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether this run resumed from a snapshot.
    pub fn is_resuming(&self) -> bool {
        self.resuming
    }

    /// The runtime's clock.
    pub fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Ready when the fiber is cancelled.
    pub async fn cancelled(&self) {
        self.run.ops.cancelled().await;
    }

    /// Whether the fiber is cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.run.ops.is_cancelled()
    }

    /// Ready when the runtime begins to close: this process ends, and the fiber does not.
    ///
    /// A `#[fiber]` function runs again from its last checkpoint when it is resumed, here or in
    /// another process. Code that has seen this has no outcome, be it a value or an error; nor has
    /// an error of code that has not. Only the value of an `effect` counts in any case. Code that
    /// neither ends nor comes to a checkpoint is dropped after the deadline of
    /// [`close`](crate::Forever::close).
    pub async fn closing(&self) {
        self.run.closing(None).await;
    }

    /// Whether the runtime closes. The code has seen it then; see [`closing`](Self::closing).
    pub fn is_closing(&self) -> bool {
        self.run.sees_closing(None)
    }

    /// # Panics
    /// When the runtime lacks the resource. The panic fails this fiber, with a message that names
    /// the type.
    #[doc(hidden)]
    pub fn resource<T: Send + Sync + 'static>(&self) -> Res<T> {
        // Resources of registered fibers are checked at open; this fiber is only called by another
        // one.
        self.resources.get().unwrap_or_else(|| {
            let what = std::any::type_name::<T>();
            panic!("a fiber called from `{}` needs a `{what}`: add it with `.resource(..)`, and the fiber with `.fiber(..)`", self.name)
        })
    }
}
