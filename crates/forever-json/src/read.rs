//! A cursor over JSON text: tokens, and their nesting.
//!
//! Strings with escapes and skipped values are passed to `serde_json`, numbers to the standard
//! library, whose parsing is exact. This file has only the parts that need lookahead, which
//! `serde_json` does not offer.
use std::borrow::Cow;
use std::fmt::Display;

use serde_json::value::RawValue;

use super::error::Error;
use super::escape::{self, MAX_DEPTH, MAX_WRAPS};
use super::logs::StoredLogs;

/// A cursor over a text, for a caller that reads the outer levels itself.
#[derive(Debug)]
pub struct Reader<'de> {
    text: &'de str,
    at: usize,
    /// Number of open arrays and objects.
    depth: usize,
    /// Number of open options and newtypes.
    wraps: usize,
    /// The items of the lists that the text refers to.
    pub(super) logs: Option<&'de StoredLogs>,
    /// Whether texts requested as `str` are returned as constants.
    pub(super) lends: bool,
    /// Where values begin that the type has ignored.
    pub(super) ignored: Vec<usize>,
    /// Whether an object was read whose keys the type does not name, as into a map or a buffer.
    pub(super) has_any_object: bool,
}

const SPACE: [char; 4] = [' ', '\n', '\r', '\t'];

impl<'de> Reader<'de> {
    /// A cursor at the beginning of `text`.
    pub fn new(text: &'de str) -> Self {
        Reader { text, at: 0, depth: 0, wraps: 0, logs: None, lends: false, ignored: Vec::new(), has_any_object: false }
    }

    pub(super) fn syntax(&self, what: impl Display) -> Error {
        Error::new(format_args!("{what} at byte {}", self.at))
    }

