//! What the functions of a layer do with their context and their frame.
use std::any::Any;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::frame::activation::Frame;
use crate::frame::context::FiberContext;
use crate::frame::fiber::Fiber;
use crate::frame::locals::Save;
use crate::runtime::exit::Exit;
use crate::runtime::fence::Fence;

/// The context of a function of a layer.
pub trait ContextOfLayer {
    /// The value that the layer gives to the functions it registers or calls.
    fn host<T: 'static>(&self) -> Option<&T>;

    /// The context of functions that the layer calls, which look up `host` by its type.
    #[must_use]
    fn hosted<T: Send + Sync + 'static>(&self, host: T) -> FiberContext;

    /// Value that the last activation has passed on within this process, by [`Exit::Again`].
    fn handed_over<T: Any>(&self) -> Option<&T>;

    /// Whether the last activation was cut off: it neither ended nor waited nor parked.
    fn was_interrupted(&self) -> bool;

    /// The claim under which the run writes; `None` without a store.
    fn fence(&self) -> Option<Arc<Fence>>;

    /// Number of checkpoints, over all processes.
    fn checkpoints(&self) -> u64;

    /// Makes cut points wait in memory from now on.
    fn stay_in_memory(&self);

    /// Whether an error of the code may come from the end of the process, and so is no outcome.
    fn is_interrupted(&self) -> bool;

    /// Whether the code has observed that the runtime closes, so that its value is no outcome.
    fn ended_early(&self) -> bool;

    /// Ready when the ledger knows the outcome of every effect and manual operation that has begun.
    fn operations_over(&self) -> impl Future<Output = ()> + Send;

    /// Asks the run to stop at the next opportunity.
    fn ask_to_stop(&self);

    /// Whether the function at this depth of calls could not read the snapshot before.
    fn was_unreadable(&self, depth: u32) -> bool;

    /// The code has called a function that holds a secret.
    fn hold_secrets(&self);

    /// A text of an error of the code, marked if it may repeat a secret.
    fn secret_text(&self, text: String) -> String;

    /// Ends the activation: the driver drops the run after this poll.
    fn halt<T: Send>(&self, exit: Exit) -> impl Future<Output = T> + Send;
}

impl ContextOfLayer for FiberContext {
    fn host<T: 'static>(&self) -> Option<&T> {
        FiberContext::host(self)
    }

    fn hosted<T: Send + Sync + 'static>(&self, host: T) -> FiberContext {
        FiberContext::hosted(self, host)
    }

    fn handed_over<T: Any>(&self) -> Option<&T> {
        self.handed_over.as_ref()?.downcast_ref()
    }

    fn was_interrupted(&self) -> bool {
        self.interrupted
    }

    fn fence(&self) -> Option<Arc<Fence>> {
        self.run.backend.fence()
    }

    fn checkpoints(&self) -> u64 {
        self.run.checkpoints.load(Ordering::Relaxed)
    }

    fn stay_in_memory(&self) {
        self.run.stay_in_memory();
    }

    fn is_interrupted(&self) -> bool {
        self.run.is_interrupted()
    }

    fn ended_early(&self) -> bool {
        self.run.ended_early(|_| false)
    }

    async fn operations_over(&self) {
        self.run.ops.over(|_| true).await;
    }

    fn ask_to_stop(&self) {
        self.run.backend.tell_to_stop();
        self.run.ops.cancel();
    }

    fn was_unreadable(&self, depth: u32) -> bool {
        self.run.left().is_unreadable(depth)
    }

    fn hold_secrets(&self) {
        self.run.secrets.hold();
    }

    fn secret_text(&self, text: String) -> String {
        self.run.secrets.text(text)
    }

    async fn halt<T: Send>(&self, exit: Exit) -> T {
        self.run.halt(exit).await
    }
}

/// The frame of a function of a layer, in which it calls functions that it gets at run time.
pub trait FrameOfLayer {
    /// Runs another function inline, as `call!` does. Its caller is polled meanwhile and gets the
    /// exit that stops the callee. The caller stores the result with [`store`](Self::store).
    fn host<F: Fiber>(
        &mut self,
        cut: u32,
        start: F,
        ctx: &FiberContext,
        save: impl FnMut(&mut Save<'_>) + Send,
    ) -> impl Future<Output = Result<Result<F::Output, F::Error>, Exit>> + Send;

    /// Replaces the snapshot; an error is the exit of a run whose snapshot cannot be stored.
    fn store(&self, cut: u32, save: impl FnMut(&mut Save<'_>) + Send) -> impl Future<Output = Result<(), Exit>> + Send;

    /// Name of the function whose call the snapshot to resume from contains.
    fn called(&self) -> Option<&str>;
}

impl FrameOfLayer for Frame {
    async fn host<F: Fiber>(
        &mut self,
        cut: u32,
        start: F,
        ctx: &FiberContext,
        save: impl FnMut(&mut Save<'_>) + Send,
    ) -> Result<Result<F::Output, F::Error>, Exit> {
        Frame::host(self, cut, start, ctx, save).await
    }

    async fn store(&self, cut: u32, save: impl FnMut(&mut Save<'_>) + Send) -> Result<(), Exit> {
        Frame::store(self, cut, save).await
    }

    fn called(&self) -> Option<&str> {
        Frame::called(self)
    }
}
