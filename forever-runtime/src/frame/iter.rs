//! The remaining items of a `for` loop by value, saved between its rounds.
//!
//! `for PAT in EXPR { body }` becomes `let mut rest = Source(EXPR).rest();` and
//! `while let Some(PAT) = rest.next() { body }`, and `rest` is saved like any local. Ranges keep
//! their ends, so that `0..1_000_000` costs the same as `0..3`. Every other [`EagerIterator`] is
//! collected when the loop begins and keeps the remaining items in their order, which also makes a
//! loop over a `HashMap` resumable. Lazy iterators, in which early collection could be observed,
//! are refused.
//!
//! [`Source`] chooses by method resolution: an inherent `rest` for each kind of range, and behind a
//! `Deref` the one for any `IntoIterator`. Item types are never spelled out, so rustc infers the
//! same types as for the plain loop.
use std::collections::VecDeque;
use std::iter::{Rev, StepBy};
use std::ops::{Deref, DerefMut, Range, RangeFrom, RangeInclusive};

use serde::{Deserialize, Deserializer, Serialize};

use crate::frame::codec::Codec;
use crate::frame::eager::EagerIterator;

/// Maximum number of items that a loop may keep. Beyond it every checkpoint would write megabytes.
const LIMIT: usize = 1_000_000;

/// The expression after `in`.
#[doc(hidden)]
#[derive(Debug)]
pub struct Source<I> {
    any: AnySource<I>,
}

/// The expression after `in`, as an `IntoIterator`. `None` once `rest` was called.
#[doc(hidden)]
#[derive(Debug)]
pub struct AnySource<I>(Option<I>);

/// Wraps the expression after `in`.
#[doc(hidden)]
#[allow(non_snake_case, reason = "generated code reads as a constructor call")]
pub fn Source<I>(source: I) -> Source<I> {
    Source { any: AnySource(Some(source)) }
}

impl<I> Source<I> {
    fn into_inner(self) -> I {
        self.any.into_inner()
    }
}

impl<I> AnySource<I> {
    fn into_inner(self) -> I {
        self.0.expect("a source is taken once, right after it is made")
    }
}

impl<I> Deref for Source<I> {
    type Target = AnySource<I>;
    fn deref(&self) -> &AnySource<I> {
        &self.any
    }
}

impl<I> DerefMut for Source<I> {
    fn deref_mut(&mut self) -> &mut AnySource<I> {
        &mut self.any
    }
}

/// The remaining items.
#[doc(hidden)]
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Items<T> {
    Rest(VecDeque<T>),
}

/// The remaining items of a loop, which can be saved if the items can.
#[doc(hidden)]
pub trait Remaining: Sized {
    type Item;

    fn codec() -> Codec<Self>
    where
        Self::Item: Serialize + Deserialize<'static>;
}

macro_rules! remaining {
    ($($rest:ident),*) => {$(
        #[diagnostic::do_not_recommend]
        impl<T> Remaining for $rest<T> {
            type Item = T;

            fn codec() -> Codec<Self>
            where
                T: Serialize + Deserialize<'static>,
            {
                Codec::new()
            }
        }
    )*};
}
remaining!(Items, RangeRest, InclusiveRest, OpenRest, DownRest, StepRest);

impl<I> AnySource<I> {
    /// Collects the items.
    ///
    /// The bounds are on the method, and the item is a type parameter of its own, so that a loop
    /// over something else gets the compiler's "is not an iterator" exactly once.
    ///
    /// # Panics
    /// When there are more items than a snapshot should hold.
    #[track_caller]
    pub fn rest<T>(&mut self) -> Items<T>
    where
        I: IntoIterator<Item = T>,
        I::IntoIter: EagerIterator,
    {
        Items::Rest(all(AnySource(self.0.take()).into_inner()))
    }
}

/// The collected items of a `steps!(for ..)`.
///
/// # Panics
/// When there are more items than a snapshot should hold.
#[doc(hidden)]
#[track_caller]
pub fn collected<I>(items: I) -> Vec<I::Item>
where
    I: IntoIterator,
    I::IntoIter: EagerIterator,
{
    all(items).into()
}

