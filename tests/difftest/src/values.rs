//! The types of generated locals and the plain functions that generated bodies call.
use std::fmt::Debug;

use serde::{Deserialize, Serialize};

/// A struct with a list and a box in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// A number.
    pub id: u32,
    /// Owned texts.
    pub tags: Vec<String>,
    /// More of the same.
    pub next: Option<Box<Item>>,
}

/// An enum with a variant of every shape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shape {
    /// A unit variant.
    Empty,
    /// A newtype variant.
    One(u32),
    /// A tuple variant.
    Two(u32, String),
    /// A struct variant.
    Named {
        /// A number.
        id: u32,
        /// A nested value.
        item: Item,
    },
}

/// A value that cannot be saved, for `#[fresh] let`. It has no destructor, so that it may be dropped at a step.
#[derive(Debug, Clone, Copy)]
pub struct Token(u32);

impl Token {
    /// A token of a constant.
    pub fn new(number: u32) -> Self {
        Token(number)
    }

    /// A token of a text.
    pub fn of_text(text: &str) -> Self {
        Token(length(text))
    }

    /// A token of a list.
    pub fn of_list(list: &[u32]) -> Self {
        Token(sum(list))
    }

    /// A token of an item.
    pub fn of_item(item: &Item) -> Self {
        Token(weigh(item))
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.0
    }
}

/// Something with a number, behind a trait.
pub trait Numbered: Debug + Send + Sync {
    /// Its number.
    fn number(&self) -> u32;
}

impl Numbered for Token {
    fn number(&self) -> u32 {
        self.0 ^ 1
    }
}

/// Addition that cannot overflow.
pub fn plus(a: u32, b: u32) -> u32 {
    a.wrapping_add(b)
}

/// The sum of a list.
pub fn sum(list: &[u32]) -> u32 {
    list.iter().fold(0, |total, n| plus(total, *n))
}

/// A number that depends on all of an item.
pub fn weigh(item: &Item) -> u32 {
    let own = item.tags.iter().fold(item.id, |total, tag| plus(total, length(tag)));
    item.next.as_ref().map_or(own, |next| own ^ weigh(next))
}

/// A number that depends on all of a shape.
pub fn rank(shape: &Shape) -> u32 {
    match shape {
        Shape::Empty => 0,
        Shape::One(n) => plus(*n, 1),
        Shape::Two(n, text) => plus(*n, length(text)),
        Shape::Named { id, item } => id ^ weigh(item),
    }
}

/// A text made of a borrowed text and a number.
pub fn label(text: &str, number: u32) -> String {
    format!("{text}.{}", number % 100)
}

/// An item made of a number and an owned text.
pub fn make_item(id: u32, tag: String) -> Item {
    Item { id, tags: vec![tag], next: None }
}

/// Takes a value and gives back how long its text form is.
pub fn keep<T: std::fmt::Debug>(value: T) -> u32 {
    length(&format!("{value:?}"))
}

fn length(text: &str) -> u32 {
    u32::try_from(text.len()).expect("generated texts are short")
}
