//! Items of a history as they are stored, one JSON object per checkpoint.
//!
//! `{"n":7,"at":"charge","ms":1790000000,"took":12,"set":{"total":17},"gone":["draft"]}` has what
//! changed since the item before. Where a piece of a long text changed, `set`, or `parts`, is a
//! list: `[["total",17],["notes",120,2,"more"]]` is the new value of `total`, and for `notes` the
//! first 120 bytes of the text before, `more`, and the last 2 bytes. An item with `snapshot` and
//! `parts` has everything; the first of an activation, and one of every [`MOST_CHANGES`], are such.
//! A local of a function at depth 1 of the call stack is named `1:total`, as parts are.
//!
//! An item with `origin` is no checkpoint: it has what a person has made of the fiber, and the
//! fiber as it stands with that.
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::splice::Splice;
use crate::frame::snapshot::{Snapshot, json_string, push_json_string};
use crate::store::{Epoch, LoadedFiber};

/// The most items without all values in a row.
pub(super) const MOST_CHANGES: u32 = 64;

/// An item, read.
#[derive(Debug, Deserialize)]
pub(super) struct Item {
    /// Number of the checkpoint.
    pub(super) n: u64,
    /// Name of the cut point that was passed, of the innermost function.
    pub(super) at: String,
    /// Time of the checkpoint.
    pub(super) ms: i64,
    /// Time since the checkpoint before or the beginning of the activation.
    pub(super) took: i64,
    /// Epoch, in the first item of an activation.
    pub(super) epoch: Option<Epoch>,
    /// Failed attempts of the step.
    #[serde(default)]
    pub(super) failed: u32,
    /// The last error of these.
    pub(super) error: Option<String>,
    /// Locals with new values.
    #[serde(default)]
    pub(super) set: NewTexts,
    /// Locals that are no longer kept.
    #[serde(default)]
    pub(super) gone: Vec<String>,
    /// Parts with new texts; in a whole item all parts.
    #[serde(default)]
    pub(super) parts: NewTexts,
    /// The main text of the snapshot, in a whole item.
    pub(super) snapshot: Option<Snapshot>,
    /// Hash of the layout of the outermost function, in a whole item.
    pub(super) layout: Option<String>,
    /// What the item is, if it is no checkpoint.
    pub(super) origin: Option<Origin>,
}

/// New texts by name.
#[derive(Debug, Default)]
pub(super) struct NewTexts(pub(super) Vec<(String, NewText)>);

impl NewTexts {
    /// Whether one of them is made from the text before.
    pub(super) fn has_pieces(&self) -> bool {
        self.0.iter().any(|(_, text)| matches!(text, NewText::Spliced(_)))
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.0.iter().map(|(name, _)| name.clone()).collect()
    }
}

/// A new text of a value.
#[derive(Debug)]
pub(super) enum NewText {
    Whole(Box<RawValue>),
    /// Made from the text before.
    Spliced(Splice<String>),
}

impl<'de> Deserialize<'de> for NewTexts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Texts;

        impl<'de> Visitor<'de> for Texts {
            type Value = NewTexts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of values, or a list of changes")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NewTexts, A::Error> {
                let mut texts = NewTexts::default();
                while let Some((name, text)) = map.next_entry()? {
                    texts.0.push((name, NewText::Whole(text)));
                }
                Ok(texts)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<NewTexts, A::Error> {
                let mut texts = NewTexts::default();
                while let Some(Named(name, text)) = seq.next_element()? {
                    texts.0.push((name, text));
                }
                Ok(texts)
            }
        }

        deserializer.deserialize_any(Texts)
    }
}

/// One change of a list: `["total",17]` or `["notes",120,2,"more"]`.
struct Named(String, NewText);

impl<'de> Deserialize<'de> for Named {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields: Vec<Box<RawValue>> = Deserialize::deserialize(deserializer)?;
        let field = |n: usize| fields[n].get();
        let text = match fields.len() {
            2 => NewText::Whole(fields[1].clone()),
            4 => NewText::Spliced(Splice { head: read(field(1))?, tail: read(field(2))?, middle: read(field(3))? }),
            fields => return Err(Error::invalid_length(fields, &"a name with a value, or with a piece of one")),
        };
        Ok(Named(read(field(0))?, text))
    }
}

