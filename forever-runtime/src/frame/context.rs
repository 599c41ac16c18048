//! The context of a running fiber, given to its function as `ctx`.
use std::sync::Arc;

use crate::clock::{Clock, SystemClock};
use crate::frame::resources::{Res, Resources};
use crate::frame::run::Run;

/// What a running fiber knows of itself.
#[derive(Debug)]
pub struct FiberContext {
    pub(crate) id: String,
    pub(crate) name: Arc<str>,
    pub(crate) resuming: bool,
    pub(crate) resources: Resources,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) run: Arc<Run>,
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
