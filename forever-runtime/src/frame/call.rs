//! `call!`: runs another fiber function inline, with its frame nested in its caller's snapshot.
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use crate::frame::activation::Frame;
use crate::frame::context::FiberContext;
use crate::frame::fiber::Fiber;
use crate::frame::locals::Save;
use crate::frame::machine::Machine;
use crate::frame::poll::drive;
use crate::frame::saved::ReturnValue;
use crate::frame::snapshot::{MAX_CALLS, Snapshot, too_many_calls};
use crate::frame::writer::{Written, commit, try_commit};
use crate::future::BoxFuture;
use crate::layout::rows::row_of;
use crate::runtime::exit::Exit;

impl Frame {
    /// Runs another fiber inline, from its start or from its nested snapshot, then makes a
    /// checkpoint with its value.
    ///
    /// `save` runs before this returns, so that the future holds no borrow of the caller's locals.
    pub fn call<'a, F: Fiber>(
        &'a mut self,
        cut: u32,
        start: Option<F>,
        ctx: &'a FiberContext,
        result: Option<&'static str>,
        mut save: impl FnMut(&mut Save<'_>),
    ) -> BoxFuture<'a, Result<F::Output, F::Error>> {
        let nested = self.target.take().and_then(|t| t.call);
        let open = self.write(cut, &mut save, "");
        Box::pin(async move {
            let (mut open, callee) = match self.callee(cut, F::MACHINE, open, nested) {
                Ok(opened) => opened,
                Err(stopped) => {
                    self.run.stop(stopped);
                    std::future::pending().await
                }
            };
            let (returned, missed) = run_callee(start, ctx.of_callee(), callee).await;
            // A step of the callee that ended in an error is over.
            self.run.step.end();
            self.run.tx_position.returned();
            self.run.secrets.between();
            if returned.is_err() {
                self.run.error_counts().await;
            }
            let value = match missed {
                None => Some(returned?),
                Some(why) => {
                    drop(returned);
                    self.run.stop(Exit::unfit(why));
                    None
                }
            };
            let Some(value) = value else { return std::future::pending().await };
            let closed = self.close_call(&mut open, result, value.__saved()).map(|()| open);
            commit(Arc::clone(&self.run), closed, &self.machine.cuts[cut as usize], self.callees.clone()).await;
            Ok(value)
        })
    }

    /// As [`call`](Self::call), for a layer above. Its caller is polled meanwhile and gets the exit
    /// that stops the callee. The caller stores the result with [`store`](Self::store).
    pub(crate) async fn host<F: Fiber>(
        &mut self,
        cut: u32,
        start: F,
        ctx: &FiberContext,
        mut save: impl FnMut(&mut Save<'_>),
    ) -> Result<Result<F::Output, F::Error>, Exit> {
        let nested = self.target.take().and_then(|t| t.call);
        let start = nested.is_none().then_some(start);
        let open = self.write(cut, &mut save, "");
        let (_, callee) = self.callee(cut, F::MACHINE, open, nested)?;
        let returned = drive::<F>(start, ctx, callee, &self.run).await;
        self.run.step.end();
        self.run.tx_position.returned();
        self.run.secrets.between();
        returned
    }

    /// Replaces the snapshot, as [`checkpoint`](Self::checkpoint) does; an error is the exit of a
    /// run whose snapshot cannot be stored.
    pub(crate) async fn store(&self, cut: u32, mut save: impl FnMut(&mut Save<'_>)) -> Result<(), Exit> {
        let written = self.write(cut, &mut save, "null}");
        try_commit(&self.run, written, &self.machine.cuts[cut as usize], self.callees.clone()).await
    }

    /// Name of the function whose call the snapshot to resume from contains.
    pub(crate) fn called(&self) -> Option<&str> {
        self.target.as_ref()?.call.as_ref()?.fiber.as_deref()
    }

    /// The frame of a callee, and the open text of this frame around it.
    fn callee(
        &self,
        cut: u32,
        machine: &'static Machine,
        open: Result<Written, String>,
        nested: Option<Box<Snapshot>>,
    ) -> Result<(Written, Frame), Exit> {
        if self.depth == MAX_CALLS {
            return Err(Exit::failed(format!("`{}` cannot be called from here: {}", machine.name, too_many_calls())));
        }
        let mut open = open.map_err(Exit::failed)?;
        open.text.truncate(open.text.len() - self.suffix.len());
        let layout = row_of(machine);
        let left = &self.run.left;
        let nested = match nested {
            Some(snapshot) => machine.fit(*snapshot, &layout.hash, left, self.depth + 1).map(Some),
            None => left.check_begun(machine, None).map(|()| None),
        };
        let nested = nested.map_err(Exit::unfit)?;
        let mut callee = Frame::start(machine, Arc::clone(&self.run));
        callee.prefix = format!("{}{{{}", open.text, machine.heading(&layout.hash));
        callee.suffix = format!("}}{}", self.suffix);
        callee.outer = open.named.clone();
        callee.depth = self.depth + 1;
        // Its arguments are, then.
        callee.is_secret = self.mentions_secret(cut);
        if callee.is_secret {
            self.run.secrets.hold();
        }
        callee.callees = self.callees.iter().cloned().chain([layout]).collect();
        if let Some(snapshot) = nested {
            callee.aim(snapshot).map_err(Exit::unfit)?;
        }
        Ok((open, callee))
    }
}

/// Hands a callee to the driver, which runs it in its caller's place. Returns its result, and the
/// reason if it never reached its cut point.
///
/// Only the innermost function is ever polled, so the stack does not grow with the calls, however
/// much of it a body uses.
async fn run_callee<F: Fiber>(start: Option<F>, ctx: FiberContext, mut callee: Frame) -> (Result<F::Output, F::Error>, Option<String>) {
    let run = callee.run();
    let ended = Arc::new(Mutex::new(None));
    let end = Arc::clone(&ended);
    let body = Box::pin(async move {
        let returned = F::drive(start, &ctx, &mut callee).await;
        *end.lock().unwrap_or_else(PoisonError::into_inner) = Some((returned, callee.missed()));
    });
    *run.called.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
    poll_fn(|_| ended.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Poll::Pending, Poll::Ready)).await
}
