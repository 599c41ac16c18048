//! Iterators whose items a `for` loop by value may collect when it begins, because they exist
//! already.
use std::char::{ToLowercase, ToUppercase};
use std::collections::{binary_heap, btree_map, btree_set, hash_map, hash_set, linked_list, vec_deque};
use std::iter::{
    Chain, Cloned, Copied, Cycle, Empty, Enumerate, Flatten, Fuse, Once, Peekable, Repeat, RepeatN, Rev, Skip, StepBy, Take, Zip,
};
use std::ops::{Range, RangeFrom, RangeInclusive};
use std::{array, option, path, result, slice, str, string, vec};

/// An iterator that can be collected early: it is finite, and taking its items has no other effect.
///
/// A `for` loop by value with a step in it, and `steps!(for ..)`, collect their items when they
/// begin and save the remaining ones at each step. This must not be observable: a plain loop takes
/// its items one by one. It holds for the iterators of containers, for ranges, and for the adaptors
/// `rev`, `enumerate`, `skip`, `take`, `step_by`, `zip`, `chain`, `copied`, `cloned`, `peekable`,
/// `fuse` and `flatten` over them. It does not hold for iterators that call a closure (`map`,
/// `filter`, `from_fn`, `successors`), wait, read, or never end. A loop over one of those does not
/// compile. There are two ways out:
///
/// - `for item in items.iter().map(price).collect::<Vec<_>>()` makes the early collection explicit;
/// - `while let Some(item) = next(&mut state)` with a state that can be saved.
///
/// Implement it for the iterator of a container of your own:
///
/// ```
/// struct Deck(Vec<u8>);
/// struct Cards(std::vec::IntoIter<u8>);
///
/// impl Iterator for Cards {
///     type Item = u8;
///     fn next(&mut self) -> Option<u8> {
///         self.0.next()
///     }
/// }
///
/// impl IntoIterator for Deck {
///     type Item = u8;
///     type IntoIter = Cards;
///     fn into_iter(self) -> Cards {
///         Cards(self.0.into_iter())
///     }
/// }
///
/// # use forever_runtime as forever;
/// impl forever::fiber::EagerIterator for Cards {}
/// ```
#[diagnostic::on_unimplemented(
    message = "a loop over `{Self}` cannot be resumed: it is neither a container nor an iterator that only walks one",
    label = "what is left of its items cannot be saved",
    note = "collect the items first, `.collect::<Vec<_>>()` (behind `.take(n)` if they never end), or take them with `while let Some(item) = ..`",
    note = "for an iterator that only walks a container of your own, implement `EagerIterator`"
)]
pub trait EagerIterator: Iterator {}

/// One line per iterator: its parameters in brackets, then the type.
macro_rules! eager {
    ($([$($parameters:tt)*] $iterator:ty;)*) => { $(impl<$($parameters)*> EagerIterator for $iterator where Self: Iterator {})* };
}

