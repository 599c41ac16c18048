//! Conversion of values to and from Postgres, and the transaction that statements run in.
//!
//! Statements are SQL in which `@` stands for the schema, with typed arguments. So no statement has
//! to be described by the server before it runs, and none needs to be prepared.
//!
//! Text keeps every byte: Postgres refuses U+0000 in text, so it is stored as `U+001A 0`, and
//! U+001A as `U+001A 1`. Two stored texts are equal exactly where the originals are.
use std::error::Error as StdError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forever_store::{CommitNotices, Error, ErrorKind, Runnable, UnreadMessages};
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use crate::pool::Connection;

/// Why a statement or an operation failed.
#[derive(Debug)]
pub(crate) enum Fail {
    /// An error of Postgres, or of the connection to it.
    Postgres(tokio_postgres::Error),
    /// The operation is refused, or a row cannot be read.
    Refused(Error),
}

impl From<tokio_postgres::Error> for Fail {
    fn from(error: tokio_postgres::Error) -> Self {
        Fail::Postgres(error)
    }
}

impl From<Error> for Fail {
    fn from(error: Error) -> Self {
        Fail::Refused(error)
    }
}

pub(crate) type Done<T> = Result<T, Fail>;

/// A refusal of kind [`ErrorKind::Store`]: the stored rows are not as expected.
pub(crate) fn refused<T>(why: impl Into<String>) -> Done<T> {
    Err(Fail::Refused(Error::new(ErrorKind::Store, why)))
}

/// The error of a row that cannot be read.
pub(crate) fn damaged(why: impl Into<String>) -> Fail {
    Fail::Refused(Error::new(ErrorKind::Value, why))
}

const NUL: char = '\0';
const ESCAPE: char = '\u{1a}';

/// Writes text with escapes, as it is stored.
fn escape(text: &str, out: &mut BytesMut) {
    for piece in text.split_inclusive([NUL, ESCAPE]) {
        let (plain, escaped): (&str, &[u8]) = match (piece.strip_suffix(NUL), piece.strip_suffix(ESCAPE)) {
            (Some(plain), _) => (plain, b"\x1a0"),
            (_, Some(plain)) => (plain, b"\x1a1"),
            (None, None) => (piece, b""),
        };
        out.extend_from_slice(plain.as_bytes());
        out.extend_from_slice(escaped);
    }
}

/// Returns stored text without its escapes.
fn unescape(stored: &str) -> String {
    if !stored.contains(ESCAPE) {
        return stored.to_owned();
    }
    let mut text = String::with_capacity(stored.len());
    let mut rest = stored.chars();
    while let Some(c) = rest.next() {
        match c {
            ESCAPE => match rest.next() {
                Some('0') => text.push(NUL),
                Some('1') | None => text.push(ESCAPE),
                // The library writes no other escape, so this one was written by hand.
                Some(other) => text.extend([ESCAPE, other]),
            },
            c => text.push(c),
        }
    }
    text
}

/// An argument of a statement.
#[derive(Debug, Clone)]
pub(crate) enum Arg<'a> {
    Int(Option<i64>),
    Flag(bool),
    Text(Option<&'a str>),
    Ints(Vec<Option<i64>>),
    Flags(Vec<bool>),
    Texts(Vec<Option<&'a str>>),
}

impl Arg<'_> {
    /// The element of an array of one; anything else as it is.
    pub(crate) fn of_one(self) -> Self {
        match self {
            Arg::Ints(ns) if ns.len() == 1 => Arg::Int(ns[0]),
            Arg::Flags(flags) if flags.len() == 1 => Arg::Flag(flags[0]),
            Arg::Texts(texts) if texts.len() == 1 => Arg::Text(texts[0]),
            other => other,
        }
    }

    pub(crate) fn kind(&self) -> Type {
        match self {
            Arg::Int(_) => Type::INT8,
            Arg::Flag(_) => Type::BOOL,
            Arg::Text(_) => Type::TEXT,
            Arg::Ints(_) => Type::INT8_ARRAY,
            Arg::Flags(_) => Type::BOOL_ARRAY,
            Arg::Texts(_) => Type::TEXT_ARRAY,
        }
    }
}

/// Text with [`escape`]s.
#[derive(Debug)]
struct Escaped<'a>(&'a str);