fn read<'de, T: Deserialize<'de>, E: Error>(text: &'de str) -> Result<T, E> {
    serde_json::from_str(text).map_err(E::custom)
}

/// What a person has made of a fiber.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Origin {
    /// Values were changed.
    Edit {
        /// Who has changed them.
        by: Option<String>,
        changes: Changes,
    },
    /// The fiber is a fork.
    Fork {
        /// Id of the fiber that it was forked from.
        of: String,
        /// Number of the checkpoint that it has begun behind.
        checkpoint: u64,
    },
    /// The fiber is imported.
    Import {
        /// Id that it had.
        of: String,
        exported_ms: i64,
    },
}

/// Changed values by name; `None` for those that are secret.
pub(crate) type Changes = BTreeMap<String, Option<Change>>;

/// A changed value.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Change {
    pub(crate) before: Option<Box<RawValue>>,
    pub(crate) after: Box<RawValue>,
}

impl Origin {
    /// Whether another copy was made of the same.
    pub(crate) fn is_same(&self, other: &Origin) -> bool {
        match (self, other) {
            (Origin::Fork { of, checkpoint }, Origin::Fork { of: other, checkpoint: at }) => of == other && checkpoint == at,
            (Origin::Import { of, exported_ms }, Origin::Import { of: other, exported_ms: at }) => of == other && exported_ms == at,
            _ => false,
        }
    }
}

/// The item for something else than a checkpoint, with the fiber as it stands with that.
pub(crate) fn item_of(loaded: &LoadedFiber, at: &str, now_ms: i64, origin: &Origin) -> String {
    let mut item = format!("{{\"n\":{},\"ms\":{now_ms},\"took\":0,\"at\":{}", loaded.number, json_string(at));
    if let Ok(origin) = serde_json::to_string(origin) {
        item.push_str(",\"origin\":");
        item.push_str(&origin);
    }
    if let Some(text) = &loaded.snapshot {
        push_whole(&mut item, loaded.layout.as_ref().map(|layout| layout.hash.as_str()), text, &loaded.rows.parts);
    }
    item.push('}');
    item
}

/// Appends everything that a whole item has.
pub(super) fn push_whole(item: &mut String, layout: Option<&str>, text: &str, parts: &BTreeMap<String, Arc<str>>) {
    if let Some(layout) = layout {
        item.push_str(",\"layout\":");
        push_json_string(item, layout);
    }
    item.push_str(",\"snapshot\":");
    item.push_str(text);
    let parts: Vec<_> = parts.iter().map(|(name, text)| (name.as_str(), TextOf::Whole(text))).collect();
    push_texts(item, "parts", &parts);
}

/// A text that is written: as a whole, or as what changed in it.
#[derive(Debug, Clone, Copy)]
pub(super) enum TextOf<'a> {
    Whole(&'a str),
    Spliced(Splice<&'a str>),
}

impl<'a> TextOf<'a> {
    /// As a piece, if most of the text is as it was before.
    pub(super) fn since(before: Option<&str>, text: &'a str) -> Self {
        before.and_then(|before| Splice::between(before, text)).map_or(TextOf::Whole(text), TextOf::Spliced)
    }
}

/// Appends new texts as field `field`, if there are any.
pub(super) fn push_texts(item: &mut String, field: &str, texts: &[(impl AsRef<str>, TextOf<'_>)]) {
    let is_list = texts.iter().any(|(_, text)| matches!(text, TextOf::Spliced(_)));
    let mut some = false;
    for (name, text) in texts {
        if std::mem::replace(&mut some, true) {
            item.push(',');
        } else {
            for piece in [",\"", field, if is_list { "\":[" } else { "\":{" }] {
                item.push_str(piece);
            }
        }
        if is_list {
            item.push('[');
        }
        push_json_string(item, name.as_ref());
        item.push(if is_list { ',' } else { ':' });
        match text {
            TextOf::Whole(text) => item.push_str(text),
            TextOf::Spliced(Splice { head, tail, middle }) => {
                for piece in [&head.to_string(), ",", &tail.to_string(), ","] {
                    item.push_str(piece);
                }
                push_json_string(item, middle);
            }
        }
        if is_list {
            item.push(']');
        }
    }
    if some {
        item.push(if is_list { ']' } else { '}' });
    }
}
