//! Codecs: how values of a type are written and read.
use crate::frame::locals::{Locals, Restore, Unreadable};
use crate::frame::saved::{Saved, checked, unreadable};
use crate::guard::guarded;
use crate::runtime::type_checks::Check;

/// How values of a type are written and read.
///
/// Generated code hands it to the runtime with a value. It comes from a trait of the variable's or
/// the cut point's own, so that the error for a type without one names that; what takes it requires
/// nothing of the type.
#[doc(hidden)]
pub struct Codec<T> {
    saved: fn(&T) -> &dyn Saved,
    restore: Restore<T>,
    check: Check,
}

impl<T> Clone for Codec<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Codec<T> {}

impl<T> std::fmt::Debug for Codec<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Codec<{}>", std::any::type_name::<T>())
    }
}

impl<T: Saved> Codec<T> {
    /// The codec of a type that can be saved.
    #[must_use]
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Codec {
            saved: |value| value,
            restore: T::restore,
            check: |text| guarded(|| T::restore(text, None).map(drop)).map_err(unreadable::<T>),
        }
    }
}

impl<T> Codec<T> {
    /// The value, as what a snapshot can hold.
    pub fn kept(self, value: &T) -> &dyn Saved
    where
        T: 'static,
    {
        (self.saved)(value)
    }

    /// The value of a local that is in the snapshot.
    pub fn get(self, saved: &mut Locals, name: &str) -> Result<T, Unreadable> {
        saved.read(name, self.restore)
    }

    /// The value of a local that only some cut points keep.
    pub fn maybe(self, saved: &mut Locals, name: &str) -> Result<Option<T>, Unreadable> {
        saved.read_maybe(name, self.restore)
    }

    /// The stored text of a value; debug builds verify that it can be read back.
    pub(crate) fn save(self, value: &T) -> Result<String, String> {
        let saved = (self.saved)(value);
        checked(saved, saved.save())
    }

    pub(crate) fn restore(self, text: &str) -> Result<T, String> {
        (self.restore)(text, None).map(|(value, _)| value)
    }

    /// Checks that a text is a value of the type, and says what it is otherwise.
    pub(crate) fn check(self) -> Check {
        self.check
    }
}
