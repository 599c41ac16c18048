//! Removal of secret values from texts and JSON, wherever they stand.
use std::ops::Range;

use serde_json::Value;

use crate::ops::resolve::OpStatus;
use crate::runtime::handle::FiberStatus;
use crate::text::floor_char_boundary;

/// What stands in the place of a secret.
const HIDDEN: &str = "•••";

/// The shortest text that is looked for: shorter ones stand in other words by chance.
const SHORTEST: usize = 4;

/// Values that must not leave the process.
#[derive(Debug, Default)]
pub(crate) struct Redactor {
    /// Texts, the longest first, so that none is left because a part of it was replaced.
    secrets: Vec<String>,
}

impl Redactor {
    /// Adds every text and long number of a JSON value.
    pub(crate) fn add(&mut self, json: &str) {
        match serde_json::from_str(json) {
            Ok(value) => self.collect(&value),
            Err(_) => self.push(json),
        }
        self.sort();
    }

    /// Adds the secrets of another one.
    pub(crate) fn join(&mut self, other: Redactor) {
        self.secrets.extend(other.secrets);
        self.sort();
    }

    fn sort(&mut self) {
        self.secrets.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        self.secrets.dedup();
    }

    fn collect(&mut self, value: &Value) {
        match value {
            Value::String(text) => {
                self.push(text);
                // As it stands in JSON and in debug output.
                let json = Value::String(text.clone()).to_string();
                self.push(json.strip_prefix('"').and_then(|json| json.strip_suffix('"')).unwrap_or(&json));
            }
            Value::Number(number) => self.push(&number.to_string()),
            Value::Array(items) => items.iter().for_each(|item| self.collect(item)),
            Value::Object(fields) => {
                // Names of fields are those of a type.
                fields.values().for_each(|value| self.collect(value));
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn push(&mut self, text: &str) {
        if text.len() >= SHORTEST {
            self.secrets.push(text.to_owned());
        }
    }

    /// A text without the secrets.
    pub(crate) fn text(&self, text: &str) -> String {
        self.start(text, text.len())
    }

    /// The start of a text, of at most `most` bytes of it, without the secrets. One that begins
    /// there and ends behind is hidden as a whole.
    pub(crate) fn start(&self, text: &str, most: usize) -> String {
        let end = floor_char_boundary(text, most);
        let longest = self.secrets.first().map_or(0, String::len);
        let seen = text.get(..floor_char_boundary(text, end + longest)).unwrap_or(text);
        let of = |secret: &str| seen.match_indices(secret).map(|(at, secret)| at..at + secret.len()).collect::<Vec<_>>();
        let mut hidden: Vec<Range<usize>> = self.secrets.iter().flat_map(|secret| of(secret)).filter(|range| range.start < end).collect();
        hidden.sort_unstable_by_key(|range| range.start);

        let mut shown = String::with_capacity(end);
        let mut at = 0;
        for Range { start, end } in hidden {
            // One that overlaps the one before is hidden with it.
            if start >= at {
                shown.push_str(text.get(at..start).unwrap_or_default());
                shown.push_str(HIDDEN);
            }
            at = at.max(end);
        }
        // Nothing is left where a secret stands across the end.
        shown.push_str(text.get(at..end).unwrap_or_default());
        shown
    }

    /// Takes the secrets out of a JSON value.
    pub(crate) fn value(&self, value: &mut Value) {
        if self.secrets.is_empty() {
            return;
        }
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Number(number) if self.secrets.contains(&number.to_string()) => *value = Value::String(HIDDEN.to_owned()),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(fields) => {
                let old = std::mem::take(fields);
                for (name, mut value) in old {
                    self.value(&mut value);
                    fields.insert(self.text(&name), value);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

impl FiberStatus {
    /// Takes secrets out of the texts that programs and people have given.
    pub(crate) fn redact(&mut self, redactor: &Redactor) {
        let texts = [&mut self.reason, &mut self.key].into_iter().flatten().chain(self.retry.as_mut().map(|retry| &mut retry.error));
        let texts = texts.chain(self.unread.iter_mut().map(|unread| &mut unread.topic));
        texts.for_each(|text| *text = redactor.text(text));
        [&mut self.metadata, &mut self.progress].into_iter().flatten().for_each(|value| redactor.value(value));
    }
}

impl OpStatus {
    /// Takes secrets out of its key, its result and its error.
    pub(crate) fn redact(&mut self, redactor: &Redactor) {
        [&mut self.key, &mut self.result].into_iter().flatten().for_each(|value| redactor.value(value));
        if let Some(error) = &mut self.error {
            *error = redactor.text(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_taken_out_of_every_text() {
        let mut redactor = Redactor::default();
        redactor.add(r#"{"token":"s3cr3t","long":"s3cr3t-and-more","quote":"a\"bcd","n":12345678,"ok":true,"id":7}"#);
        assert_eq!(redactor.text("401 for s3cr3t-and-more, s3cr3t; 7"), "401 for •••, •••; 7");
        assert_eq!(redactor.text(r#"body {"t":"a\"bcd"}"#), r#"body {"t":"•••"}"#);
        assert_eq!(redactor.text("s3cr3ts3cr3t"), "••••••", "two");
        assert_eq!(redactor.start("12345678 s3cr3t", 11), "••• •••", "what begins there");
        let mut value = serde_json::json!({ "at": ["x s3cr3t y", 12_345_678, 7, null], "s3cr3t": true });
        redactor.value(&mut value);
        assert_eq!(value, serde_json::json!({ "at": ["x ••• y", HIDDEN, 7, null], "•••": true }));
    }
}
