//! Partial JSON: reads text that is cut off, such as the input of a tool that the model is still
//! writing.
//!
//! Input: text. Output: the value that the `ai` package reads from the same text
//! (`parsePartialJson`), or none. Complete text is read as it is. Other text is cut back to the
//! last place before which everything is valid, open strings and containers are closed, and the
//! result is read. There are two differences: half of a surrogate pair, which Rust's text cannot
//! hold, is read as U+FFFD; and JSON that `serde_json` refuses for its size (nested deeper than
//! 128, a number beyond `f64`) has no value.
use std::borrow::Cow;

use serde_json::Value;

/// The value of a text, as far as it goes.
pub(super) fn read(text: &str) -> Option<Value> {
    let text = without_half_pairs(text);
    whole(&text).or_else(|| whole(&closed(&text)))
}

fn whole(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok().filter(|value| !is_forbidden(value))
}

/// Objects that would change the prototype of a JavaScript object.
fn is_forbidden(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(is_forbidden),
        Value::Object(fields) => {
            fields.contains_key("__proto__")
                || fields.get("constructor").is_some_and(|constructor| constructor.get("prototype").is_some())
                || fields.values().any(is_forbidden)
        }
        _ => false,
    }
}

/// Position in a container, or outside of all.
#[derive(Clone, Copy, PartialEq)]
enum At {
    Beginning,
    End,
    ObjectStart,
    Key,
    AfterKey,
    BeforeValue,
    AfterMember,
    AfterMemberComma,
    ArrayStart,
    AfterItem,
    AfterItemComma,
}

/// The token in the middle of which the text is, if any.
#[derive(Clone, Copy)]
enum Within {
    Nothing,
    Text,
    Escape,
    /// Number of the four digits so far.
    Unicode(u8),
    Number,
    /// Start of `true`, `false` or `null`.
    Word(usize),
}

struct Scan<'a> {
    text: &'a str,
    /// The outside and the open containers, the innermost last; never empty.
    open: Vec<At>,
    within: Within,
    /// Length of the valid part of the text.
    keep: usize,
}

/// The text, cut back, with everything open in it closed.
fn closed(text: &str) -> String {
    let mut scan = Scan { text, open: vec![At::Beginning], within: Within::Nothing, keep: 0 };
    for (at, c) in text.char_indices() {
        scan.take(at, c);
    }
    let mut closed = text.get(..scan.keep).unwrap_or(text).to_owned();
    match scan.within {
        Within::Text | Within::Escape | Within::Unicode(_) => closed.push('"'),
        Within::Word(start) => {
            let begun = text.get(start..).unwrap_or_default();
            closed.push_str(WORDS.into_iter().find_map(|word| word.strip_prefix(begun)).unwrap_or_default());
        }
        Within::Nothing | Within::Number => {}
    }
    closed.extend(scan.open.iter().rev().filter_map(|at| match at {
        At::Beginning | At::End => None,
        At::ArrayStart | At::AfterItem | At::AfterItemComma => Some(']'),
        _ => Some('}'),
    }));
    closed
}

const WORDS: [&str; 3] = ["true", "false", "null"];

