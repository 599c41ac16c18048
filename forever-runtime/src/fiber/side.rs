//! Steps side by side: `steps!`. Each result is stored when it arrives; a resumed fiber runs only what has not arrived.
use std::future::Future;

use super::Value;
use super::frame::Frame;

/// The branches of one `steps!`, with what earlier runs left of them.
#[doc(hidden)]
#[derive(Debug)]
pub struct Side {}

impl Frame {
    /// Begins a `steps!`, or goes on with it.
    pub fn side(&self, cut: u32) -> impl Future<Output = Side> + Send + use<> {
        let _ = cut;
        async { todo!() }
    }
}

impl Side {
    /// `steps!(a, b, ..)`: all at once, as a tuple; the first error ends the others.
    pub async fn all<T: Together<E>, E>(self, branches: T) -> Result<T::Values, E> {
        let _ = branches;
        todo!()
    }

    /// `steps!(for x in items, limit = 8, body)`: a list to be filled, `limit` of them at a time.
    pub fn each<F>(self, limit: Option<usize>) -> Each<F> {
        let _ = limit;
        todo!()
    }
}

/// A tuple of futures that give a `Result` each.
#[doc(hidden)]
pub trait Together<E> {
    type Values;
}

macro_rules! together {
    ($($future:ident $value:ident,)+) => {
        impl<E, $($value: Value, $future: Future<Output = Result<$value, E>> + Send),+> Together<E> for ($($future,)+) {
            type Values = ($($value,)+);
        }
    };
}

together!(F1 T1,);
together!(F1 T1, F2 T2,);
together!(F1 T1, F2 T2, F3 T3,);

/// The branches of a `steps!(for ..)`.
#[doc(hidden)]
#[derive(Debug)]
pub struct Each<F> {
    branches: Vec<F>,
}

impl<T: Value, E, F: Future<Output = Result<T, E>> + Send> Each<F> {
    /// Adds the next branch.
    pub fn push(&mut self, branch: F) {
        self.branches.push(branch);
    }

    /// Runs them; the first error ends the others.
    pub async fn run(self) -> Result<Vec<T>, E> {
        todo!()
    }
}

/// The items of a `steps!(for x in items, ..)`, collected, each in a place of its own from which its branch takes it.
#[doc(hidden)]
pub fn places<T>(items: Vec<T>) -> Vec<Option<T>> {
    items.into_iter().map(Some).collect()
}

/// Takes an item out of its place.
#[doc(hidden)]
pub fn item<T>(place: &mut Option<T>) -> T {
    place.take().expect("each branch takes its own item, once")
}
