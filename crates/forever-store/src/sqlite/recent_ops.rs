//! The newest effects of a fiber, which stand in its snapshot row, and the settled ones that were moved out of it.
//!
//! A commit writes whole pages, and the checkpoint behind an effect replaces the snapshot row anyway. So an effect begins and ends in
//! that row. When the row becomes long, the settled ones are appended to `settled_ops`, several as one row, and never change again.
//!
//! Only [`begin`] and [`pass`] know the column. All other writes of effects [`fold`] it first, in their own transaction: what a later run
//! of the fiber has to see goes to `ops`, one operation a row. An operation is in one of the three places. A damaged text is never
//! written over, as whatever it says of an effect would be lost.
use std::sync::Arc;

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, params};
use serde::{Deserialize, Serialize, Serializer};

use super::{layouts, ops};
use crate::{Claim, LayoutRow, OpKind, OpOutcome, OpRecord, OpState, Seq};

/// The longest that the main text and the effects of a row may be together, in bytes: the row stays on one page of 2 KiB.
pub(super) const ROW_BYTES: usize = 1800;

/// Whether one of the effects in a snapshot row `s` is in doubt, or none of them can be read.
pub(super) const IN_DOUBT: &str = r#"s.ops IS NOT NULL AND (NOT json_valid(s.ops) OR instr(s.ops, ',"started",') > 0)"#;

/// An effect as the JSON has it: an array, in the order of these fields.
#[derive(Debug, PartialEq, Deserialize)]
struct Recent {
    number: u64,
    id: String,
    function: String,
    step: String,
    state: OpState,
    started_ms: i64,
    changed_ms: i64,
    key: Option<String>,
    outcome: Option<String>,
    /// Hash of the layout that it began under, if that is not the snapshot's.
    layout: Option<String>,
}

impl Serialize for Recent {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Recent { number, id, function, step, state, started_ms, changed_ms, key, outcome, layout } = self;
        (number, id, function, step, state, started_ms, changed_ms, key, outcome, layout).serialize(to)
    }
}

impl Recent {
    fn is(&self, op: &OpOutcome) -> bool {
        Some(self.number) == op.number && self.id == op.id
    }

    fn settle(&mut self, op: &OpOutcome, now_ms: i64) {
        self.state = op.state;
        self.outcome.clone_from(&op.outcome);
        self.changed_ms = now_ms;
    }

    fn record(self) -> OpRecord {
        OpRecord {
            state: self.state,
            outcome: self.outcome,
            ..OpRecord::begun(self.id, OpKind::Effect, &self.function, &self.step, self.key, Some(self.number))
        }
    }
}

fn read(text: &str) -> rusqlite::Result<Vec<Recent>> {
    serde_json::from_str(text).map_err(|why| {
        let why = format!("its newest operations cannot be read: {why}");
        rusqlite::Error::FromSqlConversionFailure(0, Type::Text, why.into())
    })
}

fn write<T: Serialize + ?Sized>(value: &T) -> rusqlite::Result<String> {
    serde_json::to_string(value).map_err(|why| rusqlite::Error::ToSqlConversionFailure(why.into()))
}

/// The column of a fiber that has a snapshot row, and the number of its checkpoints.
fn column(conn: &Connection, seq: Seq) -> rusqlite::Result<(Option<String>, u64)> {
    let row = conn
        .prepare_cached("SELECT ops, number FROM snapshots WHERE fiber = ?1")?
        .query_row([seq], |r| Ok((r.get(0)?, u64::try_from(r.get::<_, i64>(1)?).unwrap_or(0))))
        .optional()?;
    Ok(row.unwrap_or_default())
}

/// What the text of an operation begins with, and that of no other one has in it: a string in it has its quotes escaped.
fn beginning(number: u64, id: &str) -> rusqlite::Result<String> {
    Ok(format!("[{number}{}", with_id(id)?))
}

/// What stands in the text of an operation with this id, and seldom in any other.
pub(super) fn with_id(id: &str) -> rusqlite::Result<String> {
    Ok(format!(",{},", write(id)?))
}

