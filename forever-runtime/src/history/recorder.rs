//! The recorder of one activation: from the main text of each snapshot to an item of the history.
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use super::item::{MOST_CHANGES, TextOf, push_texts, push_whole};
use crate::frame::snapshot::{json_string, push_json_string};
use crate::frame::tracker::local_name;
use crate::store::{Epoch, HISTORY, SnapshotDelta, SnapshotRows, StreamAppend};

/// The most bytes of items in a row without all values, in those of all values: as much has to be
/// read for one checkpoint.
const MOST_TIMES: usize = 8;

/// Room in the text of an item for what is not in the main text.
const ROOM: usize = 192;

/// Records the checkpoints of one activation.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// How many items are to be readable.
    keep: Option<u32>,
    /// Hash of the layout of the outermost function.
    layout: Arc<str>,
    /// The main text of the last checkpoint, if it was in the format.
    last: Option<MainText>,
    /// One of an earlier checkpoint, for its memory.
    spare: MainText,
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
        Recorder {
            keep,
            layout: layout.into(),
            last: None,
            spare: MainText::default(),
            parts: BTreeMap::new(),
            changes: 0,
            bytes: 0,
            since_ms: now_ms,
            failed: None,
        }
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
        let mut item = String::with_capacity(text.len() + ROOM);
        let _ = write!(item, "{{\"n\":{number},\"ms\":{now_ms},\"took\":{took},\"at\":");
        push_json_string(&mut item, at);
        if let Some((failed, error)) = self.failed.take() {
            let _ = write!(item, ",\"failed\":{failed},\"error\":{}", json_string(&error));
        }
        self.since_ms = now_ms;

        // A text that is not in the format is stored as it is, for the reader to complain about.
        let mut new = std::mem::take(&mut self.spare);
        let new = new.read(text).then_some(new);
        let whole = text.len() + self.parts.values().map(|text| text.len()).sum::<usize>();
        let begins = item.len();
        let is_change = match (&self.last, &new) {
            (Some(last), Some(new)) if self.changes < MOST_CHANGES && self.bytes <= MOST_TIMES * whole => {
                new.push_changes(last, &mut item).is_some()
            }
            _ => false,
        };
        if is_change {
            let parts: Vec<_> = parts.iter().map(|(name, text, before)| (*name, TextOf::since(before.as_deref(), text))).collect();
            push_texts(&mut item, "parts", &parts);
            self.changes += 1;
            self.bytes += item.len();
        } else {
            item.truncate(begins);
            let _ = write!(item, ",\"epoch\":{epoch}");
            push_whole(&mut item, Some(&self.layout), text, &self.parts);
            (self.changes, self.bytes) = (0, 0);
        }
        item.push('}');
        self.spare = std::mem::replace(&mut self.last, new).unwrap_or_default();
        // Those before the oldest whole item that is kept cannot be read.
        let keep = self.keep.map(|keep| u64::from(keep) + u64::from(MOST_CHANGES) + 1);
        StreamAppend { name: HISTORY.into(), first: None, count: 1, data: item, keep }
    }
}

/// The main text of a snapshot, taken apart.
#[derive(Debug, Default)]
struct MainText {
    text: String,
    frames: Vec<FrameText>,
    /// Those of all frames.
    locals: Vec<LocalText>,
}

/// One function on the call stack.
#[derive(Debug, Default)]
struct FrameText {
    /// Everything before `locals`: function, layout and cut point.
    head: Range<usize>,
    /// Which of the locals are its own.
    locals: Range<usize>,
}

#[derive(Debug)]
struct LocalText {
    /// As it is written.
    name: Range<usize>,
    value: Range<usize>,
}

impl MainText {
    /// Takes apart a text that this process has just written; `false` if it is not in that format.
    fn read(&mut self, text: &str) -> bool {
        self.text.clear();
        self.text.push_str(text);
        self.frames.clear();
        self.locals.clear();
        let mut scanner = Scanner { text: text.as_bytes(), at: 0 };
        loop {
            let Some((frame, calls)) = scanner.frame(&mut self.locals) else { return false };
            self.frames.push(frame);
            if !calls {
                return true;
            }
        }
    }

    /// A piece between two ASCII characters, which the scanner has found.
    fn at(&self, range: &Range<usize>) -> &str {
        self.text.get(range.clone()).unwrap_or_default()
    }

    /// Locals of a frame.
    fn locals(&self, frame: &FrameText) -> &[LocalText] {
        &self.locals[frame.locals.clone()]
    }

    /// Appends what changed since another text to an item, if both have the same calls under way.
    fn push_changes(&self, since: &MainText, item: &mut String) -> Option<()> {
        let innermost = self.frames.len().checked_sub(1)?;
        if since.frames.len() != self.frames.len() {
            return None;
        }
        let (mut set, mut gone) = (Vec::new(), String::new());
        for (depth, (new, old)) in self.frames.iter().zip(&since.frames).enumerate() {
            if depth < innermost && self.at(&new.head) != since.at(&old.head) {
                return None;
            }
            let (now, before) = (self.locals(new), since.locals(old));
            for (n, local) in now.iter().enumerate() {
                let (name, value) = (self.at(&local.name), self.at(&local.value));
                let is_it = |local: &&LocalText| since.at(&local.name) == name;
                let before = before.get(n).filter(is_it).or_else(|| before.iter().find(is_it)).map(|local| since.at(&local.value));
                if before != Some(value) {
                    set.push((name_in_history(depth, name)?, TextOf::since(before, value)));
                }
            }
            for local in before {
                let name = since.at(&local.name);
                if !now.iter().any(|local| self.at(&local.name) == name) {
                    gone.push_str(if gone.is_empty() { ",\"gone\":[" } else { "," });
                    push_json_string(&mut gone, &name_in_history(depth, name)?);
                }
            }
        }
        push_texts(item, "set", &set);
        if !gone.is_empty() {
            item.push_str(&gone);
            item.push(']');
        }
        Some(())
    }
}

/// The name of a local in an item, from how it is written in a main text.
fn name_in_history(depth: usize, written: &str) -> Option<Cow<'_, str>> {
    match written.strip_prefix('"')?.strip_suffix('"')? {
        escaped if escaped.contains('\\') => Some(local_name(depth, &serde_json::from_str::<String>(written).ok()?).into_owned().into()),
        name => Some(local_name(depth, name)),
    }
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
    fn frame(&mut self, locals: &mut Vec<LocalText>) -> Option<(FrameText, bool)> {
        let begins = self.at;
        let mut frame = FrameText::default();
        self.eat(b'{')?;
        loop {
            let name = self.string()?;
            self.eat(b':')?;
            match &self.text[name] {
                b"\"locals\"" => {
                    frame.head = begins..self.at;
                    let before = locals.len();
                    self.locals(locals)?;
                    frame.locals = before..locals.len();
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

    fn locals(&mut self, into: &mut Vec<LocalText>) -> Option<()> {
        self.eat(b'{')?;
        if self.eat(b'}').is_some() {
            return Some(());
        }
        loop {
            let name = self.string()?;
            self.eat(b':')?;
            into.push(LocalText { name, value: self.value()? });
            if self.eat(b',').is_none() {
                return self.eat(b'}');
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
