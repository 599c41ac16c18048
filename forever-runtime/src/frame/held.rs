//! Questions that only the type of a local answers: whether a local that exists only for its
//! destructor may be dropped at a cut point, whether one keeps the fiber in memory while it waits,
//! and whether a local owns the text that was taken from it.
//!
//! Generated code asks by method resolution, in code that never runs. [`NoDestructor`] answers for
//! types that are `Copy`, and behind one more reference [`Destructor`] for all others: of what it
//! returns, a trait of the generated code, whose error names the variable, requires [`Data`]. For
//! text, [`Owner`] answers for a [`TextOwner`] and [`NoOwner`] for all other types, and a trait of
//! the generated code requires [`OwnsNoText`].
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::marker::PhantomData;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::frame::activation::Frame;
use crate::frame::run::Run;
use crate::ops::manual::OpCall;

/// The type of a local.
#[doc(hidden)]
#[derive(Debug)]
pub struct Held<T: ?Sized>(PhantomData<T>);

impl<T> Held<T> {
    /// A type that is inferred.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Held(PhantomData)
    }
}

/// Returns the type of this local.
#[doc(hidden)]
pub fn held<T: ?Sized>(_: &T) -> Held<T> {
    Held(PhantomData)
}

/// A type that serde writes and reads, which guards are not. Unlike saved values it may contain
/// references, which need no destructor.
#[doc(hidden)]
pub trait Data {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + Deserialize<'static>> Data for T {}

/// A type that owns text to which its methods return references.
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

/// A type without text of its own. No [`TextOwner`] is one.
#[doc(hidden)]
pub trait OwnsNoText {}

impl OwnsNoText for () {}

/// Text taken from a type that is no [`TextOwner`] is a constant, as far as the type shows.
#[doc(hidden)]
pub trait NoOwner {
    fn owner(&self) -> &() {
        &()
    }
}

impl<T: ?Sized> NoOwner for &Held<T> {}

/// The owner of a text.
#[doc(hidden)]
pub trait Owner<T: ?Sized> {
    fn owner(&self) -> &T;
}

impl<T: TextOwner + ?Sized> Owner<T> for Held<T> {
    fn owner(&self) -> &T {
        unreachable!("only its type is asked for")
    }
}

/// A type whose drop has no effect.
#[doc(hidden)]
pub trait NoDestructor {
    fn dropped(&self) -> &() {
        &()
    }
}

impl<T: Copy> NoDestructor for Held<T> {}

/// One that was not awaited has done nothing.
impl<F, T, E> NoDestructor for Held<OpCall<'_, F, T, E>> {}

/// As [`NoDestructor`], of temporaries: an iterator is on its way to what goes over it.
#[doc(hidden)]
pub trait OnItsWay {
    fn dropped(&self) -> &() {
        &()
    }
}

impl<T: Iterator> OnItsWay for Held<T> {}

/// A type whose drop may have an effect.
#[doc(hidden)]
pub trait Destructor<T> {
    fn dropped(&self) -> &T;
}

impl<T> Destructor<T> for &Held<T> {
    fn dropped(&self) -> &T {
        unreachable!("only its type is asked for")
    }
}

/// Whether a local of this type keeps the fiber in memory while it waits: the drop of what can be
/// saved is not seen.
///
/// Generated code asks this, and [`IsUnsaved`] where it gives no answer.
#[doc(hidden)]
pub trait IsSaved {
    fn stays(&self) -> bool {
        false
    }
}

impl<T: Data> IsSaved for &Held<T> {}

/// As [`IsSaved`]: a guard or the like has to be dropped where its block ends.
#[doc(hidden)]
pub trait IsUnsaved {
    fn stays(&self) -> bool;
}

impl<T> IsUnsaved for Held<T> {
    fn stays(&self) -> bool {
        std::mem::needs_drop::<T>()
    }
}

/// Beside a local that is not saved: whether it keeps the fiber in memory while it waits.
#[doc(hidden)]
#[derive(Debug)]
pub struct Holding {
    run: Arc<Run>,
    stays: Cell<bool>,
}

impl Frame {
    /// For a local that is about to be declared.
    pub fn holding(&self) -> Holding {
        Holding { run: self.run(), stays: Cell::new(false) }
    }
}

impl Holding {
    /// The local has its value.
    pub fn set(&self, stays: bool) {
        if stays && !self.stays.replace(true) {
            self.run.hold();
        }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        if self.stays.get() {
            self.run.release();
        }
    }
}
