//! What a stored text has that its type does not read: kept, and written back with the value.
//!
//! Code of before meets such a text where newer code has added a field. Reading tells which values
//! were ignored; the value, written again right away, shows what the type knows. Of what serde
//! buffers before it knows the type (a tagged or a flattened one) only that is known: a key that is
//! not written again was not read, unless one is written in its place that is not stored.
//!
//! A key belongs to its object, and that to the keys and places around it. An item of a list keeps
//! what it has wherever it is moved, as long as what is known of it is unchanged, and at its place
//! otherwise. In a list that has become shorter, what belonged to a changed item is dropped.
use std::collections::{BTreeMap, BTreeSet};

use super::error::Error;
use super::read::Reader;

/// What a text has that its type does not read.
#[derive(Debug)]
pub struct Unread {
    extra: Extra,
    renamed: Option<Error>,
}

#[derive(Debug)]
enum Extra {
    Object {
        /// Keys and values that are not read.
        keys: Vec<(String, String)>,
        /// The keys that are written, by which a struct is known again; a map has read them all.
        known: BTreeSet<String>,
        /// If some were buffered, the texts among its values: one of them may be the tag, and then
        /// another one means another variant.
        texts: BTreeMap<String, String>,
        inner: BTreeMap<String, Extra>,
    },
    /// What is known of each item, as text, and what else it has.
    List(Vec<(String, Option<Extra>)>),
}

impl Unread {
    /// Of a text, where values that begin at these places were ignored. The value that was read is
    /// `written`; `None` where what was ignored has no place in that.
    pub(super) fn of(text: &str, ignored: &[usize], written: &str) -> Result<Option<Self>, Error> {
        let mut collect = Collect { ignored: ignored.iter().copied().collect(), path: Vec::new(), renamed: None };
        let extra = collect.extra(&whole(text)?, &whole(written)?);
        Ok(extra.map(|extra| Unread { extra, renamed: collect.renamed }))
    }

    /// Why a key was probably renamed: one is not read beside one that is not stored, so that its
    /// field has taken its default.
    pub fn renamed(&self) -> Option<&Error> {
        self.renamed.as_ref()
    }

    /// The text of the value with what was not read, and whether all of that has a place in it.
    pub fn write_back(&self, text: &str) -> Result<(String, bool), Error> {
        let mut out = String::with_capacity(text.len());
        let all = put(&self.extra, &whole(text)?, &mut out);
        Ok((out, all))
    }
}

/// A value in a text.
struct Node<'t> {
    /// Where it begins.
    at: usize,
    text: &'t str,
    inner: Inner<'t>,
}

enum Inner<'t> {
    /// By key, as it stands in the text.
    Object(Vec<(&'t str, Node<'t>)>),
    List(Vec<Node<'t>>),
    Other,
}

fn whole(text: &str) -> Result<Node<'_>, Error> {
    let mut reader = Reader::new(text);
    let node = node(&mut reader)?;
    reader.end()?;
    Ok(node)
}

fn node<'t>(reader: &mut Reader<'t>) -> Result<Node<'t>, Error> {
    let at = reader.mark();
    let inner = match reader.peek() {
        Some(b'{') => {
            let mut entries = Vec::new();
            reader.open(b'{')?;
            while reader.more(entries.is_empty(), b'}')? {
                let key = reader.mark();
                reader.string()?;
                let key = reader.since(key);
                reader.expect(b':')?;
                entries.push((key, node(reader)?));
            }
            reader.close(b'}')?;
            Inner::Object(entries)
        }
        Some(b'[') => {
            let mut items = Vec::new();
            reader.open(b'[')?;
            while reader.more(items.is_empty(), b']')? {
                items.push(node(reader)?);
            }
            reader.close(b']')?;
            Inner::List(items)
        }
        _ => {
            reader.skip()?;
            Inner::Other
        }
    };
    Ok(Node { at, text: reader.since(at), inner })
}

fn by_key<'a, 't>(entries: &'a [(&'t str, Node<'t>)]) -> BTreeMap<&'t str, &'a Node<'t>> {
    entries.iter().map(|(key, value)| (*key, value)).collect()
}

/// Collects what is ignored in a text.
struct Collect<'t> {
    /// Where ignored values begin.
    ignored: BTreeSet<usize>,
    /// The way to the value that is looked at.
    path: Vec<Step<'t>>,
    renamed: Option<Error>,
}

enum Step<'t> {
    Key(&'t str),
    Item(usize),
}

