//! What generated fibers do to the outside world, as plain functions: the fibers, the harness and the interpreter share them.
//!
//! `model` writes the fibers and their edits; `tests/edits` runs them and says how to choose them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A number that stands for a value in the input of a step.
pub trait Number {
    /// The number.
    fn number(&self) -> i64;
}

impl Number for i64 {
    fn number(&self) -> i64 {
        *self
    }
}

impl Number for String {
    fn number(&self) -> i64 {
        self.bytes().fold(7, |sum, byte| stir(sum, i64::from(byte)))
    }
}

impl Number for Vec<i64> {
    fn number(&self) -> i64 {
        self.iter().fold(11, |sum, item| stir(sum, *item))
    }
}

impl Number for f64 {
    #[allow(clippy::cast_possible_truncation, reason = "the numbers are whole")]
    fn number(&self) -> i64 {
        *self as i64
    }
}

impl Number for (i64, i64) {
    fn number(&self) -> i64 {
        mix(13, &[self.0, self.1])
    }
}

impl<T: Number> Number for Option<T> {
    fn number(&self) -> i64 {
        self.as_ref().map_or(6, |value| mix(5, &[value.number()]))
    }
}

impl<T: Number, E> Number for Result<T, E> {
    fn number(&self) -> i64 {
        self.as_ref().map_or(4, |value| mix(3, &[value.number()]))
    }
}

impl Number for Value {
    fn number(&self) -> i64 {
        match self {
            Value::Null => 23,
            Value::Bool(value) => 24 + i64::from(*value),
            Value::Number(value) => value.as_i64().unwrap_or(26),
            Value::String(text) => text.number(),
            Value::Array(items) => mix(27, &items.iter().map(Number::number).collect::<Vec<_>>()),
            Value::Object(fields) => mix(28, &fields.iter().map(|(key, value)| mix(key.number(), &[value.number()])).collect::<Vec<_>>()),
        }
    }
}

/// A number or a text.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Either {
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
}

impl Number for Either {
    fn number(&self) -> i64 {
        match self {
            Either::Number(number) => *number,
            Either::Text(text) => text.number(),
        }
    }
}

impl<T: Number> Number for &T {
    fn number(&self) -> i64 {
        (**self).number()
    }
}

fn stir(a: i64, b: i64) -> i64 {
    (a.wrapping_mul(31) ^ b.wrapping_add(17)).rem_euclid(1_000_003)
}

/// [`Number::number`].
pub fn n(value: &impl Number) -> i64 {
    value.number()
}

/// A number made of a constant and others.
pub fn mix(constant: i64, of: &[i64]) -> i64 {
    of.iter().fold(constant, |sum, item| stir(sum, *item))
}

/// A text made of a number.
pub fn text_of(number: i64) -> String {
    format!("t{}", number % 1000)
}

/// A list of two or three different items, made of a number.
pub fn list_of(number: i64) -> Vec<i64> {
    (0..2 + number % 2).map(|i| i * 100 + number % 50).collect()
}

/// A number of which a float has only the even ones.
pub fn wide_of(number: i64) -> i64 {
    (1 << 53) + number
}

/// A whole number.
#[allow(clippy::cast_precision_loss, reason = "the numbers are small")]
pub fn float_of(number: i64) -> f64 {
    number as f64
}

/// The number, or none of every third.
pub fn maybe_of(number: i64) -> Option<i64> {
    (number % 3 != 0).then_some(number)
}

/// Two different numbers.
pub fn pair_of(number: i64) -> (i64, i64) {
    (number, number + 1)
}

/// A number, or an object with one.
pub fn json_of(number: i64) -> Value {
    if number % 3 == 0 { number.into() } else { serde_json::json!({ "n": number }) }
}

/// A number, or every other time a text.
pub fn either_of(number: i64) -> Either {
    if number % 2 == 0 { Either::Number(number) } else { Either::Text(text_of(number)) }
}

/// What the outside world answers a call.
pub fn answer(label: &str, input: i64) -> i64 {
    mix(n(&label.to_owned()), &[input])
}