#[track_caller]
fn all<I: IntoIterator>(items: I) -> VecDeque<I::Item> {
    let items = items.into_iter();
    let (at_least, at_most) = items.size_hint();
    let items: VecDeque<I::Item> = if at_least > LIMIT {
        too_many()
    } else if at_most.is_some_and(|most| most <= LIMIT) {
        items.collect()
    } else {
        items.take(LIMIT + 1).collect()
    };
    if items.len() > LIMIT { too_many() } else { items }
}

/// Implemented by no type: explains why `for x in iterator.by_ref()` is refused.
///
/// Collecting would exhaust an iterator from which the plain loop takes only some items before a
/// `break`.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a `for` loop over a borrowed iterator cannot be resumed",
    label = "the iterator behind this borrow is not kept",
    note = "loop over the iterator itself, or take its items with `while let Some(item) = iterator.next()`"
)]
pub trait OwnedIterator {}

impl<'a, I: Iterator + ?Sized> Source<&'a mut I> {
    pub fn rest(self) -> Items<I::Item>
    where
        &'a mut I: OwnedIterator,
    {
        Items::Rest(self.into_inner().collect())
    }
}

#[track_caller]
fn too_many() -> ! {
    panic!(
        "`for` over an iterator of more than {LIMIT} items cannot be kept across a step; \
         loop over a range and index, or use `while let`"
    )
}

#[allow(clippy::should_implement_trait, reason = "inherent, so that no trait of the user's is chosen instead")]
impl<T> Items<T> {
    pub fn next(&mut self) -> Option<T> {
        let Items::Rest(items) = self;
        items.pop_front()
    }
}

/// The rest of `a..b`.
#[doc(hidden)]
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum RangeRest<T> {
    Range { next: T, end: T },
}

impl<T: Clone> Source<Range<T>>
where
    Range<T>: Iterator<Item = T>,
{
    pub fn rest(self) -> RangeRest<T> {
        let Range { start, end } = self.into_inner();
        RangeRest::Range { next: start, end }
    }
}

#[allow(clippy::should_implement_trait, reason = "inherent, so that no trait of the user's is chosen instead")]
impl<T: Clone> RangeRest<T>
where
    Range<T>: Iterator<Item = T>,
{
    pub fn next(&mut self) -> Option<T> {
        let RangeRest::Range { next, end } = self;
        let mut range = next.clone()..end.clone();
        let item = range.next();
        *next = range.start;
        item
    }
}

/// The rest of `a..=b`. `next` is `None` after the last item, a state that no pair of ends can
/// express.
#[doc(hidden)]
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum InclusiveRest<T> {
    Range {
        #[serde(deserialize_with = "present", bound(deserialize = "T: Deserialize<'de>"))]
        next: Option<T>,
        last: T,
    },
}

impl<T: Clone + PartialOrd> Source<RangeInclusive<T>>
where
    RangeInclusive<T>: Iterator<Item = T>,
{
    pub fn rest(self) -> InclusiveRest<T> {
        let range = self.into_inner();
        InclusiveRest::Range { next: first_of(&range), last: range.end().clone() }
    }
}

#[allow(clippy::should_implement_trait, reason = "inherent, so that no trait of the user's is chosen instead")]
impl<T: Clone + PartialOrd> InclusiveRest<T>
where
    RangeInclusive<T>: Iterator<Item = T>,
{
    pub fn next(&mut self) -> Option<T> {
        let InclusiveRest::Range { next, last } = self;
        let mut range = next.take()?..=last.clone();
        let item = range.next();
        *next = first_of(&range);
        item
    }
}

/// An `Option` whose field must be present: the rest of one kind of loop must not be read as that
/// of another.
fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(value: D) -> Result<Option<T>, D::Error> {
    Option::deserialize(value)
}

