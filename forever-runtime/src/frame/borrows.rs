//! Shared borrows that last while a body runs, so that it cannot change the borrowed variables.
use std::marker::PhantomData;

/// Shared borrows of any number of variables, until [`end`](SharedBorrows::end).
///
/// Only the borrow checker sees them. They do nothing at run time, and can be sent to another
/// thread whatever is borrowed.
#[doc(hidden)]
#[derive(Debug)]
pub struct SharedBorrows<'a>(PhantomData<&'a ()>);

impl<'a> SharedBorrows<'a> {
    #[allow(clippy::new_without_default, reason = "only generated code makes one")]
    pub const fn new() -> Self {
        SharedBorrows(PhantomData)
    }

    /// Adds a borrow.
    #[must_use]
    pub const fn and<T: ?Sized>(self, _: &'a T) -> Self {
        self
    }

    /// Ends all borrows.
    pub const fn end(self) {}
}
