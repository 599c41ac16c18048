//! What generated fibers do to the outside world, as plain functions: the fibers, the harness and the interpreter share them.
//!
//! `model` writes the fibers and their edits; `tests/edits` runs them and says how to choose them.

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

/// What the outside world answers a call.
pub fn answer(label: &str, input: i64) -> i64 {
    mix(n(&label.to_owned()), &[input])
}
