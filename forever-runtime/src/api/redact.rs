//! Secret values in texts and JSON that come from elsewhere: keys, metadata, topics, messages.
use std::ops::Not;

use serde_json::Value;

use crate::exact::hex;
use crate::runtime::handle::FiberStatus;
use crate::secret;
use crate::text::floor_char_boundary;

/// What stands in the place of a text that has a secret in it.
pub(crate) const MASK: &str = "•••";

/// The shortest text that is looked for: shorter ones stand in others by chance.
const SHORTEST: usize = 4;

/// The shortest line of a secret with several that is looked for by itself.
const SHORTEST_LINE: usize = 8;

/// Values that must not leave the process, in the forms in which texts may have them.
///
/// A text and a secret are compared by their letters and digits alone, in lower case: so whatever
/// breaks it into lines, quotes or escapes it makes no difference. A text that has one is hidden
/// whole, since a part may stand beside it.
#[derive(Debug, Default)]
pub(crate) struct Redactor {
    /// What is looked for, without duplicates.
    forms: Vec<String>,
    numbers: Vec<String>,
}

impl Redactor {
    /// Adds every text and long number of a JSON value.
    pub(crate) fn add(&mut self, json: &str) {
        match serde_json::from_str(json) {
            Ok(value) => self.collect(&value),
            Err(_) => self.push(json),
        }
        self.forms.sort();
        self.forms.dedup();
    }

    /// Adds the secrets of another one.
    pub(crate) fn join(&mut self, other: Redactor) {
        self.forms.extend(other.forms);
        self.numbers.extend(other.numbers);
    }