impl ToSql for Escaped<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        escape(self.0, out);
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl ToSql for Arg<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        match self {
            Arg::Int(n) => n.to_sql(ty, out),
            Arg::Flag(flag) => flag.to_sql(ty, out),
            Arg::Text(text) => text.map(Escaped).to_sql(ty, out),
            Arg::Ints(ns) => ns.to_sql(ty, out),
            Arg::Flags(flags) => flags.to_sql(ty, out),
            Arg::Texts(texts) => texts.iter().map(|text| text.map(Escaped)).collect::<Vec<_>>().to_sql(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

macro_rules! from {
    ($($given:ty => |$value:ident| $arg:expr;)*) => {
        $(impl<'a> From<$given> for Arg<'a> {
            fn from($value: $given) -> Self {
                $arg
            }
        })*
    };
}

from! {
    i64 => |n| Arg::Int(Some(n));
    Option<i64> => |n| Arg::Int(n);
    u32 => |n| Arg::Int(Some(i64::from(n)));
    u64 => |n| Arg::Int(Some(i64::try_from(n).unwrap_or(i64::MAX)));
    bool => |flag| Arg::Flag(flag);
    &'a str => |text| Arg::Text(Some(text));
    &'a String => |text| Arg::Text(Some(text));
    Option<&'a str> => |text| Arg::Text(text);
    Option<&'a String> => |text| Arg::Text(text.map(String::as_str));
    &'a Option<String> => |text| Arg::Text(text.as_deref());
    &'a [i64] => |ns| Arg::Ints(ns.iter().copied().map(Some).collect());
    &'a Vec<i64> => |ns| Arg::Ints(ns.iter().copied().map(Some).collect());
    Vec<i64> => |ns| Arg::Ints(ns.into_iter().map(Some).collect());
    Vec<Option<i64>> => |ns| Arg::Ints(ns);
    Vec<bool> => |flags| Arg::Flags(flags);
    &'a [String] => |texts| Arg::Texts(texts.iter().map(|text| Some(text.as_str())).collect());
    &'a Vec<String> => |texts| Arg::Texts(texts.iter().map(|text| Some(text.as_str())).collect());
    Vec<&'a str> => |texts| Arg::Texts(texts.into_iter().map(Some).collect());
    Vec<Option<&'a str>> => |texts| Arg::Texts(texts);
}

/// Builds the arguments of a statement.
macro_rules! args {
    ($($value:expr),* $(,)?) => {
        &[$($crate::sql::Arg::from($value)),*]
    };
}
pub(crate) use args;

/// Text from a column, without [`escape`]s.
struct Stored(String);

impl<'a> FromSql<'a> for Stored {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        <&str>::from_sql(ty, raw).map(|text| Stored(unescape(text)))
    }

    fn accepts(ty: &Type) -> bool {
        <&str as FromSql>::accepts(ty)
    }
}

/// A row of a result.
#[derive(Debug)]
pub(crate) struct Row(tokio_postgres::Row);

impl Row {
    fn get<'a, T: FromSql<'a>>(&'a self, column: &str) -> Done<T> {
        self.0.try_get(column).map_err(|error| {
            let why = format!("failed to read column `{column}`");
            Fail::Refused(Error::new(ErrorKind::Value, why).with_source(error))
        })
    }

    pub(crate) fn int(&self, column: &str) -> Done<i64> {
        self.get(column)
    }

    pub(crate) fn int_opt(&self, column: &str) -> Done<Option<i64>> {
        self.get(column)
    }

    pub(crate) fn flag(&self, column: &str) -> Done<bool> {
        self.get(column)
    }

    pub(crate) fn flag_opt(&self, column: &str) -> Done<Option<bool>> {
        self.get(column)
    }

    /// An array of texts; none where it is null.
    pub(crate) fn texts(&self, column: &str) -> Done<Vec<String>> {
        Ok(self.get::<Option<Vec<Stored>>>(column)?.unwrap_or_default().into_iter().map(|text| text.0).collect())
    }

    pub(crate) fn text(&self, column: &str) -> Done<String> {
        self.get::<Stored>(column).map(|text| text.0)
    }

    pub(crate) fn text_opt(&self, column: &str) -> Done<Option<String>> {
        self.get::<Option<Stored>>(column).map(|text| text.map(|text| text.0))
    }

    /// A count. A value that was changed by hand is brought into its range.
    pub(crate) fn count(&self, column: &str) -> Done<u32> {
        let n = self.int_opt(column)?.unwrap_or(0);
        Ok(u32::try_from(n.max(0)).unwrap_or(u32::MAX))
    }

    /// A number. A negative one, which was written by hand, is 0.
    pub(crate) fn number(&self, column: &str) -> Done<u64> {
        Ok(u64::try_from(self.int_opt(column)?.unwrap_or(0)).unwrap_or(0))
    }

    /// A value of an enum, stored as a word.
    pub(crate) fn word<T: std::str::FromStr<Err = String>>(&self, column: &str) -> Done<T> {
        self.get::<&str>(column)?.parse().map_err(damaged)
    }
}

/// An open transaction, or a connection on which each statement is a transaction.
#[derive(Debug)]
pub(crate) struct Tx {
    connection: Connection,
    /// Fibers to dispatch once the transaction is committed.
    ready: Mutex<Vec<Runnable>>,
    /// Fibers that end with unread messages, reported once the transaction is committed.
    unread: Mutex<Vec<UnreadMessages>>,
    undo: std::sync::atomic::AtomicBool,
    /// Notifications for other workers, sent once the transaction is committed.
    notices: std::sync::atomic::AtomicU8,
}

impl Tx {
    pub(crate) fn new(connection: Connection) -> Self {
        Tx { connection, ready: Mutex::default(), unread: Mutex::default(), undo: false.into(), notices: 0.into() }
    }

    /// Runs a statement and returns its rows.
    pub(crate) async fn rows(&self, sql: &str, args: &[Arg<'_>]) -> Done<Vec<Row>> {
        Ok(self.connection.query(sql, args).await?.into_iter().map(Row).collect())
    }

    /// Runs a statement and returns its first row.
    pub(crate) async fn row(&self, sql: &str, args: &[Arg<'_>]) -> Done<Option<Row>> {
        Ok(self.rows(sql, args).await?.into_iter().next())
    }

    /// Runs a statement that always returns a row.
    pub(crate) async fn one(&self, sql: &str, args: &[Arg<'_>]) -> Done<Row> {
        self.row(sql, args).await?.ok_or_else(|| damaged("a statement gave no row"))
    }

    /// Runs a statement and returns how many rows it changed.
    pub(crate) async fn run(&self, sql: &str, args: &[Arg<'_>]) -> Done<u64> {
        Ok(self.connection.execute(sql, args).await?)
    }

    /// Runs constant SQL without arguments.
    pub(crate) async fn batch(&self, sql: &str) -> Done<()> {
        Ok(self.connection.batch(sql).await?)
    }

    /// The fibers to dispatch once the transaction is committed.
    pub(crate) fn ready(&self) -> MutexGuard<'_, Vec<Runnable>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fibers that end with unread messages, reported once the transaction is committed.
    pub(crate) fn unread(&self) -> MutexGuard<'_, Vec<UnreadMessages>> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rolls the transaction back at its end, although the operation returns a result.
    pub(crate) fn undo(&self) {
        self.undo.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    pub(crate) fn is_undone(&self) -> bool {
        self.undo.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Tells other workers of a change once the transaction is committed.
    pub(crate) fn announce(&self, kinds: u8) {
        self.notices.fetch_or(kinds, std::sync::atomic::Ordering::Relaxed);
    }

    pub(crate) fn notices(&self) -> u8 {
        if self.is_undone() { 0 } else { self.notices.load(std::sync::atomic::Ordering::Relaxed) }
    }

    pub(crate) fn into_parts(self) -> (Connection, CommitNotices) {
        let ready = self.ready.into_inner().unwrap_or_else(PoisonError::into_inner);
        let unread = self.unread.into_inner().unwrap_or_else(PoisonError::into_inner);
        (self.connection, CommitNotices { ready, unread })
    }
}

/// Replaces `@` by the name of the schema.
pub(crate) fn in_schema(sql: &str, schema: &str) -> Arc<str> {
    sql.replace('@', &format!("{schema}.")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_comes_back_to_the_byte_and_without_nul() {
        for text in ["", "a", "\0", "a\0b\u{1a}c", "\u{1a}0", "\u{1a}1\0\0", "é\0💡"] {
            let mut stored = BytesMut::new();
            escape(text, &mut stored);
            let stored = std::str::from_utf8(&stored).unwrap();
            assert!(!stored.contains('\0'));
            assert_eq!(unescape(stored), text);
        }
    }
}
