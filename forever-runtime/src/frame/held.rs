//! Whether a local that is there for its destructor alone may be dropped at a cut point.
//!
//! Generated code asks by method resolution: [`NoDestructor`] answers for what is `Copy`, and behind one more reference a
//! trait of the generated code, whose error names the variable, asks for [`Data`].
use std::marker::PhantomData;

use serde::{Deserialize, Serialize};

/// The type of a local.
#[doc(hidden)]
#[derive(Debug)]
pub struct Held<T>(PhantomData<T>);

/// The type of this local.
#[doc(hidden)]
pub fn held<T>(_: &T) -> Held<T> {
    Held(PhantomData)
}

/// What is written and read by serde, which a guard is not. Unlike what is saved it may hold references: they hold nothing.
#[doc(hidden)]
pub trait Data {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + Deserialize<'static>> Data for T {}

/// What drops without doing anything.
#[doc(hidden)]
pub trait NoDestructor {
    fn may_be_dropped(&self) {}
}

impl<T: Copy> NoDestructor for Held<T> {}
