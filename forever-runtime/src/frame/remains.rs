//! Whether a variable is still whole after some of its fields were used as values, or only fields
//! remain.
//!
//! Generated code asks by method resolution whether those fields are all `Copy`, and has code for
//! both answers. The code for the wrong answer follows a call whose type has no values. It is
//! unreachable, so the compiler does not reject its use of moved fields.
use std::marker::PhantomData;

/// A type without values.
#[doc(hidden)]
#[derive(Debug)]
pub enum Nothing {}

/// The type of a field; `Copy` if that type is.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Seen<T>(PhantomData<T>);

/// Returns the type of this field.
#[doc(hidden)]
pub fn seen<T>(_: &T) -> Seen<T> {
    Seen(PhantomData)
}

/// The fields that were used as values.
#[doc(hidden)]
#[derive(Debug)]
pub struct Evidence<T>(PhantomData<T>);

/// Returns the types of these fields.
#[doc(hidden)]
pub fn evidence<T>(_: T) -> Evidence<T> {
    Evidence(PhantomData)
}

/// All of them were copied.
#[doc(hidden)]
pub trait Copied {
    fn choice(&self) -> Whole {
        Whole
    }
}

impl<T: Copy> Copied for Evidence<T> {}

/// Some of them were moved.
#[doc(hidden)]
pub trait Moved {
    fn choice(&self) -> Fields {
        Fields
    }
}

impl<T> Moved for &Evidence<T> {}

/// The variable is whole.
#[doc(hidden)]
#[derive(Debug, Default, Clone, Copy)]
pub struct Whole;

/// Only fields of the variable remain.
#[doc(hidden)]
#[derive(Debug, Default, Clone, Copy)]
pub struct Fields;

#[allow(clippy::must_use_candidate, clippy::unused_self)]
impl Whole {
    pub const fn is_whole(self) -> bool {
        true
    }

    pub const fn only_whole(self) {}

    pub fn only_fields(self) -> Nothing {
        unreachable!("it is whole")
    }

    pub fn whole<T>(self, whole: T) -> T {
        whole
    }

    pub fn fields<F, T>(self, _: F) -> T {
        unreachable!("it is whole")
    }
}

#[allow(clippy::must_use_candidate, clippy::unused_self)]
impl Fields {
    pub const fn is_whole(self) -> bool {
        false
    }

    pub fn only_whole(self) -> Nothing {
        unreachable!("fields of it were moved")
    }

    pub const fn only_fields(self) {}

    pub fn whole<T, F>(self, _: T) -> F {
        unreachable!("fields of it were moved")
    }

    pub fn fields<F>(self, fields: F) -> F {
        fields
    }
}
