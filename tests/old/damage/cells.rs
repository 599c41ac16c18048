//! The cells of a database, as it says itself that they are, and values that no program of ours would write to them.
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) table: String,
    pub(crate) name: String,
    /// The columns of the primary key.
    pub(crate) key: Vec<String>,
}

/// All columns of all tables.
pub(crate) fn columns(sql: &Connection) -> Vec<Column> {
    let tables = texts(sql, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name");
    let mut all = Vec::new();
    for table in tables {
        let key = texts(sql, &format!("SELECT name FROM pragma_table_info('{table}') WHERE pk > 0 ORDER BY pk"));
        for name in texts(sql, &format!("SELECT name FROM pragma_table_info('{table}') ORDER BY cid")) {
            all.push(Column { table: table.clone(), name, key: key.clone() });
        }
    }
    all
}

fn texts(sql: &Connection, query: &str) -> Vec<String> {
    sql.prepare(query).unwrap().query_map((), |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

/// One cell, in a row that is known by its primary key.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) column: Column,
    pub(crate) key: Vec<Value>,
    /// What is in it.
    pub(crate) value: Value,
}

impl Column {
    /// Its cells, in the order of the primary key.
    pub(crate) fn cells(&self, sql: &Connection) -> Vec<Cell> {
        let key = self.key.join(", ");
        let query = format!("SELECT {}, {key} FROM {} ORDER BY {key}", self.name, self.table);
        let cell = |row: &rusqlite::Row<'_>| {
            let key = (1..=self.key.len()).map(|n| row.get(n)).collect::<Result<_, _>>()?;
            Ok(Cell { column: self.clone(), key, value: row.get(0)? })
        };
        sql.prepare(&query).unwrap().query_map((), cell).unwrap().map(Result::unwrap).collect()
    }
}

/// What is written to a cell.
#[derive(Clone, Debug)]
pub(crate) enum Damage {
    Value(Value),
    /// Text that need not be UTF-8.
    Raw(Vec<u8>),
}

impl Cell {
    /// Overwrites it; `false` if SQLite itself refuses that, as it does for another type or a second row of the same key.
    pub(crate) fn write(&self, sql: &Connection, damage: &Damage) -> bool {
        let (value, expression) = match damage {
            Damage::Value(value) => (value.clone(), "?1"),
            Damage::Raw(bytes) => (Value::Blob(bytes.clone()), "CAST(?1 AS TEXT)"),
        };
        let found: Vec<_> = self.column.key.iter().enumerate().map(|(n, key)| format!("{key} IS ?{}", n + 2)).collect();
        let Column { table, name, .. } = &self.column;
        let update = format!("UPDATE {table} SET {name} = {expression} WHERE {}", found.join(" AND "));
        sql.execute(&update, params_from_iter(std::iter::once(&value).chain(&self.key))).is_ok_and(|changed| changed == 1)
    }

    /// The same cell after it was overwritten: the row may be known by it.
    pub(crate) fn moved(&self, damage: &Damage) -> Cell {
        let mut moved = self.clone();
        if let (Some(n), Damage::Value(value)) = (self.column.key.iter().position(|key| *key == self.column.name), damage) {
            moved.key[n] = value.clone();
        }
        moved
    }

    /// What is in it now, as bytes; `None` if the row is gone.
    pub(crate) fn read(&self, sql: &Connection) -> Option<Vec<u8>> {
        let found: Vec<_> = self.column.key.iter().enumerate().map(|(n, key)| format!("{key} IS ?{}", n + 1)).collect();
        let Column { table, name, .. } = &self.column;
        let query = format!("SELECT coalesce(CAST({name} AS BLOB), x'') FROM {table} WHERE {}", found.join(" AND "));
        sql.query_row(&query, params_from_iter(&self.key), |row| row.get(0)).ok()
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// A connection that writes what it is told to.
pub(crate) fn careless(path: &std::path::Path) -> Connection {
    let sql = Connection::open(path).unwrap();
    sql.execute_batch("PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON; PRAGMA synchronous = OFF").unwrap();
    sql
}

/// Values that have nothing to do with what was in the cell.
pub(crate) fn hostile() -> Vec<Damage> {
    const NUMBERS: [i64; 13] = [
        0,
        1,
        -1,
        2,
        7,
        4_294_967_295,
        4_294_967_296,
        9_007_199_254_740_993,
        253_402_300_800_000,
        -8_640_000_000_000_001,
        i64::MAX - 1,
        i64::MAX,
        i64::MIN,
    ];
    let mut texts: Vec<String> = [
        "",
        " ",
        "x",
        "null",
        "true",
        "-1",
        "1.5",
        "1e999",
        "340282366920938463463374607431768211456",
        "\"\"",
        "\"x",
        "{}",
        "[]",
        "{\"a\":1,\"a\":2}",
        "\"\\ud800\"",
        "\"\\udc00\\ud800\"",
        "a\0b",
        "\"a\\u0000\0\"",
        "{\"at\":\"\",\"locals\":{},\"call\":null}",
        "{\"at\":\"x\",\"locals\":{\"x\":{\"$log\":0,\"len\":18446744073709551615}},\"call\":null}",
        "{\"at\":\"x\",\"at\":\"y\",\"locals\":{},\"call\":{\"fiber\":\"x\",\"at\":\"y\",\"locals\":null,\"call\":null}}",
        "{\"$part\":\"long\"}",
        "{\"$log\":0,\"len\":1000000000}",
        "{\"$map\":[[1]]}",
        "{\"$bytes\":\"*\"}",
        "{\"$some\":{\"$some\":null}}",
        "{\"range\":{\"next\":-9,\"end\":9000000000000000000}}",
        "running",
        "completed",
        "closure",
        "parked",
        "* * * * *",
        "-- '); DROP TABLE fibers; --",
    ]
    .map(str::to_owned)
    .to_vec();
    for (open, close) in [("[", "]"), ("{\"call\":", "}"), ("{\"$some\":", "}")] {
        texts.push(format!("{}null{}", open.repeat(90), close.repeat(90)));
        texts.push(open.repeat(100_000));
    }
    texts.push("x".repeat(1 << 20));
    texts.push(format!("[{}0]", "0,".repeat(1 << 19)));
    let mut all = vec![
        Damage::Value(Value::Null),
        Damage::Value(Value::Real(1.5)),
        Damage::Value(Value::Real(f64::INFINITY)),
        Damage::Value(Value::Blob(vec![0xff, 0])),
        Damage::Raw(vec![0xff, 0xfe]),
        Damage::Raw(b"{\"at\":\"\xc3\x28\",\"locals\":{},\"call\":null}".to_vec()),
        Damage::Raw(b"\"\xed\xa0\x80\"".to_vec()),
    ];
    all.extend(NUMBERS.map(|n| Damage::Value(Value::Integer(n))));
    all.extend(texts.into_iter().map(|text| Damage::Value(Value::Text(text))));
    all
}

/// Numbers that are drawn from bytes; when these are used up, all are 0.
pub(crate) struct Dice<'a>(pub(crate) &'a [u8]);

impl Dice<'_> {
    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (usize::from(self.byte()) << 8 | usize::from(self.byte())) % n.max(1)
    }

    fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0).to_vec()
    }
}

