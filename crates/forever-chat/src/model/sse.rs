//! Parses bytes to events: the `text/event-stream` of the HTML standard. Only names and data are
//! kept.
//!
//! The bytes may be split anywhere. Each byte is read once, however long its line, and the length
//! of an event is limited. Lines are decoded as a whole, so a character that is split across reads
//! is complete; invalid UTF-8 becomes U+FFFD, as the standard requires.

use crate::model::chat_model::{ModelError, ModelErrorKind};

/// Maximum length of an event, in bytes: 16 MiB. The last event of a stored response repeats all of
/// it.
pub(super) const MAX_EVENT: usize = 16 << 20;

const MARK: &[u8] = b"\xEF\xBB\xBF";

/// One event.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Event {
    /// Its name; empty if it has none.
    pub(super) name: String,
    pub(super) data: String,
}

/// Parser from bytes to events.
#[derive(Debug, Default)]
pub(super) struct EventReader {
    line: Vec<u8>,
    event: Event,
    /// Whether the event has data, which may be empty.
    any: bool,
    /// Whether the last byte was a carriage return: a line feed that follows belongs to the same
    /// line end.
    after_return: bool,
    /// Whether the first line has begun, before which a byte order mark may stand.
    begun: bool,
}

impl EventReader {
    /// Reads more bytes, and passes each complete event to `each`, until that fails.
    ///
    /// # Errors
    /// Errors of `each`, and one if an event is too long.
    pub(super) fn push(&mut self, mut bytes: &[u8], mut each: impl FnMut(Event) -> Result<(), ModelError>) -> Result<(), ModelError> {
        if self.after_return && !bytes.is_empty() {
            self.after_return = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.add(&bytes[..end])?;
            let returned = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            if returned {
                self.after_return = bytes.is_empty();
                bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
            }
            if let Some(event) = self.end_of_line() {
                each(event)?;
            }
        }
        self.add(bytes)
    }

    fn add(&mut self, bytes: &[u8]) -> Result<(), ModelError> {
        if self.line.len() + self.event.data.len() + bytes.len() > MAX_EVENT {
            let text = format!("the provider has sent an event of more than {} MiB", MAX_EVENT >> 20);
            return Err(ModelError::new(ModelErrorKind::Other, text));
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_of_line(&mut self) -> Option<Event> {
        let bytes = if self.begun { &self.line[..] } else { self.line.strip_prefix(MARK).unwrap_or(&self.line) };
        self.begun = true;
        let line = String::from_utf8_lossy(bytes);
        let event = if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            std::mem::take(&mut self.any).then_some(event)
        } else {
            let (field, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "event" => value.clone_into(&mut self.event.name),
                "data" => {
                    if std::mem::replace(&mut self.any, true) {
                        self.event.data.push('\n');
                    }
                    self.event.data.push_str(value);
                }
                // Comments, `id`, `retry`, and unknown fields.
                _ => {}
            }
            None
        };
        self.line.clear();
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<'a>(reads: impl IntoIterator<Item = &'a [u8]>) -> Vec<(String, String)> {
        let (mut reader, mut events) = (EventReader::default(), Vec::new());
        for read in reads {
            let each = |event: Event| {
                events.push((event.name, event.data));
                Ok(())
            };
            reader.push(read, each).expect("nothing is too long");
        }
        events
    }

    const STREAM: &str = "\u{feff}: a comment\nevent: first\ndata: {\"a\":\ndata: \"ä€𝄞\"}\n\ndata:no space\r\nid: 7\r\n\r\nretry: 3\rdata\r\revent: no data\n\n\
                          data: one\r\ndata:  two\nunknown: x\n\n\n\ndata: cut off";

    fn events() -> Vec<(String, String)> {
        [("first", "{\"a\":\n\"ä€𝄞\"}"), ("", "no space"), ("", ""), ("", "one\n two")]
            .map(|(name, data)| (name.into(), data.into()))
            .to_vec()
    }

    #[test]
    fn each_kind_of_line_end_ends_a_line_and_what_is_unknown_is_passed_over() {
        assert_eq!(read([STREAM.as_bytes()]), events());
    }

    #[test]
    fn events_are_the_same_wherever_the_bytes_are_cut() {
        let bytes = STREAM.as_bytes();
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                assert_eq!(read([&bytes[..first], &bytes[first..second], &bytes[second..]]), events(), "cut at {first} and {second}");
            }
        }
        assert_eq!(read(bytes.chunks(1)), events());
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        assert_eq!(read([&b"data: a\xffb\xe2\x82\n\n"[..]]), [(String::new(), "a\u{fffd}b\u{fffd}".to_owned())]);
    }

    #[test]
    fn an_event_that_is_too_long_is_an_error_in_one_line_or_in_many() {
        let line = vec![b'x'; 1 << 20];
        for end in [&b""[..], &b"\ndata: "[..]] {
            let mut reader = EventReader::default();
            reader.push(b"data: ", |_| Ok(())).expect("it is short");
            let pushed = (0..16).try_for_each(|_| {
                reader.push(&line, |_| Ok(()))?;
                reader.push(end, |_| Ok(()))
            });
            let error = pushed.expect_err("it is too long");
            assert_eq!(error.kind(), ModelErrorKind::Other);
            assert_eq!(error.to_string(), "the provider has sent an event of more than 16 MiB");
        }
    }

    #[test]
    fn nothing_is_read_behind_an_event_that_is_refused() {
        let mut seen = 0;
        let refused = EventReader::default().push(b"data: 1\n\ndata: 2\n\n", |_| {
            seen += 1;
            Err(ModelError::new(ModelErrorKind::Other, "no"))
        });
        assert!(refused.is_err());
        assert_eq!(seen, 1);
    }
}
