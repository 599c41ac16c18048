//! Runs of a turn: fiber functions that its hook calls inside the turn's own fiber, one at a time.
//!
//! The fiber of a turn has one cut point. Its snapshot holds the results of the ended runs, in
//! order, and the frame of the current one, as that of a `call!`. A hook that runs again after an
//! interruption gets the results of the ended runs, and the current one resumes in its middle.
//!
//! The attempt drives a run, not the future that waits for it: if that future is dropped, the run
//! stays under way.
use std::fmt;
use std::future::pending;
use std::sync::{Mutex, MutexGuard, PoisonError};

use forever_runtime::__layers::secret::{is_marked, plain};
use forever_runtime::__layers::{ContextOfLayer, Exit, FrameOfLayer, Save, exit_of};
use forever_runtime::__private::Frame;
use forever_runtime::fiber::{Fiber, FiberContext};
use forever_runtime::store::{AgentId, BoxFuture};
use forever_runtime::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// Number of the turn's cut point.
pub(super) const RUN: u32 = 0;

/// A run that has ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct EndedRun {
    /// Stored name of its function.
    fiber: String,
    /// Its result, JSON; as its error marked if it may repeat a value marked `#[secret]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<String>,
    /// Text of its error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl EndedRun {
    fn exit(&self) -> Exit {
        match (&self.result, &self.error) {
            (Some(result), _) => Exit::Completed(plain(result).into()),
            (None, error) => Exit::failed(plain(error.as_deref().unwrap_or_default())),
        }
    }

    /// Whether its function had a value marked `#[secret]`.
    pub(super) fn had_secrets(&self) -> bool {
        [&self.result, &self.error].into_iter().flatten().any(|text| is_marked(text))
    }
}

/// The locals that the fiber of a turn saves at its cut point.
#[derive(Debug)]
pub(super) struct Locals {
    pub(super) chat: AgentId,
    pub(super) turn: String,
    /// The ended runs, in order.
    pub(super) ended: Vec<EndedRun>,
}

impl Locals {
    pub(super) fn save(&self, save: &mut Save<'_>) {
        save.put("class", &self.chat.class);
        save.put("agent", &self.chat.name);
        save.put("turn", &self.turn);
        save.put("ended", &self.ended);
    }
}

/// Executes a run in the frame of its turn; returns its result, or the exit of the activation.
pub(super) type Start =
    Box<dyn for<'a> FnOnce(&'a mut Frame, &'a FiberContext, &'a Locals) -> BoxFuture<'a, Result<EndedRun, Exit>> + Send>;

/// The runs of one attempt, as its hook requests them.
pub(super) struct Runs {
    state: Mutex<State>,
    /// Notified when a run begins or ends.
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    /// Number of the next run of the hook.
    next: usize,
    ended: Vec<EndedRun>,
    /// The function that is under way in the stored snapshot, until the hook reaches it.
    saved: Option<String>,
    under_way: Option<UnderWay>,
    /// The run to begin.
    start: Option<Start>,
    /// Whether the hook waits for a run.
    awaited: bool,
}

/// The run under way.
struct UnderWay {
    fiber: &'static str,
    /// Its arguments, JSON.
    args: String,
}

impl Runs {
    /// The runs at the start of an attempt: those that have ended, and the function that is under
    /// way in the snapshot.
    pub(super) fn new(ended: Vec<EndedRun>, saved: Option<String>) -> Self {
        let state = State { ended, saved, ..State::default() };
        Runs { state: Mutex::new(state), changed: watch::Sender::new(()) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reaches the next run: begins it, unless it has ended or is under way.
    pub(super) fn begin<F: Fiber>(&self, call: F, args: String) -> Result<AwaitedRun<'_>> {
        let fiber = F::MACHINE.name;
        let refused = |why: String| Err(Error::new(ErrorKind::Conflict, format!("`{fiber}` cannot be run by the turn: {why}")));
        let mut state = self.state();
        if state.awaited {
            return refused("it waits for another run; a turn runs one fiber at a time".to_owned());
        }
        let number = state.next;
        if let Some(ended) = state.ended.get(number) {
            if ended.fiber != fiber {
                return refused(format!("its run {number} was of `{}`", ended.fiber));
            }
        } else if let Some(there) = &state.under_way {
            if there.fiber != fiber || there.args != args {
                return refused(format!("its run of `{}` is still under way; a turn runs one fiber at a time", there.fiber));
            }
        } else {
            if let Some(saved) = state.saved.as_ref().filter(|saved| *saved != fiber) {
                return refused(format!("its run {number} was of `{saved}`, and has not ended"));
            }
            state.saved = None;
            state.under_way = Some(UnderWay { fiber, args });
            state.start = Some(start(call));
            self.changed.send_replace(());
        }
        state.awaited = true;
        Ok(AwaitedRun { runs: self, number })
    }

    /// The run that the hook has begun, once there is one.
    pub(super) async fn begun(&self) -> Start {
        let mut changed = self.changed.subscribe();
        loop {
            if let Some(start) = self.state().start.take() {
                return start;
            }
            // The sender is in `self`, so the wait cannot fail.
            let _ = changed.changed().await;
        }
    }

    pub(super) fn end(&self, ended: EndedRun) {
        let mut state = self.state();
        state.ended.push(ended);
        state.under_way = None;
        self.changed.send_replace(());
    }

    /// Ends all runs of this attempt.
    pub(super) async fn stop(&self) -> Exit {
        self.state().under_way = None;
        self.changed.send_replace(());
        pending().await
    }

    /// Whether a run is under way.
    pub(super) fn is_under_way(&self) -> bool {
        self.state().under_way.is_some()
    }

    /// Whether a run is under way that has to be stopped; one that has not begun is discarded.
    pub(super) fn is_to_stop(&self) -> bool {
        let mut state = self.state();
        if state.start.take().is_some() {
            state.under_way = None;
        }
        state.under_way.is_some()
    }

    /// Resolves when no run is under way.
    pub(super) async fn idle(&self) {
        let mut changed = self.changed.subscribe();
        while self.is_under_way() {
            // The sender is in `self`, so the wait cannot fail.
            let _ = changed.changed().await;
        }
    }
}

impl fmt::Debug for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("runs of a turn")
    }
}

/// A run that the hook waits for. If it is dropped, the run stays under way.
pub(super) struct AwaitedRun<'a> {
    runs: &'a Runs,
    number: usize,
}

impl AwaitedRun<'_> {
    /// Exit of the run.
    pub(super) async fn ended(self) -> Exit {
        let mut changed = self.runs.changed.subscribe();
        loop {
            {
                let mut state = self.runs.state();
                if let Some(ended) = state.ended.get(self.number) {
                    let exit = ended.exit();
                    state.next = self.number + 1;
                    return exit;
                }
            }
            // The sender is in `runs`, so the wait cannot fail.
            let _ = changed.changed().await;
        }
    }
}

impl Drop for AwaitedRun<'_> {
    fn drop(&mut self) {
        self.runs.state().awaited = false;
    }
}

fn start<F: Fiber>(call: F) -> Start {
    Box::new(move |frame, ctx, locals| {
        Box::pin(async move {
            let returned = frame.host(RUN, call, ctx, |save| locals.save(save)).await;
            let fiber = F::MACHINE.name.to_owned();
            match exit_of(returned) {
                Exit::Completed(result) => Ok(EndedRun { fiber, result: Some(ctx.secret_text(result.to_string())), error: None }),
                Exit::Failed(why) => Ok(EndedRun { fiber, result: None, error: Some(ctx.secret_text(why.to_string())) }),
                exit => Err(exit),
            }
        })
    })
}
