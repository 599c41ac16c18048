//! The operations of a run that are under way: from before their start is stored until their
//! outcome is stored.
use std::future::Future;
use std::iter::successors;
use std::sync::Arc;

use crate::ops::known::Ops;
use crate::store::OpKind;

tokio::task_local! {
    /// The innermost manual operation whose body is being polled.
    static WITHIN: Arc<Begun>;
}

/// An operation, with the manual operation in whose body it began.
#[derive(Debug, Clone)]
struct Begun {
    id: Arc<str>,
    within: Option<Arc<Begun>>,
}

/// Guard of an operation that is under way.
pub(super) struct UnderWay {
    ops: Arc<Ops>,
    begun: Begun,
}

impl UnderWay {
    /// Begins an operation; `None` when it is under way.
    pub(super) fn begin(ops: &Arc<Ops>, id: &str, kind: OpKind) -> Option<Self> {
        let id = Arc::from(id);
        ops.begins(Arc::clone(&id), kind).then(|| {
            let within = WITHIN.try_with(Arc::clone).ok();
            UnderWay { ops: Arc::clone(ops), begun: Begun { id, within } }
        })
    }

    /// Runs the body of a manual operation.
    pub(super) fn carry_out<T>(&self, body: impl Future<Output = T>) -> impl Future<Output = T> {
        WITHIN.scope(Arc::new(self.begun.clone()), body)
    }

    /// Leaves it, and waits until no manual operation is under way, except those whose bodies wait
    /// for this one.
    pub(super) async fn others_over(self) {
        for begun in successors(Some(&self.begun), |begun| begun.within.as_deref()) {
            self.ops.is_over(&begun.id);
        }
        self.ops.over(|kind| kind == OpKind::ByHand).await;
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.ops.is_over(&self.begun.id);
    }
}
