//! Whether a variable is whole after some of its fields were used as values, or fields are all that is left of it.
//!
//! Generated code asks by method resolution whether those fields are all `Copy`, and has code for both answers. The code for
//! the other answer stands behind a call whose type has no values: it is never come to, so the compiler does not hold
//! against it that it uses what was moved.
use std::marker::PhantomData;

/// A type without values.
#[doc(hidden)]
#[derive(Debug)]
pub enum Nothing {}

/// The type of a field; `Copy` as that type is.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Seen<T>(PhantomData<T>);

/// The type of this field.
#[doc(hidden)]
pub fn seen<T>(_: &T) -> Seen<T> {
    Seen(PhantomData)
}

/// The fields that were used as values.
#[doc(hidden)]
#[derive(Debug)]
pub struct Evidence<T>(PhantomData<T>);

/// The types of these fields.
#[doc(hidden)]
pub fn evidence<T>(_: T) -> Evidence<T> {
    Evidence(PhantomData)
}

/// The answer that all of them were copied.
#[doc(hidden)]
pub trait Copied {
    fn choice(&self) -> Whole {
        Whole
    }
}

impl<T: Copy> Copied for Evidence<T> {}

/// The answer that some were moved.
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

/// Fields are all that is left of it.
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