/// Whether the rest of a loop is empty, by its stored text; `false` where only the type could tell.
pub(crate) fn is_over(text: &str) -> bool {
    let Ok(value) = serde_json::from_str::<serde_json::Value>(text) else { return false };
    if let Some(items) = value.get("rest").and_then(|rest| rest.as_array()) {
        return items.is_empty();
    }
    let Some(range) = value.get("range").and_then(|range| range.as_object()) else { return false };
    let number = |name| range.get(name).and_then(|end: &serde_json::Value| end.as_i64());
    match (number("next"), number("end")) {
        (Some(next), Some(end)) => next >= end,
        _ => range.get("next").is_some_and(serde_json::Value::is_null) || range.get("down_to").is_some_and(serde_json::Value::is_null),
    }
}

fn first_of<T: Clone + PartialOrd>(range: &RangeInclusive<T>) -> Option<T> {
    (!range.is_empty()).then(|| range.start().clone())
}

/// The rest of `a..`.
#[doc(hidden)]
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum OpenRest<T> {
    Range { next: T },
}

impl<T: Clone> Source<RangeFrom<T>>
where
    RangeFrom<T>: Iterator<Item = T>,
{
    pub fn rest(self) -> OpenRest<T> {
        OpenRest::Range { next: self.into_inner().start }
    }
}

#[allow(clippy::should_implement_trait, reason = "inherent, so that no trait of the user's is chosen instead")]
impl<T: Clone> OpenRest<T>
where
    RangeFrom<T>: Iterator<Item = T>,
{
    /// Overflows as the plain range does.
    pub fn next(&mut self) -> Option<T> {
        let OpenRest::Range { next } = self;
        let mut range = next.clone()..;
        let item = range.next();
        *next = range.start;
        item
    }
}

/// The rest of `(a..b).rev()` or `(a..=b).rev()`; both fields are `None` at the end.
#[doc(hidden)]
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum DownRest<T> {
    Range {
        #[serde(deserialize_with = "present", bound(deserialize = "T: Deserialize<'de>"))]
        next: Option<T>,
        #[serde(deserialize_with = "present", bound(deserialize = "T: Deserialize<'de>"))]
        down_to: Option<T>,
    },
}

impl<T: Clone + PartialOrd> Source<Rev<Range<T>>>
where
    Rev<Range<T>>: DoubleEndedIterator<Item = T>,
{
    pub fn rest(self) -> DownRest<T> {
        down(&self.into_inner())
    }
}

impl<T: Clone + PartialOrd> Source<Rev<RangeInclusive<T>>>
where
    Rev<RangeInclusive<T>>: DoubleEndedIterator<Item = T>,
{
    pub fn rest(self) -> DownRest<T> {
        down(&self.into_inner())
    }
}

fn down<T>(range: &(impl DoubleEndedIterator<Item = T> + Clone)) -> DownRest<T> {
    DownRest::Range { next: range.clone().next(), down_to: range.clone().next_back() }
}

#[allow(clippy::should_implement_trait, reason = "inherent, so that no trait of the user's is chosen instead")]
impl<T: Clone + PartialOrd> DownRest<T>
where
    RangeInclusive<T>: DoubleEndedIterator<Item = T>,
{
    pub fn next(&mut self) -> Option<T> {
        let DownRest::Range { next, down_to } = self;
        let mut range = down_to.clone()?..=next.take()?;
        let item = range.next_back();
        if range.is_empty() {
            *down_to = None;
        } else {
            *next = Some(range.end().clone());
        }
        item
    }
}

/// The rest of `(a..b).step_by(n)` or `(a..=b).step_by(n)`.
#[doc(hidden)]
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum StepRest<T> {
    Range {
        #[serde(deserialize_with = "present", bound(deserialize = "T: Deserialize<'de>"))]
        next: Option<T>,
        #[serde(deserialize_with = "present", bound(deserialize = "T: Deserialize<'de>"))]
        last: Option<T>,
        step: usize,
    },
}

impl<T: Clone> Source<StepBy<Range<T>>>
where
    StepBy<Range<T>>: Iterator<Item = T>,
    Range<T>: Iterator<Item = T>,
{
    #[track_caller]
    pub fn rest(self) -> StepRest<T> {
        stepped(&self.into_inner())
    }
}

impl<T: Clone> Source<StepBy<RangeInclusive<T>>>
where
    StepBy<RangeInclusive<T>>: Iterator<Item = T>,
    Range<T>: Iterator<Item = T>,
{
    #[track_caller]
    pub fn rest(self) -> StepRest<T> {
        stepped(&self.into_inner())
    }
}

