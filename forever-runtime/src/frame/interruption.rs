//! What counts of code that runs while its runtime closes.
//!
//! Such code runs again on resume. So its errors are no outcomes: they may come from the end of the
//! process, such as those of a connection pool that is closed. Its values are outcomes unless the
//! code has seen that the runtime closes, when it may have ended early. It sees that by an `Op`, by
//! the context, and by every call that fails because the runtime closes (`frame/current.rs`). The
//! value of an effect is one in any case: it was carried out.
use crate::frame::machine::Cut;
use crate::frame::run::Run;
use crate::runtime::exit::Exit;
use crate::store::{OpKind, OpRecord};

/// The code of a run that has seen the runtime close.
#[derive(Debug, Default)]
pub(crate) struct SawClosing {
    /// Code with the context of the fiber, which may be any.
    any: bool,
    /// The plain steps and branches whose bodies have seen it through their `Op`.
    ops: Vec<OpRecord>,
}

impl Run {
    /// Whether an error of the code may come from the end of the process. That of a cancelled fiber
    /// is one of its own.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.backend.is_closing() && !self.ops.is_cancelled()
    }

    /// Ready if an error of the code is an outcome. Otherwise the fiber is interrupted. A hook gets
    /// the error in any case: it is called again.
    pub(crate) async fn error_counts(&self) {
        if self.is_interrupted() && self.backend.parks() {
            self.interrupt::<()>().await;
        }
    }

    /// Ends the activation: the code runs again on resume.
    pub(crate) async fn interrupt<T>(&self) -> T {
        self.halt(Exit::cut_off()).await
    }

    /// Ready when the runtime closes. The code has seen it then: the body of an operation, or any
    /// code.
    pub(crate) async fn closing(&self, op: Option<&OpRecord>) {
        self.ops.closing().await;
        self.sees_closing(op);
    }

    /// Whether the runtime closes; seen by the body of an operation, or by any code.
    pub(crate) fn sees_closing(&self, op: Option<&OpRecord>) -> bool {
        let closes = self.backend.is_closing();
        if closes {
            let mut saw = self.saw_closing();
            match op {
                Some(op) if op.kind != OpKind::Step || saw.ops.iter().any(|seen| seen.id == op.id) => {}
                Some(op) => saw.ops.push(op.clone()),
                None => saw.any = true,
            }
        }
        closes
    }

    /// Whether the value of code is no outcome, because the code or the body of one of `these`
    /// operations has seen the runtime close.
    pub(crate) fn ended_early(&self, these: impl Fn(&OpRecord) -> bool) -> bool {
        let saw = self.saw_closing();
        (saw.any || saw.ops.iter().any(these)) && self.is_interrupted()
    }

    /// `Err` if the value that a cut point stores is no outcome.
    pub(super) fn value_counts(&self, cut: &Cut) -> Result<(), Exit> {
        if !cut.effect && self.ended_early(|op| cut.has(&op.step)) { Err(Exit::cut_off()) } else { Ok(()) }
    }
}
