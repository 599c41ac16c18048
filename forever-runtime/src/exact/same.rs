//! Whether two texts hold the same value where order may differ.
use super::error::Error;
use super::read::Reader;

/// A value in the form in which equal values are equal: whatever has no order of its own is sorted.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Node<'a> {
    /// A number or a word.
    Token(&'a str),
    /// A string as it is escaped in the text, without its quotes.
    Text(&'a str),
    /// The key of an escape.
    Escape(&'a str),
    /// The text does not tell a list from a set, so both count as sets.
    Items(Vec<Node<'a>>),
    Entries(Vec<(Node<'a>, Node<'a>)>),
}

/// Whether both texts, written by [`super::to_string`], hold the same value whatever the order of their items and entries.
pub(super) fn same(a: &str, b: &str) -> bool {
    if a == b {
        return true;
    }
    match (whole(a), whole(b)) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}

fn whole(text: &str) -> Result<Node<'_>, Error> {
    let mut reader = Reader::new(text);
    let node = node(&mut reader)?;
    reader.end()?;
    Ok(node)
}

fn node<'a>(reader: &mut Reader<'a>) -> Result<Node<'a>, Error> {
    match reader.peek() {
        Some(b'[') => {
            let mut items = Vec::new();
            reader.open(b'[')?;
            while reader.more(items.is_empty(), b']')? {
                items.push(node(reader)?);
            }
            reader.close(b']')?;
            items.sort_unstable();
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
                    pairs(reader, &mut entries)?;
                } else {
                    entries.push((name(key), node(reader)?));
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
    Ok(&token[1..token.len() - 1])
}

/// The key of an object as it would stand in a list of pairs.
fn name(key: &str) -> Node<'_> {
    match key.strip_prefix('$') {
        Some(rest) if rest.starts_with('$') => Node::Text(rest),
        Some(rest) => Node::Escape(rest),
        None => Node::Text(key),
    }
}

/// The entries of a `$map`; two texts of one map need not begin it at the same entry.
fn pairs<'a>(reader: &mut Reader<'a>, entries: &mut Vec<(Node<'a>, Node<'a>)>) -> Result<(), Error> {
    reader.open(b'[')?;
    let mut first = true;
    while reader.more(first, b']')? {
        first = false;
        reader.open(b'[')?;
        let key = node(reader)?;
        reader.expect(b',')?;
        entries.push((key, node(reader)?));
        reader.close(b']')?;
    }
    reader.close(b']')
}
