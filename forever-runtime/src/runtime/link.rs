//! How handles find their runtime, and what keeps it open.
use std::sync::{Arc, Weak};

use crate::error::{Error, ErrorKind, Result};
use crate::runtime::state::Runtime;

/// Link from a handle to a part of its runtime.
#[derive(Debug)]
pub(crate) enum Link<T> {
    /// Keeps the runtime open.
    Open(Arc<T>, Arc<RuntimeGuard>),
    /// Does not keep it open: for handles that the runtime itself holds.
    Weak(Weak<T>),
    /// For a value that was read outside a runtime.
    None,
}

impl<T> Clone for Link<T> {
    fn clone(&self) -> Self {
        match self {
            Link::Open(there, guard) => Link::Open(Arc::clone(there), Arc::clone(guard)),
            Link::Weak(there) => Link::Weak(Weak::clone(there)),
            Link::None => Link::None,
        }
    }
}

impl<T> Link<T> {
    /// The target, if the runtime is still there.
    pub(crate) fn get(&self) -> Result<Arc<T>> {
        match self {
            Link::Open(there, _) => Ok(Arc::clone(there)),
            Link::Weak(there) => there.upgrade().ok_or_else(Error::closed),
            Link::None => Err(Error::new(ErrorKind::Setup, "it was read outside a runtime: ask the runtime for it")),
        }
    }

    /// A link to a part of the target, which keeps the runtime open if this one does.
    pub(crate) fn to<U>(&self, part: impl FnOnce(&T) -> Arc<U>) -> Link<U> {
        match self {
            Link::Open(there, guard) => Link::Open(part(there), Arc::clone(guard)),
            Link::Weak(there) => Link::Weak(there.upgrade().map_or_else(Weak::new, |there| Arc::downgrade(&part(&there)))),
            Link::None => Link::None,
        }
    }
}

impl<T> From<&Arc<T>> for Link<T> {
    fn from(there: &Arc<T>) -> Self {
        Link::Weak(Arc::downgrade(there))
    }
}

/// Keeps a runtime open. `Forever` and every handle hold one; tasks do not.
///
/// If it is dropped without a `close` before, the effect is that of the process dying: tasks are
/// dropped where they are, and the database is released.
#[derive(Debug)]
pub(crate) struct RuntimeGuard(pub(crate) Arc<Runtime>);

impl Drop for RuntimeGuard {
    fn drop(&mut self) {
        self.0.die();
    }
}
