//! Values on their way to and from Postgres, and the transaction that statements run in.
//!
//! Comes in: SQL in which `@` stands for the schema, and arguments that know their types. So a
//! statement needs no look at the server before it runs, and works without prepared statements.
//!
//! Text keeps every byte: Postgres refuses U+0000 in text, so it is stored as `U+001A 0`, and
//! U+001A as `U+001A 1`. The two are equal exactly where the originals are.
use std::error::Error as StdError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forever_store::{Error, ErrorKind, Runnable};
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use crate::pool::Connection;

/// Why a statement or an operation failed.
#[derive(Debug)]
pub(crate) enum Fail {
    /// Postgres, or the connection to it.
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

/// A refusal of kind [`ErrorKind::Store`]: something else than expected is stored.
pub(crate) fn refused<T>(why: impl Into<String>) -> Done<T> {
    Err(Fail::Refused(Error::new(ErrorKind::Store, why)))
}

/// A row that makes no sense.
pub(crate) fn damaged(why: impl Into<String>) -> Fail {
    Fail::Refused(Error::new(ErrorKind::Value, why))
}

const NUL: char = '\0';
const ESCAPE: char = '\u{1a}';

/// The text as it is stored.
fn escape(text: &str, out: &mut BytesMut) {
    let mut rest = text;
    while let Some(at) = rest.find([NUL, ESCAPE]) {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        out.extend_from_slice(if rest.as_bytes()[at] == 0 { b"\x1a0" } else { b"\x1a1" });
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest.as_bytes());
}

/// The text as it was given.
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
                // Only a person can have written it.
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

/// The arguments of a statement.
macro_rules! args {
    ($($value:expr),* $(,)?) => {
        &[$($crate::sql::Arg::from($value)),*]
    };
}
pub(crate) use args;

/// Stored text.
struct Stored(String);

impl<'a> FromSql<'a> for Stored {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        <&str>::from_sql(ty, raw).map(|text| Stored(unescape(text)))
    }

    fn accepts(ty: &Type) -> bool {
        <&str as FromSql>::accepts(ty)
    }
}

/// A row that Postgres gave.
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

    pub(crate) fn text(&self, column: &str) -> Done<String> {
        self.get::<Stored>(column).map(|text| text.0)
    }

    pub(crate) fn text_opt(&self, column: &str) -> Done<Option<String>> {
        self.get::<Option<Stored>>(column).map(|text| text.map(|text| text.0))
    }

    /// A count; one that was made negative or too large by hand is brought into its range.
    pub(crate) fn count(&self, column: &str) -> Done<u32> {
        let n = self.int_opt(column)?.unwrap_or(0);
        Ok(u32::try_from(n.max(0)).unwrap_or(u32::MAX))
    }

    /// A number that is never negative.
    pub(crate) fn number(&self, column: &str) -> Done<u64> {
        Ok(u64::try_from(self.int_opt(column)?.unwrap_or(0)).unwrap_or(0))
    }

    /// A word of ours.
    pub(crate) fn word<T: std::str::FromStr<Err = String>>(&self, column: &str) -> Done<T> {
        self.get::<&str>(column)?.parse().map_err(damaged)
    }
}

/// An open transaction, or a connection on which each statement is one.
#[derive(Debug)]
pub(crate) struct Tx {
    connection: Connection,
    /// Fibers to be dispatched once it is committed.
    ready: Mutex<Vec<Runnable>>,
    undo: std::sync::atomic::AtomicBool,
}

impl Tx {
    pub(crate) fn new(connection: Connection) -> Self {
        Tx { connection, ready: Mutex::default(), undo: false.into() }
    }

    /// Runs a statement, and gives its rows.
    pub(crate) async fn rows(&self, sql: &str, args: &[Arg<'_>]) -> Done<Vec<Row>> {
        Ok(self.connection.query(sql, args).await?.into_iter().map(Row).collect())
    }

    /// The first row that a statement gives.
    pub(crate) async fn row(&self, sql: &str, args: &[Arg<'_>]) -> Done<Option<Row>> {
        Ok(self.rows(sql, args).await?.into_iter().next())
    }

    /// The row of a statement that always gives one.
    pub(crate) async fn one(&self, sql: &str, args: &[Arg<'_>]) -> Done<Row> {
        self.row(sql, args).await?.ok_or_else(|| damaged("a statement gave no row"))
    }

    /// Runs a statement, and gives how many rows it changed.
    pub(crate) async fn run(&self, sql: &str, args: &[Arg<'_>]) -> Done<u64> {
        Ok(self.connection.execute(sql, args).await?)
    }

    /// Runs SQL of ours that has no arguments.
    pub(crate) async fn batch(&self, sql: &str) -> Done<()> {
        Ok(self.connection.batch(sql).await?)
    }

    /// A fiber that is ready once the transaction is committed.
    pub(crate) fn ready(&self) -> MutexGuard<'_, Vec<Runnable>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes back everything that was written, although the operation has a result.
    pub(crate) fn undo(&self) {
        self.undo.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    pub(crate) fn is_undone(&self) -> bool {
        self.undo.load(std::sync::atomic::Ordering::Relaxed)
    }

    pub(crate) fn into_parts(self) -> (Connection, Vec<Runnable>) {
        (self.connection, self.ready.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

/// SQL with the name of the schema in it.
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