impl<'t> Collect<'t> {
    fn extra(&mut self, stored: &Node<'t>, written: &Node<'_>) -> Option<Extra> {
        match (&stored.inner, &written.inner) {
            (Inner::Object(stored), Inner::Object(written)) => {
                let (mut unread, read): (Vec<_>, Vec<_>) = stored.iter().partition(|(_, value)| self.ignored.contains(&value.at));
                let (is_stored, is_written) = (by_key(stored), by_key(written));
                let absent: Vec<&str> = written.iter().map(|(key, _)| *key).filter(|key| !is_stored.contains_key(key)).collect();
                // What is read and not written has an alias: it is written under another name.
                let mut aliases = absent.iter().copied();
                let (mut inner, mut buffered) = (BTreeMap::new(), Vec::new());
                for entry in read {
                    let (key, value) = entry;
                    let name = if is_written.contains_key(key) { Some(*key) } else { aliases.next() };
                    if name.is_none() {
                        buffered.push(entry);
                    }
                    self.path.push(Step::Key(key));
                    let below = name.and_then(|name| Some((name, self.extra(value, is_written.get(name)?)?)));
                    self.path.pop();
                    inner.extend(below.map(|(name, below)| (name.to_owned(), below)));
                }
                if let (Some((unread, _)), Some(absent)) = (unread.first(), aliases.next()) {
                    self.renamed(unread, absent);
                }
                let texts = written.iter().filter(|(_, value)| !buffered.is_empty() && value.text.starts_with('"'));
                let texts = texts.map(|(key, value)| ((*key).to_owned(), value.text.to_owned())).collect();
                unread.append(&mut buffered);
                let keys: Vec<_> = unread.into_iter().map(|(key, value)| ((*key).to_owned(), value.text.to_owned())).collect();
                let known = is_written.into_keys().map(str::to_owned).collect();
                (!keys.is_empty() || !inner.is_empty()).then_some(Extra::Object { keys, known, texts, inner })
            }
            (Inner::List(stored), Inner::List(written)) if stored.len() == written.len() => {
                let items = stored.iter().zip(written).enumerate().map(|(place, (stored, written))| {
                    self.path.push(Step::Item(place));
                    let extra = self.extra(stored, written);
                    self.path.pop();
                    (written.text.to_owned(), extra)
                });
                let items: Vec<_> = items.collect();
                items.iter().any(|(_, extra)| extra.is_some()).then_some(Extra::List(items))
            }
            _ => None,
        }
    }

    fn renamed(&mut self, unread: &str, absent: &str) {
        let path = &self.path;
        self.renamed.get_or_insert_with(|| {
            let error = Error::new(format_args!("{unread} is stored and not read, and {absent} is not stored"));
            path.iter().rev().fold(error, |error, step| match step {
                Step::Key(key) => error.in_key(*key),
                Step::Item(place) => error.in_item(*place),
            })
        });
    }
}

/// Writes a value with what else it had; says whether all of that has a place.
fn put(extra: &Extra, value: &Node<'_>, out: &mut String) -> bool {
    match (extra, &value.inner) {
        (Extra::Object { keys, known, texts, inner }, Inner::Object(entries))
            if keys.is_empty() || is_alike(known, texts, &by_key(entries)) =>
        {
            let (is_there, mut all) = (by_key(entries), true);
            let mut more = Separated::begin(out, '{');
            for (key, value) in entries {
                let out = more.next();
                out.push_str(key);
                out.push(':');
                all &= put_or_copy(inner.get(*key), value, out);
            }
            for (key, text) in keys.iter().filter(|(key, _)| !is_there.contains_key(&**key)) {
                let out = more.next();
                out.push_str(key);
                out.push(':');
                out.push_str(text);
            }
            out.push('}');
            all
        }
        (Extra::List(before), Inner::List(items)) => {
            let (found, mut all) = assigned(before, items);
            let mut more = Separated::begin(out, '[');
            for (value, extra) in items.iter().zip(found) {
                all &= put_or_copy(extra, value, more.next());
            }
            out.push(']');
            all
        }
        // It is another value: nothing of it is left.
        _ => {
            out.push_str(value.text);
            true
        }
    }
}

fn put_or_copy(extra: Option<&Extra>, value: &Node<'_>, out: &mut String) -> bool {
    if let Some(extra) = extra {
        return put(extra, value, out);
    }
    out.push_str(value.text);
    true
}

/// Whether an object is of the type that wrote `known`; fields that are empty may be left out.
fn is_alike(known: &BTreeSet<String>, texts: &BTreeMap<String, String>, entries: &BTreeMap<&str, &Node<'_>>) -> bool {
    let are_there = known.iter().all(|key| entries.contains_key(&**key)) || entries.keys().all(|key| known.contains(*key));
    are_there && texts.iter().all(|(key, text)| entries.get(&**key).is_some_and(|value| value.text == text))
}

/// What each item had, and whether nothing of it is dropped.
fn assigned<'e>(before: &'e [(String, Option<Extra>)], items: &[Node<'_>]) -> (Vec<Option<&'e Extra>>, bool) {
    let mut places: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for (place, (text, _)) in before.iter().enumerate() {
        places.entry(text).or_default().insert(place);
    }
    let mut from: Vec<Option<usize>> = vec![None; items.len()];
    // Unchanged: at its place if it can be, so that equal items do not exchange what they have.
    for stays in [true, false] {
        for (place, item) in items.iter().enumerate().filter(|(place, _)| !stays || *place < before.len()) {
            let Some(there) = places.get_mut(item.text).filter(|_| from[place].is_none()) else { continue };
            let old = if stays { there.take(&place) } else { there.pop_first() };
            from[place] = old;
        }
    }
    let is_shorter = items.len() < before.len();
    let left: BTreeSet<usize> = places.into_values().flatten().collect();
    let changed: Vec<usize> = (0..items.len()).filter(|place| from[*place].is_none()).collect();
    for place in changed.iter().filter(|place| !is_shorter && left.contains(place)) {
        from[*place] = Some(*place);
    }
    let dropped = is_shorter && !changed.is_empty() && left.iter().any(|place| before[*place].1.is_some());
    (from.into_iter().map(|place| before[place?].1.as_ref()).collect(), !dropped)
}

/// Entries with commas between them.
struct Separated<'a> {
    out: &'a mut String,
    is_first: bool,
}

impl<'a> Separated<'a> {
    fn begin(out: &'a mut String, open: char) -> Self {
        out.push(open);
        Separated { out, is_first: true }
    }

    fn next(&mut self) -> &mut String {
        if !std::mem::take(&mut self.is_first) {
            self.out.push(',');
        }
        self.out
    }
}