eager! {
    // Ranges.
    [T] Range<T>;
    [T] RangeInclusive<T>;
    // Sequences.
    [T] vec::IntoIter<T>;
    [T] vec::Drain<'_, T>;
    [T, const N: usize] array::IntoIter<T, N>;
    [T] slice::Iter<'_, T>;
    [T] slice::Chunks<'_, T>;
    [T] slice::ChunksExact<'_, T>;
    [T] slice::RChunks<'_, T>;
    [T] slice::RChunksExact<'_, T>;
    [T] slice::Windows<'_, T>;
    [T] vec_deque::IntoIter<T>;
    [T] vec_deque::Iter<'_, T>;
    [T] vec_deque::Drain<'_, T>;
    [T] linked_list::IntoIter<T>;
    [T] linked_list::Iter<'_, T>;
    [T] binary_heap::IntoIter<T>;
    [T] binary_heap::Iter<'_, T>;
    [T] binary_heap::Drain<'_, T>;
    [T] option::IntoIter<T>;
    [T] option::Iter<'_, T>;
    [T] result::IntoIter<T>;
    [T] result::Iter<'_, T>;
    // Maps and sets.
    [K, V] btree_map::IntoIter<K, V>;
    [K, V] btree_map::IntoKeys<K, V>;
    [K, V] btree_map::IntoValues<K, V>;
    [K, V] btree_map::Iter<'_, K, V>;
    [K, V] btree_map::Keys<'_, K, V>;
    [K, V] btree_map::Values<'_, K, V>;
    [K, V] btree_map::Range<'_, K, V>;
    [T] btree_set::IntoIter<T>;
    [T] btree_set::Iter<'_, T>;
    [T] btree_set::Range<'_, T>;
    [T] btree_set::Union<'_, T>;
    [T] btree_set::Intersection<'_, T>;
    [T] btree_set::Difference<'_, T>;
    [T] btree_set::SymmetricDifference<'_, T>;
    [K, V] hash_map::IntoIter<K, V>;
    [K, V] hash_map::IntoKeys<K, V>;
    [K, V] hash_map::IntoValues<K, V>;
    [K, V] hash_map::Iter<'_, K, V>;
    [K, V] hash_map::Keys<'_, K, V>;
    [K, V] hash_map::Values<'_, K, V>;
    [K, V] hash_map::Drain<'_, K, V>;
    [T] hash_set::IntoIter<T>;
    [T] hash_set::Iter<'_, T>;
    [T] hash_set::Drain<'_, T>;
    [T, S] hash_set::Union<'_, T, S>;
    [T, S] hash_set::Intersection<'_, T, S>;
    [T, S] hash_set::Difference<'_, T, S>;
    [T, S] hash_set::SymmetricDifference<'_, T, S>;
    [] serde_json::map::IntoIter;
    [] serde_json::map::IntoValues;
    [] serde_json::map::Iter<'_>;
    [] serde_json::map::Keys<'_>;
    [] serde_json::map::Values<'_>;
    // Text.
    [] str::Chars<'_>;
    [] str::CharIndices<'_>;
    [] str::Bytes<'_>;
    [] str::Lines<'_>;
    [] str::SplitWhitespace<'_>;
    [] str::SplitAsciiWhitespace<'_>;
    [] str::EncodeUtf16<'_>;
    [] string::Drain<'_>;
    [] path::Components<'_>;
    [] path::Iter<'_>;
    [] path::Ancestors<'_>;
    [] ToLowercase;
    [] ToUppercase;
    // A few items.
    [T] Empty<T>;
    [T] Once<T>;
    [T] RepeatN<T>;
    // Adaptors that take no closure.
    [I: EagerIterator] Rev<I>;
    [I: EagerIterator] Enumerate<I>;
    [I: EagerIterator] Skip<I>;
    [I: EagerIterator] Take<I>;
    [I: EagerIterator] StepBy<I>;
    [I: EagerIterator] Copied<I>;
    [I: EagerIterator] Cloned<I>;
    [I: EagerIterator + Iterator] Peekable<I>;
    [I: EagerIterator] Fuse<I>;
    [I: EagerIterator + Iterator<Item: IntoIterator<IntoIter: EagerIterator>>] Flatten<I>;
    [A: EagerIterator, B: EagerIterator] Zip<A, B>;
    [A: EagerIterator, B: EagerIterator] Chain<A, B>;
}

/// Iterators that split text at a pattern other than a closure.
macro_rules! split {
    ($([$($parameters:tt)*] $pattern:ty),* $(,)?) => { $(
        eager! {
            [$($parameters)*] str::Split<'_, $pattern>;
            [$($parameters)*] str::SplitInclusive<'_, $pattern>;
            [$($parameters)*] str::SplitTerminator<'_, $pattern>;
            [$($parameters)*] str::SplitN<'_, $pattern>;
            [$($parameters)*] str::Matches<'_, $pattern>;
            [$($parameters)*] str::MatchIndices<'_, $pattern>;
            [$($parameters)*] str::RSplit<'_, $pattern>;
            [$($parameters)*] str::RSplitTerminator<'_, $pattern>;
            [$($parameters)*] str::RSplitN<'_, $pattern>;
            [$($parameters)*] str::RMatches<'_, $pattern>;
            [$($parameters)*] str::RMatchIndices<'_, $pattern>;
        }
    )* };
}

