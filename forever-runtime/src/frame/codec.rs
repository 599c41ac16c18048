//! Codecs: how values of a type are written and read.
use std::any::Any;
use std::ops::RangeInclusive;

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
        match spent(value) {
            Some(empty) => empty,
            None => (self.saved)(value),
        }
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

/// The empty range in place of an inclusive one whose last item was taken, which serde writes as if
/// it were not.
fn spent(value: &dyn Any) -> Option<&'static dyn Saved> {
    macro_rules! spent {
        ($($ty:ty: $empty:expr),*) => {$(
            if let Some(range) = value.downcast_ref::<RangeInclusive<$ty>>() {
                #[allow(clippy::reversed_empty_ranges, reason = "it is meant to be empty")]
                return if range.is_empty() { Some(const { &$empty }) } else { None };
            }
        )*};
    }
    spent! {
        u8: 1..=0, u16: 1..=0, u32: 1..=0, u64: 1..=0, u128: 1..=0, usize: 1..=0,
        i8: 1..=0, i16: 1..=0, i32: 1..=0, i64: 1..=0, i128: 1..=0, isize: 1..=0,
        char: 'b'..='a'
    }
    None
}

/// Whether ranges of a type are saved with whether their last item was taken.
pub(super) fn is_range_with_its_end(type_name: &str) -> bool {
    const ITEMS: [&str; 13] = ["u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize", "char"];
    let of = type_name.strip_prefix("core::ops::range::RangeInclusive<").and_then(|rest| rest.strip_suffix('>'));
    of.is_some_and(|of| ITEMS.contains(&of))
}

/// Whether values of this type are handles of one value that changes.
pub(super) fn is_shared_and_changes(type_name: &str) -> bool {
    const CHANGES: [&str; 6] = ["Mutex", "RwLock", "RefCell", "Cell", "OnceCell", "OnceLock"];
    let mut inner = type_name;
    while let Some(rest) = ["core::option::Option<", "alloc::vec::Vec<", "("].iter().find_map(|outer| inner.strip_prefix(outer)) {
        inner = rest;
    }
    let Some(of) = ["alloc::sync::Arc<", "alloc::rc::Rc<"].iter().find_map(|shared| inner.strip_prefix(shared)) else { return false };
    let path = of.split(['<', '>', ',']).next().unwrap_or_default();
    let name = path.rsplit("::").next().unwrap_or_default();
    ["std::", "core::"].iter().any(|library| path.starts_with(library)) && (CHANGES.contains(&name) || name.starts_with("Atomic"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_what_is_shared_and_changes_are_those_of_the_compiler() {
        use std::cell::{Cell, RefCell};
        use std::rc::Rc;
        use std::sync::atomic::AtomicU64;
        use std::sync::{Arc, Mutex, OnceLock, RwLock};

        struct RefCounted;
        let is = [
            std::any::type_name::<Arc<Mutex<u32>>>(),
            std::any::type_name::<Vec<Arc<RwLock<RefCounted>>>>(),
            std::any::type_name::<(Option<Arc<AtomicU64>>, u32)>(),
            std::any::type_name::<Rc<RefCell<String>>>(),
            std::any::type_name::<Rc<Cell<u8>>>(),
            std::any::type_name::<Arc<OnceLock<u8>>>(),
        ];
        assert!(is.iter().all(|name| is_shared_and_changes(name)), "{is:?}");
        let is_not =
            [std::any::type_name::<Arc<str>>(), std::any::type_name::<Mutex<u32>>(), std::any::type_name::<Arc<Vec<Mutex<RefCounted>>>>()];
        assert!(!is_not.iter().any(|name| is_shared_and_changes(name)), "{is_not:?}");
    }

    #[test]
    fn names_of_ranges_are_those_of_the_compiler() {
        assert!(is_range_with_its_end(std::any::type_name::<RangeInclusive<u32>>()));
        assert!(is_range_with_its_end(std::any::type_name::<RangeInclusive<char>>()));
        assert!(!is_range_with_its_end(std::any::type_name::<Option<RangeInclusive<u32>>>()));
        assert!(!is_range_with_its_end(std::any::type_name::<RangeInclusive<String>>()));
    }
}
