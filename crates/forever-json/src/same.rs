//! Comparison without regard to order: whether two texts hold the same value, and the canonical
//! text of a value.
use super::error::Error;
use super::read::Reader;

/// A value in normal form: everything without an order of its own is sorted.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Node<'a> {
    /// A number or a word.
    Token(&'a str),
    /// A string as escaped in the text, without its quotes.
    Text(&'a str),
    /// The key of an escape.
    Escape(&'a str),
    Items(Vec<Node<'a>>),
    Entries(Vec<(Node<'a>, Node<'a>)>),
}

/// Whether both texts, written by [`super::to_string`], hold the same value, whatever the order of
/// their items and entries.
pub(super) fn same(a: &str, b: &str) -> bool {
    if a == b {
        return true;
    }
    match (whole(a, Lists::AreSets), whole(b, Lists::AreSets)) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}

/// The text with the entries of its objects and maps sorted by key: equal for equal values, and
/// different for others.
pub(super) fn canonical(text: &str) -> Result<String, Error> {
    let mut out = String::with_capacity(text.len());
    whole(text, Lists::AreLists)?.write(&mut out);
    Ok(out)
}

/// The text with its items and entries sorted: one for all texts that are the same.
pub(super) fn unordered(text: &str) -> Result<String, Error> {
    let mut out = String::with_capacity(text.len());
    whole(text, Lists::AreSets)?.write(&mut out);
    Ok(out)
}

/// How the items of an array are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lists {
    AreSets,
    AreLists,
}

impl Node<'_> {
    fn write(&self, out: &mut String) {
        match self {
            Node::Token(token) => out.push_str(token),
            Node::Text(text) => quoted(out, "", text),
            Node::Escape(name) => quoted(out, "$", name),
            Node::Items(items) => list(out, '[', items, ']', |out, item| item.write(out)),
            Node::Entries(entries) if entries.iter().all(|(key, _)| matches!(key, Node::Text(_) | Node::Escape(_))) => {
                list(out, '{', entries, '}', |out, (key, value)| {
                    match key {
                        Node::Text(name) if name.starts_with('$') => quoted(out, "$", name),
                        key => key.write(out),
                    }
                    out.push(':');
                    value.write(out);
                });
            }
            Node::Entries(entries) => {
                out.push_str("{\"$map\":");
                list(out, '[', entries, ']', |out, (key, value)| {
                    out.push('[');
                    key.write(out);
                    out.push(',');
                    value.write(out);
                    out.push(']');
                });
                out.push('}');
            }
        }
    }
}

fn quoted(out: &mut String, before: &str, text: &str) {
    out.push('"');
    out.push_str(before);
    out.push_str(text);
    out.push('"');
}

fn list<T>(out: &mut String, open: char, items: &[T], close: char, write: impl Fn(&mut String, &T)) {
    out.push(open);
    for (n, item) in items.iter().enumerate() {
        if n > 0 {
            out.push(',');
        }
        write(out, item);
    }
    out.push(close);
}

fn whole(text: &str, lists: Lists) -> Result<Node<'_>, Error> {
    let mut reader = Reader::new(text);
    let node = node(&mut reader, lists)?;
    reader.end()?;
    Ok(node)
}

fn node<'a>(reader: &mut Reader<'a>, lists: Lists) -> Result<Node<'a>, Error> {
    match reader.peek() {
        Some(b'[') => {
            let mut items = Vec::new();
            reader.open(b'[')?;
            while reader.more(items.is_empty(), b']')? {
                items.push(node(reader, lists)?);
            }
            reader.close(b']')?;
            if lists == Lists::AreSets {
                items.sort_unstable();
            }
            Ok(Node::Items(items))
        }
        Some(b'{') => {
            let mut entries = Vec::new();
            reader.open(b'{')?;
            let mut first = true;
            while reader.more(first, b'}')? {
                first = false;
                let key = text(reader)?;
                reader.expect(b':')?;
                if key == "$map" {
                    pairs(reader, lists, &mut entries)?;
                } else {
                    entries.push((name(key), node(reader, lists)?));
                }
            }
            reader.close(b'}')?;
            entries.sort_unstable();
            Ok(Node::Entries(entries))
        }
        Some(b'"') => text(reader).map(Node::Text),
        _ => reader.skip().map(Node::Token),
    }
}

/// A string without its quotes.
fn text<'a>(reader: &mut Reader<'a>) -> Result<&'a str, Error> {
    let mark = reader.mark();
    reader.string()?;
    let token = reader.since(mark);
    Ok(token.strip_prefix('"').and_then(|token| token.strip_suffix('"')).unwrap_or(token))
}

/// The key of an object in the form of a list of pairs.
fn name(key: &str) -> Node<'_> {
    match key.strip_prefix('$') {
        Some(rest) if rest.starts_with('$') => Node::Text(rest),
        Some(rest) => Node::Escape(rest),
        None => Node::Text(key),
    }
}

/// The entries of a `$map`; two texts of one map may begin it at different entries.
fn pairs<'a>(reader: &mut Reader<'a>, lists: Lists, entries: &mut Vec<(Node<'a>, Node<'a>)>) -> Result<(), Error> {
    reader.open(b'[')?;
    let mut first = true;
    while reader.more(first, b']')? {
        first = false;
        reader.open(b'[')?;
        let key = node(reader, lists)?;
        reader.expect(b',')?;
        entries.push((key, node(reader, lists)?));
        reader.close(b']')?;
    }
    reader.close(b']')
}