/// What is there, changed somewhere; or something else altogether.
pub(crate) fn changed(cell: &Cell, others: &[Cell], dice: &mut Dice<'_>) -> Damage {
    if let Value::Integer(number) = cell.value {
        return Damage::Value(Value::Integer(match dice.below(4) {
            0 => i64::from_le_bytes(std::array::from_fn(|_| dice.byte())),
            1 => number.wrapping_add(i64::from(dice.byte().cast_signed())),
            2 => number.wrapping_neg(),
            _ => 1 << dice.below(64),
        }));
    }
    let mut bytes = match &cell.value {
        Value::Text(text) => text.clone().into_bytes(),
        _ => Vec::new(),
    };
    let at = dice.below(bytes.len() + 1);
    match dice.below(9) {
        0 => return Damage::Value(Value::Text(String::from_utf8_lossy(&dice.rest()).into_owned())),
        1 => return Damage::Raw(dice.rest()),
        2 => bytes.truncate(at),
        3 => drop(bytes.splice(at..at, dice.rest())),
        4 => {
            let end = (at + dice.below(16)).min(bytes.len());
            bytes.drain(at..end);
        }
        5 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << (dice.byte() % 8);
            }
        }
        // A value, or what looks like one, in another place.
        6 => {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let words: Vec<&str> = text.split_inclusive([',', ':', '{', '}', '[', ']']).collect();
            let (from, to) = (dice.below(words.len()), dice.below(words.len()));
            let mut words = words;
            if !words.is_empty() {
                words.swap(from, to);
            }
            bytes = words.concat().into_bytes();
        }
        7 => {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let mut words: Vec<&str> = text.split_inclusive([',', ':', '{', '}', '[', ']']).collect();
            let value =
                ["null,", "-1,", "1e400,", "\"\",", "{},", "[],", "18446744073709551616,", "{\"$log\":1,\"len\":2},"][dice.below(8)];
            let place = dice.below(words.len() + 1);
            if dice.byte().is_multiple_of(2) && place < words.len() {
                words[place] = value;
            } else {
                words.insert(place, value);
            }
            bytes = words.concat().into_bytes();
        }
        // What stands in the same column of another row.
        _ => return Damage::Value(others[dice.below(others.len())].value.clone()),
    }
    match String::from_utf8(bytes) {
        Ok(text) => Damage::Value(Value::Text(text)),
        Err(error) => Damage::Raw(error.into_bytes()),
    }
}
