//! Errors of writing and reading, with the path to the value.
use std::fmt::{self, Display};

/// Error of a value that cannot be written or read; shown as
/// ``at `hits[3].score`: invalid type ..``.
#[derive(Debug, Clone)]
pub struct Error(Box<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    what: String,
    /// From the inside out, as errors collect it on their way up.
    path: Vec<Segment>,
}

#[derive(Debug, Clone)]
enum Segment {
    Item(usize),
    /// The JSON text of a key.
    Key(String),
}

impl Error {
    /// An error of a value, without a path yet.
    pub fn new(what: impl Display) -> Self {
        Error(Box::new(Inner { what: what.to_string(), path: Vec::new() }))
    }

    /// The error of a key, which has no place of its own in a path.
    pub(super) fn of_key(&self) -> Self {
        Error::new(format_args!("in a map's key: {self}"))
    }

    /// The error of a value that is the item `index` of an array.
    pub(super) fn in_item(mut self, index: usize) -> Self {
        self.0.path.push(Segment::Item(index));
        self
    }

    /// The error of a value under a key; `key` is JSON text.
    pub(super) fn in_key(mut self, key: impl Into<String>) -> Self {
        self.0.path.push(Segment::Key(key.into()));
        self
    }

    /// The error of a value under a field or variant name.
    pub(super) fn in_field(self, name: &str) -> Self {
        self.in_key(format!("{name:?}"))
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.path.is_empty() {
            f.write_str("at `")?;
            for (number, segment) in self.0.path.iter().rev().enumerate() {
                match segment {
                    Segment::Item(index) => write!(f, "[{index}]")?,
                    Segment::Key(key) => match word(key) {
                        Some(word) if number == 0 => f.write_str(word)?,
                        Some(word) => write!(f, ".{word}")?,
                        None => write!(f, "[{}]", clip(key))?,
                    },
                }
            }
            f.write_str("`: ")?;
        }
        f.write_str(&self.0.what)
    }
}

/// The name in a key, if it can be part of a path without brackets.
fn word(key: &str) -> Option<&str> {
    let name = key.strip_prefix('"')?.strip_suffix('"')?;
    (!name.is_empty() && name.len() < 80 && name.chars().all(|c| c.is_alphanumeric() || "_-$".contains(c))).then_some(name)
}

/// Start of a long key.
fn clip(key: &str) -> String {
    match key.char_indices().nth(40).and_then(|(end, _)| key.get(..end)) {
        Some(start) => format!("{start}.."),
        None => key.to_owned(),
    }
}

impl std::error::Error for Error {}

impl serde::ser::Error for Error {
    fn custom<T: Display>(what: T) -> Self {
        Error::new(what)
    }
}

impl serde::de::Error for Error {
    fn custom<T: Display>(what: T) -> Self {
        Error::new(what)
    }
}
