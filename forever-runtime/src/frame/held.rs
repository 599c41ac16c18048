//! What only the type of a local tells: whether one that is there for its destructor alone may be dropped at a cut point, and
//! whether text that was taken from it is its own.
//!
//! Generated code asks by method resolution: [`NoDestructor`] answers for what is `Copy`, and behind one more reference a
//! trait of the generated code, whose error names the variable, asks for [`Data`]. Of text a trait of the generated code
//! answers for what is a [`TextOwner`], with an error, and [`OwnsNoText`] for all else.
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::marker::PhantomData;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The type of a local.
#[doc(hidden)]
#[derive(Debug)]
pub struct Held<T: ?Sized>(PhantomData<T>);

/// The type of this local.
#[doc(hidden)]
pub fn held<T: ?Sized>(_: &T) -> Held<T> {
    Held(PhantomData)
}

/// What is written and read by serde, which a guard is not. Unlike what is saved it may hold references: they hold nothing.
#[doc(hidden)]
pub trait Data {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + Deserialize<'static>> Data for T {}

/// What owns text that its methods give references to.
#[doc(hidden)]
pub trait TextOwner {}

macro_rules! owners {
    ($([$($generics:tt)*] $ty:ty,)*) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($generics)*> TextOwner for $ty {}
    )*};
}
owners! {
    [] String,
    [] serde_json::Value,
    ['a] Cow<'a, str>,
    [] Box<str>,
    [] Arc<str>,
    [T: TextOwner] Box<T>,
    [T: TextOwner] Arc<T>,
    [T: TextOwner] Option<T>,
    [T: TextOwner, E] Result<T, E>,
    [T: TextOwner] Vec<T>,
    [T: TextOwner] VecDeque<T>,
    [T: TextOwner] [T],
    [T: TextOwner, const N: usize] [T; N],
    [T: TextOwner] BTreeSet<T>,
    [T: TextOwner, S] HashSet<T, S>,
    [K, V: TextOwner] BTreeMap<K, V>,
    [K, V: TextOwner, S] HashMap<K, V, S>,
    [] serde_json::Map<String, serde_json::Value>,
}

/// Text of what is no [`TextOwner`] is a constant, as far as its type tells.
#[doc(hidden)]
pub trait OwnsNoText {
    fn text_may_be_kept(&self) {}
}

impl<T: ?Sized> OwnsNoText for &Held<T> {}

/// What drops without doing anything.
#[doc(hidden)]
pub trait NoDestructor {
    fn may_be_dropped(&self) {}
}

impl<T: Copy> NoDestructor for Held<T> {}