split! { [] char, [] &str, [] &String, [] &&str, [] &[char], [const N: usize] [char; N], [const N: usize] &[char; N] }

/// Infinite iterators that another one ends.
macro_rules! ended {
    ($([$($parameters:tt)*] $endless:ty),* $(,)?) => { $(
        eager! {
            [$($parameters)*] Take<$endless>;
            [$($parameters)*] Take<Skip<$endless>>;
            [$($parameters)*] Take<StepBy<$endless>>;
            [$($parameters)*] Take<Enumerate<$endless>>;
            [ZIPPED: EagerIterator, $($parameters)*] Zip<ZIPPED, $endless>;
            [ZIPPED: EagerIterator, $($parameters)*] Zip<$endless, ZIPPED>;
            [ZIPPED: EagerIterator, $($parameters)*] Zip<ZIPPED, Skip<$endless>>;
            [ZIPPED: EagerIterator, $($parameters)*] Zip<ZIPPED, StepBy<$endless>>;
        }
    )* };
}

ended! { [T] RangeFrom<T>, [T] Repeat<T>, [I: EagerIterator] Cycle<I> }

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap, HashSet};

    use super::*;

    /// Compiles for what a loop may collect.
    fn count<I: IntoIterator<IntoIter: EagerIterator>>(items: I) -> usize {
        items.into_iter().count()
    }

    #[test]
    fn containers_and_ranges_are_eager() {
        let (list, text) = (vec![3, 4, 5], "one two\nthree");
        let map = BTreeMap::from([(1, "a"), (2, "b")]);
        let hashed: HashMap<u32, u32> = [(1, 2)].into();
        let json: serde_json::Map<String, serde_json::Value> = [("a".to_owned(), 1.into())].into_iter().collect();
        assert_eq!([count(0..3), count(0..=3), count(list.clone()), count(&list), count([1; 4]), count(Some(1))], [3, 4, 3, 3, 4, 1]);
        assert_eq!([count(map.keys()), count(map.range(2..)), count(map.into_values()), count(hashed.clone())], [2, 1, 2, 1]);
        assert_eq!([count(&HashSet::from([1]) - &HashSet::from([2])), count(&json), count(json.values()), count(json)], [1, 1, 1, 1]);
        assert_eq!([count(text.chars()), count(text.bytes()), count(text.lines()), count(text.split_whitespace())], [13, 13, 2, 3]);
        assert_eq!(
            [count(text.split(' ')), count(text.split("ee")), count(text.rsplit(['t', 'w'])), count(text.splitn(2, '\n'))],
            [2, 2, 4, 2]
        );
        assert_eq!(
            [count(list.chunks(2)), count(list.windows(2)), count(list.clone().drain(1..)), count('ß'.to_uppercase())],
            [2, 2, 2, 2]
        );
    }

    #[test]
    fn adaptors_without_closures_stay_eager() {
        let list = vec![vec![1, 2], vec![3]];
        assert_eq!(count(list.clone().into_iter().rev().enumerate().skip(1)), 1);
        assert_eq!(count(list.iter().flatten().copied().step_by(2)), 2);
        assert_eq!(count(list.iter().chain(&list).cloned().peekable().fuse()), 4);
        assert_eq!(count(list.into_iter().zip("ab".chars()).take(5)), 2);
    }

    #[test]
    fn what_never_ends_may_be_ended_by_something_else() {
        let list = [1, 2, 3];
        assert_eq!(count(list.iter().cycle().take(7)), 7);
        assert_eq!(count((1..).take(2)), 2);
        assert_eq!(count((1..).step_by(2).take(2)), 2);
        assert_eq!(count(std::iter::repeat("x").zip(0..2)), 2);
        assert_eq!([count(list.iter().zip(1..)), count((1..).zip(list)), count(list.iter().zip([0].iter().cycle()))], [3, 3, 3]);
    }
}
