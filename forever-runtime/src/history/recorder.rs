//! The recorder of one activation: from the main text of each snapshot to an item of the history.
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::item::{MOST_CHANGES, TextOf, push_texts, push_whole};
use crate::frame::snapshot::{json_string, push_json_string};
use crate::frame::tracker::local_name;
use crate::store::{Epoch, HISTORY, SnapshotDelta, SnapshotRows, StreamAppend};

/// Records the checkpoints of one activation.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// How many items are to be readable.
    keep: Option<u32>,
    /// Hash of the layout of the outermost function.
    layout: Arc<str>,
    last: Option<MainText>,
    parts: BTreeMap<String, Arc<str>>,
    /// Items since the last whole one, and their bytes.
    changes: u32,
    bytes: usize,
    /// Time of the last checkpoint, or of the beginning.
    since_ms: i64,
    /// Failed attempts of the step under way, and the last error.
    failed: Option<(u32, String)>,
}

impl Recorder {
    pub(super) fn new(keep: Option<u32>, layout: &str, now_ms: i64) -> Self {
        Recorder { keep, layout: layout.into(), last: None, parts: BTreeMap::new(), changes: 0, bytes: 0, since_ms: now_ms, failed: None }
    }

    /// Takes over the parts of the snapshot that the activation resumes from.
    pub(crate) fn resume(&mut self, rows: &SnapshotRows) {
        self.parts.clone_from(&rows.parts);
    }

    /// An attempt of the step under way has failed.
    pub(crate) fn attempt_failed(&mut self, failed: u32, error: &str) {
        self.failed = Some((failed, error.to_owned()));
    }

    /// The item of a checkpoint.
    pub(crate) fn record(&mut self, number: u64, at: &str, text: &str, delta: &SnapshotDelta, epoch: Epoch, now_ms: i64) -> StreamAppend {
        for name in &delta.removed_parts {
            self.parts.remove(name);
        }
        let parts: Vec<(&str, &str, Option<Arc<str>>)> = delta
            .parts
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_ref(), self.parts.insert(name.clone(), Arc::clone(text))))
            .collect();

        let took = now_ms.saturating_sub(self.since_ms);
        let mut item = format!("{{\"n\":{number},\"ms\":{now_ms},\"took\":{took},\"at\":");
        push_json_string(&mut item, at);
        if let Some((failed, error)) = self.failed.take() {
            for piece in [",\"failed\":", &failed.to_string(), ",\"error\":", &json_string(&error)] {
                item.push_str(piece);
            }
        }
        self.since_ms = now_ms;

        // A text that is not in the format is stored as it is, for the reader to complain about.
        let new = MainText::of(text);
        let whole = text.len() + self.parts.values().map(|text| text.len()).sum::<usize>();
        let changes = match (&self.last, &new) {
            (Some(last), Some(new)) if self.changes < MOST_CHANGES && self.bytes <= 2 * whole => new.changes(last),
            _ => None,
        };
        if let Some(changes) = changes {
            item.push_str(&changes);
            let parts: Vec<_> = parts.iter().map(|(name, text, before)| (*name, TextOf::since(before.as_deref(), text))).collect();
            push_texts(&mut item, "parts", &parts);
            self.changes += 1;
            self.bytes += item.len();
        } else {
            for piece in [",\"epoch\":", &epoch.to_string()] {
                item.push_str(piece);
            }
            push_whole(&mut item, Some(&self.layout), text, &self.parts);
            (self.changes, self.bytes) = (0, 0);
        }
        item.push('}');
        self.last = new;
        // Those before the oldest whole item that is kept cannot be read.
        let keep = self.keep.map(|keep| u64::from(keep) + u64::from(MOST_CHANGES) + 1);
        StreamAppend { name: HISTORY.into(), first: None, count: 1, data: item, keep }
    }
}

/// The main text of a snapshot, taken apart.
#[derive(Debug)]
struct MainText {
    text: String,
    frames: Vec<FrameText>,
}

/// One function on the call stack.
#[derive(Debug, Default)]
struct FrameText {
    /// Everything before `locals`: function, layout and cut point.
    head: Range<usize>,
    /// Names, as they are written, with values.
    locals: Vec<(Range<usize>, Range<usize>)>,
}

