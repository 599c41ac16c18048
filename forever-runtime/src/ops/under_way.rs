//! The operations of a run that are under way: from before their start is stored until their
//! outcome is stored.
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::iter::successors;
use std::pin::pin;
use std::sync::Arc;

use crate::ops::known::Ops;
use crate::store::OpKind;

thread_local! {
    /// The innermost manual operation whose body the thread is polling.
    static WITHIN: RefCell<Option<Arc<Begun>>> = const { RefCell::new(None) };
}

/// An operation, with the manual operation in whose body it began.
#[derive(Debug)]
struct Begun {
    id: String,
    within: Option<Arc<Begun>>,
}

/// Guard of an operation that is under way.
pub(super) struct UnderWay {
    ops: Arc<Ops>,
    begun: Arc<Begun>,
}

impl UnderWay {
    /// Begins an operation; `None` when it is under way.
    pub(super) fn begin(ops: &Arc<Ops>, id: &str, kind: OpKind) -> Option<Self> {
        let within = WITHIN.with_borrow(Clone::clone);
        ops.begins(id, kind).then(|| UnderWay { ops: Arc::clone(ops), begun: Arc::new(Begun { id: id.to_owned(), within }) })
    }

    /// Runs the body of a manual operation.
    pub(super) async fn carry_out<T>(&self, body: impl Future<Output = T>) -> T {
        let mut body = pin!(body);
        poll_fn(|cx| {
            let _before = Before(WITHIN.replace(Some(Arc::clone(&self.begun))));
            body.as_mut().poll(cx)
        })
        .await
    }

    /// Leaves it, and waits until no manual operation is under way, except those whose bodies wait
    /// for this one.
    pub(super) async fn others_over(self) {
        for begun in successors(Some(&self.begun), |begun| begun.within.as_ref()) {
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

/// Restores what the thread was polling.
struct Before(Option<Arc<Begun>>);

impl Drop for Before {
    fn drop(&mut self) {
        WITHIN.set(self.0.take());
    }
}
