//! The variables that a format string captures, by the grammar of `std::fmt`.
//!
//! Input: a string literal as it is written. Output: each captured name and its place. A literal
//! that is no format string may look like one; then the names are those that it would capture.
use std::iter::Peekable;
use std::ops::Range;
use std::vec::IntoIter;

/// A name in a format string.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Capture {
    pub(crate) name: String,
    /// Its bytes in the literal.
    pub(crate) place: Range<usize>,
}

/// The captures of a string literal; none if it is a byte string, a C string or no string at all.
pub(crate) fn captures(literal: &str) -> Vec<Capture> {
    let Some(chars) = characters(literal) else { return Vec::new() };
    let mut parser = Parser { chars: chars.into_iter().peekable(), found: Vec::new() };
    parser.string();
    parser.found
}

/// A character of a string, with the bytes of the literal that encode it.
type Character = (char, Range<usize>);

/// The characters of a string literal, with its escapes resolved: braces may contain escapes, too.
fn characters(literal: &str) -> Option<Vec<Character>> {
    let raw = literal.strip_prefix('r').map(|rest| rest.trim_start_matches('#'));
    let start = literal.len() - raw.unwrap_or(literal).len() + 1;
    let text = raw.unwrap_or(literal).strip_prefix('"')?;
    let text = text.rsplit_once('"').map_or(text, |(text, _)| text);
    let mut chars = Vec::new();
    let mut rest = text.char_indices().peekable();
    while let Some((at, char)) = rest.next() {
        let Some(char) = (if char == '\\' && raw.is_none() { escape(&mut rest) } else { Some(char) }) else { continue };
        let end = rest.peek().map_or(text.len(), |(next, _)| *next);
        chars.push((char, start + at..start + end));
    }
    Some(chars)
}

/// The character of an escape whose backslash has been read; `None` for a line continuation.
fn escape(rest: &mut Peekable<std::str::CharIndices<'_>>) -> Option<char> {
    let (_, kind) = rest.next()?;
    match kind {
        'n' => Some('\n'),
        'r' => Some('\r'),
        't' => Some('\t'),
        '0' => Some('\0'),
        'x' => {
            let digits: String = rest.by_ref().take(2).map(|(_, digit)| digit).collect();
            char::from_u32(u32::from_str_radix(&digits, 16).ok()?)
        }
        'u' => {
            let digits: String = rest.by_ref().map(|(_, digit)| digit).take_while(|digit| *digit != '}').collect();
            char::from_u32(u32::from_str_radix(&digits.trim_start_matches('{').replace('_', ""), 16).ok()?)
        }
        '\n' | '\r' => {
            while rest.next_if(|(_, space)| space.is_ascii_whitespace()).is_some() {}
            None
        }
        other => Some(other),
    }
}

struct Parser {
    chars: Peekable<IntoIter<Character>>,
    found: Vec<Capture>,
}

/// Token where an argument, a width or a precision may be named.
enum Count {
    Nothing,
    Number,
    Name(Capture),
}

impl Parser {
    /// `[text | '{{' | '}}' | '{' [argument] [':' spec] ws* '}']*`
    fn string(&mut self) {
        while let Some((char, _)) = self.chars.next() {
            if char != '{' || self.takes('{') {
                continue;
            }
            if let Count::Name(name) = self.count() {
                self.found.push(name);
            }
            if self.takes(':') {
                self.spec();
            }
            // In a string that is no format string, reading continues after its brace.
            while self.chars.next_if(|(char, _)| !matches!(char, '}' | '{')).is_some() {}
            self.takes('}');
        }
    }

    /// `[[fill]align][sign]['#']['0'][width]['.' precision]type`
    fn spec(&mut self) {
        let mut ahead = self.chars.clone();
        let filled = ahead.next().is_some() && ahead.next().is_some_and(|(align, _)| is_align(align));
        if filled {
            self.chars.next();
        }
        self.chars.next_if(|(char, _)| is_align(*char));
        self.chars.next_if(|(char, _)| matches!(char, '+' | '-'));
        self.takes('#');
        // `0$` is the first argument as the width; any other `0` here is the flag.
        let mut ahead = self.chars.clone();
        let is_flag = ahead.next().is_some_and(|(char, _)| char == '0') && ahead.next().is_none_or(|(char, _)| char != '$');
        if is_flag {
            self.chars.next();
        }
        self.parameter();
        if self.takes('.') && !self.takes('*') {
            self.parameter();
        }
    }

    /// `argument '$'`, or a number. A name without `$` is the type of the format.
    fn parameter(&mut self) {
        let before = self.chars.clone();
        match self.count() {
            Count::Name(name) if self.takes('$') => self.found.push(name),
            Count::Name(_) => self.chars = before,
            Count::Number => _ = self.takes('$'),
            Count::Nothing => {}
        }
    }

    /// A number or an identifier.
    fn count(&mut self) -> Count {
        let is_number = self.chars.peek().is_some_and(|(char, _)| char.is_ascii_digit());
        let mut taken: Option<Capture> = None;
        let belongs = |char: char| if is_number { char.is_ascii_digit() } else { char.is_alphanumeric() || char == '_' };
        while let Some((char, place)) = self.chars.next_if(|(char, _)| belongs(*char)) {
            let taken = taken.get_or_insert_with(|| Capture { name: String::new(), place: place.clone() });
            taken.name.push(char);
            taken.place.end = place.end;
        }
        match taken {
            None => Count::Nothing,
            Some(_) if is_number => Count::Number,
            Some(name) => Count::Name(name),
        }
    }

    fn takes(&mut self, wanted: char) -> bool {
        self.chars.next_if(|(char, _)| *char == wanted).is_some()
    }
}

fn is_align(char: char) -> bool {
    matches!(char, '<' | '^' | '>')
}