/// An effect that begins, prepared for the row of its fiber.
#[derive(Debug)]
pub(super) struct Beginning {
    number: i64,
    id: String,
    /// Its text, under the layout of the snapshot and under another one.
    text: String,
    of_callee: Option<String>,
    key: String,
    layout: Option<String>,
}

impl Beginning {
    /// `None` for what needs a row of its own from the start.
    pub(super) fn of(op: &OpRecord, now_ms: i64) -> Option<Self> {
        let OpRecord { kind: OpKind::Effect, number: Some(number), state: OpState::Started, .. } = *op else { return None };
        if op.outcome.is_some() || op.resolved || op.failed > 0 || op.retry.is_some() || op.stash.is_some() {
            return None;
        }
        let mut recent = Recent {
            number,
            id: op.id.clone(),
            function: op.function.clone(),
            step: op.step.clone(),
            state: OpState::Started,
            started_ms: now_ms,
            changed_ms: now_ms,
            key: op.key.clone(),
            outcome: None,
            layout: None,
        };
        let text = write(&recent).ok()?;
        let layout = op.layout.as_ref().map(|layout| layout.hash.clone());
        recent.layout.clone_from(&layout);
        let of_callee = layout.is_some().then(|| write(&recent)).transpose().ok()?;
        Some(Beginning { number: ops::at(op.number), key: beginning(number, &op.id).ok()?, id: recent.id, text, of_callee, layout })
    }
}

/// Stores that an effect begins, in one statement. Gives `false`, and has done nothing, where the claim is not in force, the operation is
/// stored already, the row has no room for it, or its layout is none of the snapshot's.
pub(super) fn begin(conn: &Connection, claim: Claim, new: &Beginning) -> rusqlite::Result<bool> {
    let begun = conn
        .prepare_cached(&format!(
            "UPDATE snapshots SET ops = coalesce(substr(ops, 1, length(ops) - 1) || ',', '[') || iif(layout IS ?7, ?3, ?4) || ']'
             WHERE fiber = ?1 AND epoch = ?2 AND number = ?6 AND (SELECT state FROM fibers WHERE seq = ?1) = 'running'
                   AND (layout IS ?7 OR instr(coalesce(callees, ''), ?7) > 0)
                   AND coalesce(octet_length(data), 0) + coalesce(octet_length(ops), 0) + octet_length(?3) < {ROW_BYTES}
                   AND (ops IS NULL OR instr(ops, ?5) = 0)
                   AND NOT EXISTS (SELECT 1 FROM ops o WHERE o.fiber = ?1 AND o.number = ?6 AND o.id = ?8)",
        ))?
        .execute(params![claim.fiber, claim.epoch, new.text, new.of_callee, new.key, new.number, new.layout, new.id])?;
    Ok(begun > 0)
}

/// What is to stand in the column behind a checkpoint.
#[derive(Debug)]
pub(super) enum Column {
    Same,
    New(Option<String>),
}

/// Settles operations at checkpoint `number`, whose main text has so many bytes. Those that are in the column stay there while there is
/// room for them.
pub(super) fn pass(conn: &Connection, seq: Seq, number: u64, settled: &[OpOutcome], bytes: usize, now_ms: i64) -> rusqlite::Result<Column> {
    if settled.is_empty() {
        return Ok(Column::Same);
    }
    let (Some(text), _) = column(conn, seq)? else { return ops::settle(conn, seq, settled, now_ms).map(|()| Column::Same) };
    let mut recent = read(&text)?;
    for op in settled {
        match recent.iter_mut().find(|recent| recent.is(op)) {
            Some(recent) => recent.settle(op, now_ms),
            None => ops::settle(conn, seq, std::slice::from_ref(op), now_ms)?,
        }
    }
    let text = write(&recent)?;
    if bytes + text.len() <= ROW_BYTES {
        return Ok(Column::New(Some(text)));
    }
    move_out(conn, seq, number, recent)?;
    Ok(Column::New(None))
}