impl MainText {
    /// Takes apart a text that this process has just written; `None` if it is not in that format.
    fn of(text: &str) -> Option<Self> {
        let mut scanner = Scanner { text: text.as_bytes(), at: 0 };
        let mut frames = Vec::new();
        loop {
            let (frame, calls) = scanner.frame()?;
            frames.push(frame);
            if !calls {
                return Some(MainText { text: text.to_owned(), frames });
            }
        }
    }

    fn at(&self, range: &Range<usize>) -> &str {
        &self.text[range.clone()]
    }

    /// What changed since another text, if both have the same calls under way.
    fn changes(&self, since: &MainText) -> Option<String> {
        let innermost = self.frames.len().checked_sub(1)?;
        if since.frames.len() != self.frames.len() {
            return None;
        }
        let (mut set, mut gone) = (Vec::new(), String::new());
        for (depth, (new, old)) in self.frames.iter().zip(&since.frames).enumerate() {
            if depth < innermost && self.at(&new.head) != since.at(&old.head) {
                return None;
            }
            let before = |n: usize, name: &str| {
                let is_it = |local: &&(Range<usize>, Range<usize>)| since.at(&local.0) == name;
                old.locals.get(n).filter(is_it).or_else(|| old.locals.iter().find(is_it)).map(|(_, value)| since.at(value))
            };
            for (n, (name, value)) in new.locals.iter().enumerate() {
                let (name, value) = (self.at(name), self.at(value));
                let before = before(n, name);
                if before != Some(value) {
                    set.push((local_name(depth, &unquoted(name)?), TextOf::since(before, value)));
                }
            }
            for (name, _) in &old.locals {
                let name = since.at(name);
                if !new.locals.iter().any(|(there, _)| self.at(there) == name) {
                    gone.push_str(if gone.is_empty() { ",\"gone\":[" } else { "," });
                    push_json_string(&mut gone, &local_name(depth, &unquoted(name)?));
                }
            }
        }
        if !gone.is_empty() {
            gone.push(']');
        }
        let mut changes = String::new();
        push_texts(&mut changes, "set", &set);
        Some(changes + &gone)
    }
}

fn unquoted(name: &str) -> Option<String> {
    serde_json::from_str(name).ok()
}

/// Finds the ends of values in a text that is known to be JSON without white space between values,
/// in one look at each byte.
struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

impl Scanner<'_> {
    fn eat(&mut self, byte: u8) -> Option<()> {
        (self.text.get(self.at) == Some(&byte)).then(|| self.at += 1)
    }

    /// The function at the cursor, and whether the one that it calls follows.
    fn frame(&mut self) -> Option<(FrameText, bool)> {
        let begins = self.at;
        let mut frame = FrameText::default();
        self.eat(b'{')?;
        loop {
            let name = self.string()?;
            self.eat(b':')?;
            match &self.text[name] {
                b"\"locals\"" => {
                    frame.head = begins..self.at;
                    frame.locals = self.locals()?;
                }
                b"\"call\"" if self.text.get(self.at) == Some(&b'{') => return Some((frame, true)),
                _ => {
                    self.value()?;
                }
            }
            if self.eat(b',').is_none() {
                return self.eat(b'}').map(|()| (frame, false));
            }
        }
    }

    fn locals(&mut self) -> Option<Vec<(Range<usize>, Range<usize>)>> {
        let mut all = Vec::new();
        self.eat(b'{')?;
        if self.eat(b'}').is_some() {
            return Some(all);
        }
        loop {
            let name = self.string()?;
            self.eat(b':')?;
            all.push((name, self.value()?));
            if self.eat(b',').is_none() {
                return self.eat(b'}').map(|()| all);
            }
        }
    }

    /// A string with its quotes.
    fn string(&mut self) -> Option<Range<usize>> {
        let begins = self.at;
        self.eat(b'"')?;
        loop {
            match self.text.get(self.at)? {
                b'"' => break,
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        Some(begins..self.at)
    }

    fn value(&mut self) -> Option<Range<usize>> {
        let begins = self.at;
        let mut open = 0_usize;
        loop {
            match self.text.get(self.at)? {
                b'"' => {
                    self.string()?;
                }
                b'{' | b'[' => {
                    open += 1;
                    self.at += 1;
                }
                b'}' | b']' | b',' if open == 0 => break,
                b'}' | b']' => {
                    open -= 1;
                    self.at += 1;
                }
                _ => self.at += 1,
            }
            if open == 0 && matches!(self.text.get(self.at), None | Some(b',' | b'}' | b']')) {
                break;
            }
        }
        (self.at > begins).then_some(begins..self.at)
    }
}