/// `StepBy` does not expose its range, so its items are looked up; over a range each takes constant
/// time.
#[track_caller]
fn stepped<T: Clone>(range: &(impl Iterator<Item = T> + Clone)) -> StepRest<T>
where
    Range<T>: Iterator<Item = T>,
{
    // Only a range of more than `usize::MAX` items has no upper bound here.
    let Some(count) = range.size_hint().1 else { too_many() };
    let next = range.clone().next();
    let last = count.checked_sub(1).and_then(|place| range.clone().nth(place));
    let step = match (&next, range.clone().nth(1)) {
        (Some(first), Some(second)) => (first.clone()..second).size_hint().0,
        _ => 1,
    };
    StepRest::Range { next, last, step }
}

#[allow(clippy::should_implement_trait, reason = "inherent, so that no trait of the user's is chosen instead")]
impl<T: Clone> StepRest<T>
where
    RangeInclusive<T>: Iterator<Item = T>,
{
    pub fn next(&mut self) -> Option<T> {
        let StepRest::Range { next, last, step } = self;
        let item = next.take()?;
        *next = (item.clone()..=last.clone()?).nth(*step);
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use super::*;
    use crate::exact;

    /// Takes everything, saved and restored before each item; gives the items and the texts.
    macro_rules! taken {
        ($source:expr) => {{
            let mut rest = Source($source).rest();
            let mut items = Vec::new();
            loop {
                let text = exact::to_string(&rest).unwrap();
                restore(&mut rest, &text);
                let Some(item) = rest.next() else { break };
                items.push(item);
                assert!(items.len() < 2000, "it does not end");
            }
            assert_eq!(rest.next(), None, "it stays at its end");
            items
        }};
    }

    fn restore<T: serde::de::DeserializeOwned>(rest: &mut T, text: &str) {
        *rest = exact::from_str(text).unwrap();
    }

    fn text(value: &impl Serialize) -> String {
        exact::to_string(value).unwrap()
    }

    #[test]
    fn every_range_of_small_integers_gives_what_the_plain_loop_gives() {
        let ends = [0u8, 1, 2, 3, 127, 128, 253, 254, 255];
        for a in ends {
            for b in ends {
                assert_eq!(taken!(a..b), (a..b).collect::<Vec<_>>());
                assert_eq!(taken!(a..=b), (a..=b).collect::<Vec<_>>());
                assert_eq!(taken!((a..b).rev()), (a..b).rev().collect::<Vec<_>>());
                assert_eq!(taken!((a..=b).rev()), (a..=b).rev().collect::<Vec<_>>());
                for step in [1, 2, 3, 100, 255, 256, usize::MAX] {
                    assert_eq!(taken!((a..b).step_by(step)), (a..b).step_by(step).collect::<Vec<_>>(), "{a}..{b} by {step}");
                    assert_eq!(taken!((a..=b).step_by(step)), (a..=b).step_by(step).collect::<Vec<_>>(), "{a}..={b} by {step}");
                }
            }
        }
        for (a, b) in [(i8::MIN, i8::MAX), (-3, 3), (3, -3)] {
            assert_eq!(taken!(a..=b), (a..=b).collect::<Vec<_>>());
            assert_eq!(taken!((a..=b).step_by(200)), (a..=b).step_by(200).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_range_with_more_than_its_ends_is_not_read() {
        let read = |text: &str| exact::from_str::<RangeRest<u32>>(text);
        assert!(read(r#"{"range":{"next":1,"end":3}}"#).is_ok());
        let why = read(r#"{"range":{"next":1,"end":3,"step":2}}"#).unwrap_err().to_string();
        assert!(why.contains("unknown field `step`"), "{why}");
    }

    #[test]
    fn what_is_left_of_one_kind_of_loop_is_not_read_as_that_of_another() {
        let texts = [
            text(&Source(0..3).rest()),
            text(&Source(0..=3).rest()),
            text(&Source(0..).rest()),
            text(&Source((0..3).rev()).rest()),
            text(&Source((0..3).step_by(2)).rest()),
            text(&Source(vec![0, 1, 2]).rest()),
        ];
        let readers: [fn(&str) -> bool; 6] = [
            |text| exact::from_str::<RangeRest<i32>>(text).is_ok(),
            |text| exact::from_str::<InclusiveRest<i32>>(text).is_ok(),
            |text| exact::from_str::<OpenRest<i32>>(text).is_ok(),
            |text| exact::from_str::<DownRest<i32>>(text).is_ok(),
            |text| exact::from_str::<StepRest<i32>>(text).is_ok(),
            |text| exact::from_str::<Items<i32>>(text).is_ok(),
        ];
        for (written, text) in texts.iter().enumerate() {
            for (read, reads) in readers.iter().enumerate() {
                assert_eq!(reads(text), written == read, "{text} read as kind {read}");
            }
            assert!(!is_over(text), "{text}");
        }
    }

    #[test]
    fn a_loop_that_is_over_is_seen_to_be_by_its_text() {
        macro_rules! at_its_end {
            ($source:expr) => {{
                let mut rest = Source($source).rest();
                while rest.next().is_some() {}
                text(&rest)
            }};
        }
        let ends = [
            at_its_end!(0..3),
            at_its_end!(0..=3),
            at_its_end!((0..3).rev()),
            at_its_end!((0..=3).rev()),
            at_its_end!((0..3).step_by(2)),
            at_its_end!(vec![1, 2]),
        ];
        for end in ends {
            assert!(is_over(&end), "{end}");
        }
        for not in ["[]", "{", "{\"range\":{\"next\":\"a\",\"end\":\"b\"}}", "{\"rest\":[1]}"] {
            assert!(!is_over(not), "{not}");
        }
    }

    #[test]
    fn ranges_at_the_ends_of_wide_integers_work() {
        assert_eq!(taken!(u64::MAX - 2..u64::MAX), [u64::MAX - 2, u64::MAX - 1]);
        assert_eq!(taken!(i128::MAX - 1..=i128::MAX), [i128::MAX - 1, i128::MAX]);
        assert_eq!(taken!((u64::MAX - 5..=u64::MAX).step_by(5)), [u64::MAX - 5, u64::MAX]);
        assert_eq!(Source((0..u64::MAX).step_by(1 << 40)).rest().next(), Some(0));
    }

    #[test]
    fn ranges_of_characters_skip_the_surrogates() {
        assert_eq!(taken!('\u{D7FE}'..='\u{E001}'), ['\u{D7FE}', '\u{D7FF}', '\u{E000}', '\u{E001}']);
        assert_eq!(taken!(('a'..'d').rev()), ['c', 'b', 'a']);
        assert_eq!(taken!(('a'..='i').step_by(4)), ['a', 'e', 'i']);
    }

    #[test]
    fn a_range_that_was_begun_goes_on_where_it_was() {
        let mut done = 0..=3u8;
        assert_eq!(done.by_ref().count(), 4);
        assert!(taken!(done).is_empty());
        let mut begun = (0..10).step_by(3);
        begun.next();
        assert_eq!(taken!(begun), [3, 6, 9]);
        let mut begun = (0..5).rev();
        begun.next_back();
        assert_eq!(taken!(begun), [4, 3, 2, 1]);
    }

    #[test]
    fn an_open_range_overflows_as_the_plain_one_does() {
        let mut plain = 253u8..;
        let mut rest = Source(253u8..).rest();
        assert_eq!([rest.next(), rest.next()], [plain.next(), plain.next()]);
        let plain = std::panic::catch_unwind(move || plain.next()).ok();
        let ours = std::panic::catch_unwind(move || rest.next()).ok();
        assert_eq!(ours, plain);
    }

    #[test]
    fn what_is_stored_reads_like_the_loop() {
        let mut rest = Source(3..10u64).rest();
        rest.next();
        assert_eq!(text(&rest), r#"{"range":{"next":4,"end":10}}"#);
        let mut rest = Source(254..=255u8).rest();
        rest.next();
        assert_eq!(text(&rest), r#"{"range":{"next":255,"last":255}}"#);
        rest.next();
        assert_eq!(text(&rest), r#"{"range":{"next":null,"last":255}}"#);
        assert_eq!(text(&Source(7..).rest()), r#"{"range":{"next":7}}"#);
        assert_eq!(text(&Source((0..10).rev()).rest()), r#"{"range":{"next":9,"down_to":0}}"#);
        assert_eq!(text(&Source((0..10).step_by(4)).rest()), r#"{"range":{"next":0,"last":8,"step":4}}"#);
        let mut rest = Source(["a", "b", "c"]).rest();
        rest.next();
        assert_eq!(text(&rest), r#"{"rest":["b","c"]}"#);
    }

    #[test]
    fn whatever_is_there_already_can_be_kept() {
        assert_eq!(taken!(vec![1, 2, 3]), [1, 2, 3]);
        assert_eq!(taken!([String::from("a")]), ["a"]);
        assert_eq!(taken!(Some(5)), [5]);
        assert_eq!(taken!(BTreeMap::from([(1, 2)])), [(1, 2)]);
        assert_eq!(taken!(vec![0, 1, 2].into_iter().rev().chain(5..7)), [2, 1, 0, 5, 6]);
        assert_eq!(taken!((0..6).filter(|n| n % 2 == 0).rev().collect::<Vec<_>>()), [4, 2, 0]);
        assert_eq!(taken!("abc".chars().collect::<String>().into_bytes()), *b"abc");
        let map: HashMap<u32, u32> = (0..50).map(|n| (n, n)).collect();
        let order: Vec<_> = map.clone().into_iter().collect();
        let mut kept = taken!(map);
        kept.sort_unstable();
        assert_eq!(kept.len(), order.len());
    }

    #[test]
    fn types_are_inferred_as_in_the_plain_loop() {
        let n: u64 = 3;
        let mut sum = 0;
        let mut rest = Source(0..n).rest();
        while let Some(i) = rest.next() {
            sum += i;
        }
        assert_eq!(sum, 3u64);

        let mut rest = Source(vec![]).rest();
        let mut names: Vec<String> = Vec::new();
        while let Some(name) = rest.next() {
            names.push(name);
        }

        let list = [10, 20];
        let mut rest = Source(0..2).rest();
        while let Some(i) = rest.next() {
            assert!(list[i] > 0);
        }

        let mut rest = Source((0..2).rev()).rest();
        while let Some(i) = rest.next() {
            assert!(list[i] > 0);
        }
    }

    #[test]
    fn generic_code_over_items_that_are_there_needs_no_bounds_on_them() {
        struct NotSaved;
        fn items<I: IntoIterator<IntoIter: EagerIterator>>(source: I) -> usize {
            let mut rest = Source(source).rest();
            std::iter::from_fn(|| rest.next()).count()
        }
        fn range<T>(range: Range<T>) -> usize
        where
            Range<T>: Iterator<Item = T>,
        {
            let mut rest = Source(range).rest();
            std::iter::from_fn(|| rest.next()).count()
        }
        assert_eq!(items([NotSaved, NotSaved]), 2);
        assert_eq!(range(0..4), 4);
    }

    #[test]
    fn a_million_items_are_kept() {
        assert_eq!(Source(std::iter::repeat_n(0u8, LIMIT)).rest().next(), Some(0));
    }

    /// Says of itself that it is eager, which nothing can check.
    struct Endless;

    impl Iterator for Endless {
        type Item = u8;
        fn next(&mut self) -> Option<u8> {
            Some(0)
        }
    }

    impl EagerIterator for Endless {}

    #[test]
    #[should_panic = "`for` over an iterator of more than 1000000 items cannot be kept across a step; loop over a range and index, or use `while let`"]
    fn an_endless_iterator_is_refused() {
        Source(Endless).rest();
    }

    #[test]
    #[should_panic = "more than 1000000 items"]
    fn an_iterator_that_says_it_is_too_long_is_refused() {
        Source(std::iter::repeat_n(0u8, LIMIT + 1)).rest();
    }

    #[test]
    #[should_panic = "more than 1000000 items"]
    fn too_many_items_for_steps_are_refused() {
        collected(Endless);
    }
}