    fn collect(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.push(text),
            Value::Number(number) => {
                let number = number.to_string();
                if number.len() >= SHORTEST {
                    self.push(&number);
                    self.numbers.push(number);
                }
            }
            Value::Array(items) => {
                if let Some(text) = bytes_of(items).and_then(|bytes| String::from_utf8(bytes).ok()) {
                    self.push(&text);
                }
                for item in items {
                    self.collect(item);
                }
            }
            Value::Object(fields) => {
                for (name, value) in fields {
                    // The name of a field, or a key of a map.
                    if !name.starts_with('$') && name.contains(|char: char| !char.is_alphabetic() && char != '_') {
                        self.push(name);
                    }
                    self.collect(value);
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn push(&mut self, text: &str) {
        let lines = text.lines().filter(|line| line.len() >= SHORTEST_LINE && line.len() < text.len());
        for part in lines.chain([text]).filter(|part| part.len() >= SHORTEST) {
            let bytes = part.as_bytes();
            let encoded = (0..3).map(|shift| base64_within(bytes, shift));
            self.forms
                .extend(encoded.chain([hex(bytes), part.to_owned()]).map(|form| letters(&form)).filter(|form| form.len() >= SHORTEST));
        }
    }

    /// Whether a text has a secret in it.
    pub(crate) fn finds(&self, text: &str) -> bool {
        let found = |text: &str| {
            let text = letters(text);
            self.forms.iter().any(|form| text.contains(form.as_str()))
        };
        self.forms.is_empty().not()
            && (found(text) || found(&unescaped(text)) || found(&percent_decoded(text)) || found(&listed_bytes(text)))
    }

    /// A text, if it has no secret in it.
    pub(crate) fn text(&self, text: &str) -> String {
        if self.finds(text) { MASK.to_owned() } else { text.to_owned() }
    }

    /// The start of a text, of at most `most` bytes of it, if the whole has no secret in it.
    pub(crate) fn start(&self, text: &str, most: usize) -> String {
        let end = floor_char_boundary(text, most);
        if self.finds(text) { MASK.to_owned() } else { text.get(..end).unwrap_or(text).to_owned() }
    }

    /// Hides the texts of a JSON value that have a secret in them, and those that are
    /// [marked](secret::is_marked).
    pub(crate) fn value(&self, value: &mut Value) {
        match value {
            Value::String(text) if secret::is_marked(text) => secret::HIDDEN.clone_into(text),
            _ if self.forms.is_empty() => match value {
                Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
                Value::Object(fields) => fields.values_mut().for_each(|value| self.value(value)),
                _ => {}
            },
            Value::String(text) if self.finds(text) => MASK.clone_into(text),
            Value::Number(number) if self.numbers.contains(&number.to_string()) => *value = Value::String(MASK.to_owned()),
            Value::Array(items) => {
                for item in items.iter_mut() {
                    self.value(item);
                }
                // In pieces.
                if self.finds(&Value::Array(items.clone()).to_string()) {
                    *value = Value::String(MASK.to_owned());
                }
            }
            Value::Object(fields) => {
                let old = std::mem::take(fields);
                for (name, mut value) in old {
                    self.value(&mut value);
                    fields.insert(self.text(&name), value);
                }
                if self.finds(&Value::Object(fields.clone()).to_string()) {
                    *value = Value::String(MASK.to_owned());
                }
            }
            Value::Null | Value::Bool(_) | Value::String(_) | Value::Number(_) => {}
        }
    }
}

/// The letters and digits of a text, in lower case.
fn letters(text: &str) -> String {
    text.chars().filter(|char| char.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// What every base64 text has of bytes that stand behind `shift` others in it.
fn base64_within(bytes: &[u8], shift: usize) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits = |at: usize| bytes.get(at / 8).is_some_and(|byte| byte >> (7 - at % 8) & 1 == 1);
    // The first character with bits of these bytes alone.
    let first = (6 - shift * 8 % 6) % 6;
    let characters = (first..).step_by(6).take_while(|at| at + 6 <= bytes.len() * 8);
    characters.map(|at| char::from(ALPHABET[(at..at + 6).fold(0, |value, bit| value << 1 | usize::from(bits(bit)))])).collect()
}

/// A text as it was before it was put into quotes.
fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, escape)) = rest.split_once('\\') {
        plain.push_str(before);
        let mut chars = escape.chars();
        let kind = chars.next();
        rest = chars.as_str();
        if matches!(kind, Some('u' | 'x')) {
            let digits = rest.trim_start_matches('{');
            let most = if kind == Some('x') { 2 } else { 4 };
            let len = digits.bytes().take(most.max(digits.find('}').unwrap_or(0).min(6))).take_while(u8::is_ascii_hexdigit).count();
            plain.extend(digits.get(..len).and_then(|digits| u32::from_str_radix(digits, 16).ok()).and_then(char::from_u32));
            rest = digits.get(len..).unwrap_or_default();
        } else if !matches!(kind, Some('n' | 'r' | 't' | '0')) {
            plain.extend(kind);
        }
    }
    plain + rest
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, behind @ ..] = rest {
        let code = behind.get(..2).and_then(|code| std::str::from_utf8(code).ok()).and_then(|code| u8::from_str_radix(code, 16).ok());
        let code = code.filter(|_| *byte == b'%');
        bytes.push(code.unwrap_or(*byte));
        rest = if code.is_some() { &behind[2..] } else { behind };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The text whose bytes a text lists as numbers.
fn listed_bytes(text: &str) -> String {
    let bytes: Vec<u8> = text.split(|char: char| !char.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn bytes_of(items: &[Value]) -> Option<Vec<u8>> {
    items.iter().map(|item| item.as_u64().and_then(|byte| u8::try_from(byte).ok())).collect()
}

impl FiberStatus {
    /// Takes secrets out of the texts that others have given.
    pub(crate) fn redact(&mut self, redactor: &Redactor) {
        let texts = self.key.iter_mut().chain(self.unread.iter_mut().map(|unread| &mut unread.topic));
        texts.for_each(|text| *text = redactor.text(text));
        [&mut self.metadata, &mut self.progress].into_iter().flatten().for_each(|value| redactor.value(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "tok-5up3r\"s3cr3t\n-é";

    fn of(secret: &Value) -> Redactor {
        let mut redactor = Redactor::default();
        redactor.add(&secret.to_string());
        redactor
    }

    /// The reference of the test for base64.
    fn base64(bytes: &[u8]) -> String {
        base64_within(&[bytes, &[0; 3]].concat(), 0)
    }

    #[test]
    fn a_text_with_a_secret_in_any_form_is_hidden_whole() {
        let redactor = of(&Value::from(SECRET));
        let percent = SECRET.bytes().fold(String::new(), |text, byte| format!("{text}%{byte:02X}"));
        let behind = |n: usize| base64(&[&b"abc"[..n], SECRET.as_bytes(), b"z"].concat());
        let hex = hex(SECRET.as_bytes()).to_uppercase();
        for form in [
            SECRET.to_owned(),
            SECRET.to_uppercase(),
            format!("{SECRET:?}"),
            Value::from(SECRET).to_string(),
            Value::from(Value::from(SECRET).to_string()).to_string(),
            percent,
            "tok-5up3r%22s3cr3t%0A-%C3%A9".to_owned(),
            behind(0),
            behind(1),
            behind(2),
            behind(0).replace('+', "-").replace('/', "_"),
            hex,
            format!("{:?}", SECRET.as_bytes()),
            SECRET.chars().flat_map(|char| [char, '\n']).collect(),
        ] {
            assert_eq!(redactor.text(&format!("401 for <{form}>, 7")), MASK, "{form}");
            assert_eq!(redactor.start(&format!("{}{form}", "x".repeat(100)), 10), MASK, "{form}");
        }
        for other in ["401 for tok", "", "s3cr3t", "é", "%", "%zz", "\\", "\\u{", "\\x", "300, 400"] {
            assert_eq!(redactor.text(other), other);
        }
    }

    #[test]
    fn secrets_are_taken_out_of_values() {
        let redactor =
            of(&serde_json::json!({ "token": "s3cr3t", "n": 12_345_678, "id": 7, "lines": "-----BEGIN\nMIIEpAIBAAKC", "key-1": 1 }));
        let mut value = serde_json::json!({
            "at": ["x s3cr3t y", 12_345_678, 7, null], "s3cr3t": true, "bytes": b"s3cr3t", "pieces": ["s3c", "r3t"],
            "line": "MIIEpAIBAAKC", "told": secret::marked("401"), "shown": "for all", "key": "of key-1", "field": "token",
        });
        redactor.value(&mut value);
        let left = serde_json::json!({
            "at": [MASK, MASK, 7, null], "•••": true, "bytes": MASK, "pieces": MASK,
            "line": MASK, "told": secret::HIDDEN, "shown": "for all", "key": MASK, "field": "token",
        });
        assert_eq!(value, left);
        let mut value = serde_json::json!({ "told": [secret::marked("401")] });
        Redactor::default().value(&mut value);
        assert_eq!(value, serde_json::json!({ "told": [secret::HIDDEN] }));
    }
}
