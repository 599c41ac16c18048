//! What a `for` loop keeps between its rounds: the remaining items, or the position in something that keeps its order.
use std::collections::VecDeque;
use std::ops::{Range, RangeFrom, RangeInclusive};

use serde::{Deserialize, Serialize};

/// The expression after `in`, on its way to become a [`RestOf`].
#[doc(hidden)]
#[derive(Debug)]
pub struct Source<I>(pub I);

/// What is left of a `for` loop by value.
#[doc(hidden)]
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RestOf<R> {
    /// The items not yet taken.
    Rest(R),
}

/// A collection or an iterator whose order does not change between two reads of the same value.
#[doc(hidden)]
pub fn in_order<T: ?Sized>(value: &T) -> &T {
    value
}