    /// The next byte that is not white space.
    pub fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = bytes.get(self.at) {
            self.at += 1;
        }
        bytes.get(self.at).copied()
    }

    /// Start of the next token, for [`Reader::since`].
    pub(super) fn mark(&mut self) -> usize {
        self.peek();
        self.at
    }

    pub(super) fn since(&self, mark: usize) -> &'de str {
        self.text.get(mark..self.at).unwrap_or_default()
    }

    /// The text from the cursor on, which stands between characters: it passes over whole tokens.
    fn rest(&self) -> &'de str {
        self.text.get(self.at..).unwrap_or_default()
    }

    pub(super) fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Skips one byte of punctuation; fails if another one comes.
    pub fn expect(&mut self, byte: u8) -> Result<(), Error> {
        if self.eat(byte) {
            return Ok(());
        }
        Err(self.syntax(format_args!("expected `{}`", char::from(byte))))
    }

    /// Enters an array or object.
    pub(super) fn open(&mut self, byte: u8) -> Result<(), Error> {
        self.expect(byte)?;
        if self.depth == MAX_DEPTH {
            return Err(escape::too_deep());
        }
        self.depth += 1;
        Ok(())
    }

    /// Leaves the array or object that [`Reader::open`] entered.
    pub(super) fn close(&mut self, byte: u8) -> Result<(), Error> {
        if self.peek() == Some(b',') {
            return Err(self.syntax("more entries than expected"));
        }
        self.expect(byte)?;
        self.depth -= 1;
        Ok(())
    }

    /// Whether another entry follows in the array or object that `end` ends; the first has no
    /// comma.
    pub fn more(&mut self, first: bool, end: u8) -> Result<bool, Error> {
        if self.peek() == Some(end) {
            return Ok(false);
        }
        if !first {
            self.expect(b',')?;
        }
        Ok(true)
    }

    /// Enters an option or newtype.
    pub(super) fn wrapped<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        if self.wraps == MAX_WRAPS {
            return Err(escape::too_wrapped());
        }
        self.wraps += 1;
        let value = read(self)?;
        self.wraps -= 1;
        Ok(value)
    }

    /// Fails if more than white space follows.
    pub fn end(&mut self) -> Result<(), Error> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.syntax("more text than one value")),
        }
    }

    /// Skips `null`, `true` or `false`; fails if another value comes.
    pub fn word(&mut self, word: &str) -> Result<(), Error> {
        self.peek();
        if !self.rest().starts_with(word) {
            return Err(self.syntax("expected a value"));
        }
        self.at += word.len();
        Ok(())
    }

    /// The name of the escape at the cursor, if there is one; consumes nothing.
    pub(super) fn escape(&mut self) -> Option<&'de str> {
        self.peek();
        let name = self.rest().strip_prefix('{')?.trim_start_matches(SPACE).strip_prefix("\"$")?;
        if name.starts_with('$') {
            return None;
        }
        name.split('"').next()
    }

    /// Enters the object of an escape, up to its value.
    pub(super) fn open_escape(&mut self) -> Result<(), Error> {
        self.open(b'{')?;
        self.string()?;
        self.expect(b':')
    }

    /// An escape whose value is a text.
    pub(super) fn escaped_text(&mut self) -> Result<Cow<'de, str>, Error> {
        self.open_escape()?;
        let text = self.string()?;
        self.close(b'}')?;
        Ok(text)
    }

    /// A reference to a list: its number and its length.
    pub(super) fn log(&mut self) -> Result<(u64, usize), Error> {
        self.open_escape()?;
        let number = self.count()?;
        self.expect(b',')?;
        if self.string()? != "len" {
            return Err(self.syntax("malformed `$log`"));
        }
        self.expect(b':')?;
        let len = self.count()?;
        self.close(b'}')?;
        Ok((number, len))
    }

    fn count<T: std::str::FromStr>(&mut self) -> Result<T, Error> {
        self.number()?.and_then(|token| token.parse().ok()).ok_or_else(|| self.syntax("malformed `$log`"))
    }

    /// The next token if it is a number, otherwise `None`.
    pub(super) fn number(&mut self) -> Result<Option<&'de str>, Error> {
        if !matches!(self.peek(), Some(b'-' | b'0'..=b'9')) {
            return Ok(None);
        }
        let rest = self.rest();
        let len = rest.bytes().position(|b| !matches!(b, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'));
        let token = len.and_then(|len| rest.get(..len)).unwrap_or(rest);
        if !is_number(token.as_bytes()) {
            return Err(self.syntax("malformed number"));
        }
        self.at += token.len();
        Ok(Some(token))
    }

    /// Reads a string, unescaped.
    pub fn string(&mut self) -> Result<Cow<'de, str>, Error> {
        self.peek();
        let Some(rest) = self.rest().strip_prefix('"') else {
            return Err(self.syntax("expected a string"));
        };
        let bytes = rest.as_bytes();
        let plain = bytes.iter().position(|b| matches!(b, b'"' | b'\\' | ..=0x1f)).unwrap_or(bytes.len());
        if bytes.get(plain) == Some(&b'"') {
            self.at += plain + 2;
            return Ok(Cow::Borrowed(rest.get(..plain).unwrap_or_default()));
        }
        let mut end = plain;
        while bytes.get(end).is_some_and(|b| *b != b'"') {
            end += if bytes[end] == b'\\' { 2 } else { 1 };
        }
        let Some(token) = self.text.get(self.at..self.at + end + 2) else {
            return Err(self.syntax("string without an end"));
        };
        let string = serde_json::from_str(token).map_err(|error| self.syntax(format_args!("malformed string: {}", cause(&error))))?;
        self.at += token.len();
        Ok(Cow::Owned(string))
    }

    /// Skips a value, however deep, and returns its text.
    pub fn skip(&mut self) -> Result<&'de str, Error> {
        self.peek();
        let mut values = serde_json::Deserializer::from_str(self.rest()).into_iter::<&RawValue>();
        match values.next() {
            Some(Ok(value)) => {
                self.at += values.byte_offset();
                Ok(value.get())
            }
            Some(Err(error)) => Err(self.syntax(cause(&error))),
            None => Err(self.syntax("expected a value")),
        }
    }
}

/// The cause of an error of `serde_json` in a part of the text, without its position, which counts
/// from the start of the part.
pub(super) fn cause(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}

/// Whether a token is a JSON number; the standard library's parsers accept more.
fn is_number(token: &[u8]) -> bool {
    fn digits(text: &[u8]) -> Option<&[u8]> {
        let len = text.iter().take_while(|b| b.is_ascii_digit()).count();
        (len > 0).then(|| &text[len..])
    }
    let rest = token.strip_prefix(b"-").unwrap_or(token);
    let rest = match rest.strip_prefix(b"0") {
        Some(rest) => Some(rest),
        None => digits(rest),
    };
    let rest = rest.and_then(|rest| match rest.strip_prefix(b".") {
        Some(rest) => digits(rest),
        None => Some(rest),
    });
    let rest = rest.and_then(|rest| match rest {
        [b'e' | b'E', b'+' | b'-', rest @ ..] | [b'e' | b'E', rest @ ..] => digits(rest),
        rest => Some(rest),
    });
    rest.is_some_and(<[u8]>::is_empty)
}