impl Scan<'_> {
    fn take(&mut self, at: usize, c: char) {
        let behind = at + c.len_utf8();
        match self.within {
            Within::Nothing => self.between(at, c),
            Within::Text => match c {
                '\\' => self.within = Within::Escape,
                '"' => (self.within, self.keep) = (Within::Nothing, behind),
                _ => self.keep = behind,
            },
            Within::Escape if c == 'u' => self.within = Within::Unicode(0),
            Within::Unicode(3) if c.is_ascii_hexdigit() => (self.within, self.keep) = (Within::Text, behind),
            Within::Escape => (self.within, self.keep) = (Within::Text, behind),
            Within::Unicode(digits) if c.is_ascii_hexdigit() => self.within = Within::Unicode(digits + 1),
            // Not JSON; reading it will report that.
            Within::Unicode(_) => {}
            Within::Number => match c {
                '0'..='9' => self.keep = behind,
                // Not valid with one of these at its end.
                'e' | 'E' | '-' | '.' => {}
                _ => {
                    self.within = Within::Nothing;
                    self.after_value(behind, c);
                }
            },
            Within::Word(start) => {
                if self.text.get(start..behind).is_some_and(|begun| WORDS.into_iter().any(|word| word.starts_with(begun))) {
                    self.keep = behind;
                } else {
                    self.within = Within::Nothing;
                    self.after_value(behind, c);
                }
            }
        }
    }

    /// Handles a character outside of a value.
    fn between(&mut self, at: usize, c: char) {
        let behind = at + c.len_utf8();
        match (self.innermost(), c) {
            (At::ObjectStart | At::AfterMemberComma, '"') => self.now(At::Key),
            (At::Key, '"') => self.now(At::AfterKey),
            (At::AfterKey, ':') => self.now(At::BeforeValue),
            (At::ObjectStart, '}') | (At::ArrayStart, ']') => self.close(behind),
            (At::AfterMember, c) => self.after_value(behind, c),
            (At::AfterItem, ',' | ']') => self.after_value(behind, c),
            (At::AfterItem, _) => self.keep = behind,
            (At::Beginning, c) => self.begin(at, c, At::End),
            (At::BeforeValue, c) => self.begin(at, c, At::AfterMember),
            (At::ArrayStart, c) => {
                self.keep = behind;
                self.begin(at, c, At::AfterItem);
            }
            (At::AfterItemComma, c) => self.begin(at, c, At::AfterItem),
            _ => {}
        }
    }

    /// Handles a character that may begin a value, after which the container is at `after`.
    fn begin(&mut self, at: usize, c: char, after: At) {
        let (within, inner) = match c {
            '"' => (Within::Text, None),
            't' | 'f' | 'n' => (Within::Word(at), None),
            '-' | '0'..='9' => (Within::Number, None),
            '{' => (Within::Nothing, Some(At::ObjectStart)),
            '[' => (Within::Nothing, Some(At::ArrayStart)),
            _ => return,
        };
        // A sign alone is not a number.
        if c != '-' {
            self.keep = at + 1;
        }
        self.now(after);
        self.within = within;
        self.open.extend(inner);
    }

    /// Handles a character right after a value.
    fn after_value(&mut self, behind: usize, c: char) {
        match (self.innermost(), c) {
            (At::AfterMember, ',') => self.now(At::AfterMemberComma),
            (At::AfterItem, ',') => self.now(At::AfterItemComma),
            (At::AfterMember, '}') | (At::AfterItem, ']') => self.close(behind),
            _ => {}
        }
    }

    fn close(&mut self, behind: usize) {
        self.keep = behind;
        self.open.pop();
    }

    fn innermost(&self) -> At {
        self.open.last().copied().unwrap_or(At::End)
    }

    fn now(&mut self, at: At) {
        if let Some(innermost) = self.open.last_mut() {
            *innermost = at;
        }
    }
}

/// The text with U+FFFD for each `\u` escape that is half of a surrogate pair without its other
/// half.
fn without_half_pairs(text: &str) -> Cow<'_, str> {
    let mut mended = String::new();
    let mut copied = 0;
    let mut at = 0;
    let unit = |at: usize| text.get(at..).and_then(escape);
    while let Some(found) = text.get(at..).and_then(|rest| rest.find('\\')) {
        at += found;
        at = match (unit(at), unit(at + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => at + 12,
            (Some(0xd800..=0xdfff), _) => {
                mended.push_str(text.get(copied..at).unwrap_or_default());
                mended.push_str("\\ufffd");
                copied = at + 6;
                copied
            }
            // Whatever is escaped, it is one character.
            _ => at + 1 + text.get(at + 1..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8),
        };
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    mended.push_str(text.get(copied..).unwrap_or_default());
    Cow::Owned(mended)
}

/// The code unit at the start of a text, if it starts with `\u` and four digits.
fn escape(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    if digits.bytes().all(|digit| digit.is_ascii_hexdigit()) { u32::from_str_radix(digits, 16).ok() } else { None }
}