/// Moves effects of a fiber that has made so many checkpoints.
fn move_out(conn: &Connection, seq: Seq, number: u64, recent: Vec<Recent>) -> rusqlite::Result<()> {
    let (settled, open): (Vec<_>, Vec<_>) = recent.into_iter().partition(|op| op.state != OpState::Started && op.number < number);
    if !settled.is_empty() {
        conn.prepare_cached("INSERT INTO settled_ops (fiber, ops) VALUES (?1, ?2)")?.execute(params![seq, write(&settled)?])?;
    }
    open.iter().try_for_each(|op| insert(conn, seq, op))
}

/// Gives an effect a row of its own.
fn insert(conn: &Connection, seq: Seq, op: &Recent) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT INTO ops (fiber, number, id, kind, function, step, key, state, outcome, started_ms, changed_ms, layout)
         SELECT ?1, ?2, ?3, 'effect', ?4, ?5, ?6, ?7, ?8, ?9, ?10, coalesce(?11, iif(number = ?2, layout, NULL))
         FROM snapshots WHERE fiber = ?1",
    )?
    .execute(params![
        seq,
        ops::at(Some(op.number)),
        op.id,
        op.function,
        op.step,
        op.key,
        op.state.as_str(),
        op.outcome,
        op.started_ms,
        op.changed_ms,
        op.layout
    ])
    .map(drop)
}

/// Moves all effects out of the snapshot row of a fiber.
pub(super) fn fold(conn: &Connection, seq: Seq) -> rusqlite::Result<()> {
    let (Some(text), number) = column(conn, seq)? else { return Ok(()) };
    move_out(conn, seq, number, read(&text)?)?;
    conn.prepare_cached("UPDATE snapshots SET ops = NULL WHERE fiber = ?1")?.execute([seq]).map(drop)
}

/// The same, where a damaged text stays as it is and keeps nothing else from happening.
pub(super) fn fold_readable(conn: &Connection, seq: Seq) -> rusqlite::Result<()> {
    match fold(conn, seq) {
        Err(rusqlite::Error::FromSqlConversionFailure(..)) => Ok(()),
        folded => folded,
    }
}

/// Brings an effect, whose record is to be replaced, to `ops` if it is stored elsewhere.
pub(super) fn unfold(conn: &Connection, seq: Seq, op: &OpRecord) -> rusqlite::Result<()> {
    fold(conn, seq)?;
    let Some(number) = op.number.filter(|_| op.kind == OpKind::Effect) else { return Ok(()) };
    // Rows that are settled are behind a checkpoint, and no program comes back to those.
    if number >= column(conn, seq)?.1 {
        return Ok(());
    }
    let found: Option<(i64, String)> = conn
        .prepare_cached("SELECT seq, ops FROM settled_ops WHERE fiber = ?1 AND instr(ops, ?2) > 0")?
        .query_row(params![seq, beginning(number, &op.id)?], |r| Ok((r.get(0)?, r.get(1)?)))
        .optional()?;
    let Some((row, text)) = found else { return Ok(()) };
    read(&text)?.iter().try_for_each(|op| insert(conn, seq, op))?;
    conn.prepare_cached("DELETE FROM settled_ops WHERE seq = ?1")?.execute([row]).map(drop)
}

/// What stands in the column and began since checkpoint `number`, behind a snapshot of this layout.
pub(super) fn since(conn: &Connection, seq: Seq, number: u64, layout: Option<&LayoutRow>) -> rusqlite::Result<Vec<OpRecord>> {
    let (Some(text), _) = column(conn, seq)? else { return Ok(Vec::new()) };
    let record = |mut op: Recent| {
        let layout = match op.layout.take() {
            Some(hash) => layouts::with_hashes(conn, &hash)?.pop(),
            None => layout.cloned(),
        };
        Ok(OpRecord { layout: layout.map(Arc::new), ..op.record() })
    };
    read(&text)?.into_iter().filter(|op| op.number == number).map(record).collect()
}
