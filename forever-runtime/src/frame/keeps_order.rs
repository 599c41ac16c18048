//! Borrowed collections over which a resumed `for` loop can continue: those that keep the order of
//! their items when they are saved and restored.
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, LinkedList, VecDeque};
use std::ops::{Range, RangeFrom, RangeInclusive, RangeTo, RangeToInclusive};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// A collection that has the same order after it was saved and restored.
///
/// `for question in &plan.questions` is resumed by position: after a restart the collection is read
/// from the snapshot, and the finished items are skipped. That requires that the restored
/// collection has the order of the saved one. `Vec`, slices, arrays, `VecDeque`, `BTreeMap`,
/// `BTreeSet`, `Option` and text have it; `HashMap` and `HashSet` do not. A loop over one of those
/// is a compile error. Take the items by value (then the remaining ones are saved, in their order),
/// collect them into a `Vec` first, or use a `BTreeMap`.
///
/// Implement it for a collection of your own if its serde form keeps the order:
///
/// ```
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Playlist {
///     songs: Vec<String>,
/// }
///
/// impl Playlist {
///     fn iter(&self) -> std::slice::Iter<'_, String> {
///         self.songs.iter()
///     }
/// }
///
/// # use forever_runtime as forever;
/// impl forever::fiber::KeepsOrder for Playlist {}
/// ```
#[diagnostic::on_unimplemented(
    message = "a `for` loop over a borrowed `{Self}` cannot be resumed",
    label = "its order may be another after a resume",
    note = "a restored `HashMap`/`HashSet` has another order: loop by value, collect into a `Vec` first, or implement `KeepsOrder` if the order survives being saved"
)]
pub trait KeepsOrder {
    /// The place that a borrowed `for` loop reads, if it can be resumed by position.
    #[doc(hidden)]
    #[inline]
    fn __in_order(&self) -> &Self {
        self
    }

    /// As `__in_order`, for a borrow whose items are taken by value.
    #[doc(hidden)]
    fn __in_order_value(self) -> Self
    where
        Self: Sized,
    {
        self
    }
}

impl<T> KeepsOrder for [T] {}
impl<T, const N: usize> KeepsOrder for [T; N] {}
impl<T> KeepsOrder for Vec<T> {}
impl<T> KeepsOrder for VecDeque<T> {}
impl<T> KeepsOrder for LinkedList<T> {}
impl<T> KeepsOrder for BTreeSet<T> {}
impl<K, V> KeepsOrder for BTreeMap<K, V> {}
impl<T> KeepsOrder for Option<T> {}
impl<T, E> KeepsOrder for Result<T, E> {}
impl KeepsOrder for str {}
impl KeepsOrder for String {}
impl KeepsOrder for Path {}
impl KeepsOrder for PathBuf {}
/// Sorted by key or, with `preserve_order`, in the order of the stored text.
impl KeepsOrder for serde_json::Map<String, serde_json::Value> {}
impl<T> KeepsOrder for Range<T> {}
impl<T> KeepsOrder for RangeFrom<T> {}
impl<T> KeepsOrder for RangeInclusive<T> {}
impl<T> KeepsOrder for RangeTo<T> {}
impl<T> KeepsOrder for RangeToInclusive<T> {}
impl<T: KeepsOrder + ?Sized> KeepsOrder for &T {}
impl<T: KeepsOrder + ?Sized> KeepsOrder for &mut T {}
impl<T: KeepsOrder + ?Sized> KeepsOrder for Box<T> {}
impl<T: KeepsOrder + ?Sized> KeepsOrder for Rc<T> {}
impl<T: KeepsOrder + ?Sized> KeepsOrder for Arc<T> {}
/// The same program provides a resource on every run, so it keeps its order as a constant does.
impl<T: KeepsOrder + ?Sized> KeepsOrder for crate::frame::resources::Res<T> {}
impl<T: KeepsOrder + ToOwned + ?Sized> KeepsOrder for Cow<'_, T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_borrowed_loop_reads_the_place_itself() {
        let boxed: Box<[u8]> = Box::from([1, 2, 3]);
        let seen: Vec<_> = KeepsOrder::__in_order(&boxed).into_iter().enumerate().skip(1).collect();
        assert_eq!(seen, [(1, &2), (2, &3)]);
        let nested = Some(vec![[1, 2], [3, 4]]);
        let first: Vec<_> = KeepsOrder::__in_order(&nested).iter().flatten().map(|pair| KeepsOrder::__in_order(pair)[0]).collect();
        assert_eq!(first, [1, 3]);
        let text = Cow::from("ab");
        assert_eq!(KeepsOrder::__in_order(&text).chars().rev().collect::<String>(), "ba");
        assert_eq!(KeepsOrder::__in_order(&boxed[1..]).iter().rev().copied().collect::<Vec<_>>(), [3, 2]);
    }
}
