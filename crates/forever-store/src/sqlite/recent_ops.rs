//! The newest effects of a fiber, which stand in its snapshot row, and the settled ones that were
//! moved out of it.
//! A commit writes whole pages, and the checkpoint after an effect replaces the snapshot row
//! anyway. So an effect begins and ends in that row. When the row becomes long, the settled effects
//! are appended to `settled_ops`, several as one row, and never change again.
//!
//! Only [`begin`] and [`pass`] write the column. All other writes of effects [`fold`] it first, in
//! their own transaction: operations that a later run of the fiber has to see go to `ops`, one per
//! row. An operation is in exactly one of the three places. A damaged text is never overwritten,
//! because that would lose the record of an effect.
use std::sync::Arc;

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, params};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Serialize, Serializer};

use super::snapshot_rows::ROW_BYTES;
use super::{layouts, ops};
use crate::{Claim, LayoutRow, OpKind, OpOutcome, OpRecord, OpState, Seq};

/// Whether one of the effects in a snapshot row `s` of a fiber `f` is in doubt. The end of a fiber
/// moves them out, so any that are still there cannot be read.
pub(super) const IN_DOUBT: &str = r#"s.ops IS NOT NULL AND (f.finished_ms IS NOT NULL OR instr(s.ops, ',"started",') > 0)"#;

/// An effect in the JSON text: an array of these fields in order, without empty ones at its end.
#[derive(Debug, PartialEq, Deserialize)]
struct Recent {
    number: u64,
    id: String,
    function: String,
    step: String,
    state: OpState,
    started_ms: i64,
    /// Time from its beginning to its last change.
    took_ms: i64,
    #[serde(default)]
    outcome: Option<String>,
    #[serde(default)]
    key: Option<String>,
    /// Hash of the layout that it began under, if it is not the snapshot's.
    #[serde(default)]
    layout: Option<String>,
}

impl Serialize for Recent {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Recent { number, id, function, step, state, started_ms, took_ms, outcome, key, layout } = self;
        let optional = [outcome, key, layout];
        let with_value = optional.iter().rposition(|value| value.is_some()).map_or(0, |last| last + 1);
        let mut all = to.serialize_seq(Some(7 + with_value))?;
        all.serialize_element(number)?;
        for text in [id, function, step, state.as_str()] {
            all.serialize_element(text)?;
        }
        all.serialize_element(started_ms)?;
        all.serialize_element(took_ms)?;
        for value in &optional[..with_value] {
            all.serialize_element(value)?;
        }
        all.end()
    }
}

impl Recent {
    fn is(&self, op: &OpOutcome) -> bool {
        Some(self.number) == op.number && self.id == op.id
    }

    fn settle(&mut self, op: &OpOutcome, now_ms: i64) {
        self.state = op.state;
        self.outcome.clone_from(&op.outcome);
        self.took_ms = now_ms.saturating_sub(self.started_ms);
    }

    /// Approximate length of the text of a similar effect that begins.
    fn begun_bytes(&self) -> usize {
        64 + self.id.len() + self.function.len() + self.step.len() + self.key.as_ref().map_or(0, String::len)
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

/// Length of the other texts of a snapshot row.
const OTHERS: &str = "coalesce(octet_length(at), 0) + coalesce(octet_length(layout), 0) + coalesce(octet_length(callees), 0)";

/// The column of a fiber that has a snapshot row, its number of checkpoints, and the length of the
/// other texts.
fn column(conn: &Connection, seq: Seq) -> rusqlite::Result<(Option<String>, u64, usize)> {
    let row = conn
        .prepare_cached(&format!("SELECT ops, number, {OTHERS} FROM snapshots WHERE fiber = ?1"))?
        .query_row([seq], |r| Ok((r.get(0)?, u64::try_from(r.get::<_, i64>(1)?).unwrap_or(0), r.get::<_, u32>(2)? as usize)))
        .optional()?;
    Ok(row.unwrap_or_default())
}

/// Start of the text of an operation. No other text contains it, since quotes in strings are
/// escaped.
fn beginning(number: u64, id: &str) -> rusqlite::Result<String> {
    Ok(format!("[{number}{}", with_id(id)?))
}

/// A part of the text of an operation with this id, rarely of any other.
pub(super) fn with_id(id: &str) -> rusqlite::Result<String> {
    Ok(format!(",{},", write(id)?))
}

/// An effect that begins, prepared for the row of its fiber.
#[derive(Debug)]
pub(super) struct Beginning {
    number: i64,
    id: String,
    /// Its text under the layout of the snapshot, and under another one.
    text: String,
    of_callee: Option<String>,
    key: String,
    layout: Option<String>,
}

impl Beginning {
    /// `None` for an operation that needs a row of its own from the start.
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
            took_ms: 0,
            outcome: None,
            key: op.key.clone(),
            layout: None,
        };
        let text = write(&recent).ok()?;
        let layout = op.layout.as_ref().map(|layout| layout.hash.clone());
        recent.layout.clone_from(&layout);
        let of_callee = layout.is_some().then(|| write(&recent)).transpose().ok()?;
        Some(Beginning { number: ops::at(op.number), key: beginning(number, &op.id).ok()?, id: recent.id, text, of_callee, layout })
    }
}

/// Stores the start of an effect, in one statement. Returns `false`, having done nothing, where the
/// claim is not in force, the operation is stored already, the row has no room for it, or its
/// layout is none of the snapshot's.
pub(super) fn begin(conn: &Connection, claim: Claim, new: &Beginning) -> rusqlite::Result<bool> {
    let begun = conn
        .prepare_cached(&format!(
            "UPDATE snapshots SET ops = coalesce(substr(ops, 1, length(ops) - 1) || ',', '[') || iif(layout IS ?7, ?3, ?4) || ']'
             WHERE fiber = ?1 AND epoch = ?2 AND number = ?6 AND (SELECT state FROM fibers WHERE seq = ?1) = 'running'
                   AND (layout IS ?7 OR instr(coalesce(callees, ''), ?7) > 0)
                   AND {OTHERS} + coalesce(octet_length(data), 0) + coalesce(octet_length(ops), 0) + octet_length(?3) < {ROW_BYTES}
                   AND (ops IS NULL OR instr(ops, ?5) = 0)
                   AND NOT EXISTS (SELECT 1 FROM ops o WHERE o.fiber = ?1 AND o.number = ?6 AND o.id = ?8)",
        ))?
        .execute(params![claim.fiber, claim.epoch, new.text, new.of_callee, new.key, new.number, new.layout, new.id])?;
    Ok(begun > 0)
}

/// New value of the column after a checkpoint.
#[derive(Debug)]
pub(super) enum Column {
    Same,
    New(Option<String>),
}

/// Settles operations at checkpoint `number`, whose main text has `bytes` bytes. Effects stay in
/// the column while it has room for another one like them.
pub(super) fn pass(conn: &Connection, seq: Seq, number: u64, settled: &[OpOutcome], bytes: usize, now_ms: i64) -> rusqlite::Result<Column> {
    if settled.is_empty() {
        return Ok(Column::Same);
    }
    let (Some(text), _, others) = column(conn, seq)? else { return ops::settle(conn, seq, settled, now_ms).map(|()| Column::Same) };
    let mut recent = read(&text)?;
    for op in settled {
        match recent.iter_mut().find(|recent| recent.is(op)) {
            Some(recent) => recent.settle(op, now_ms),
            None => ops::settle(conn, seq, std::slice::from_ref(op), now_ms)?,
        }
    }
    let text = write(&recent)?;
    let next = recent.last().map_or(0, Recent::begun_bytes);
    if others + bytes + text.len() + next <= ROW_BYTES {
        return Ok(Column::New(Some(text)));
    }
    move_out(conn, seq, number, recent)?;
    Ok(Column::New(None))
}

/// Moves effects out of the row of a fiber that has made `number` checkpoints.
fn move_out(conn: &Connection, seq: Seq, number: u64, recent: Vec<Recent>) -> rusqlite::Result<()> {
    let (settled, open): (Vec<_>, Vec<_>) = recent.into_iter().partition(|op| op.state != OpState::Started && op.number < number);
    if !settled.is_empty() {
        conn.prepare_cached("INSERT INTO settled_ops (fiber, ops) VALUES (?1, ?2)")?.execute(params![seq, write(&settled)?])?;
    }
    open.iter().try_for_each(|op| insert(conn, seq, op))
}

/// Stores an effect in a row of its own.
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
        op.started_ms.saturating_add(op.took_ms),
        op.layout
    ])
    .map(drop)
}

/// Moves all effects out of the snapshot row of a fiber.
pub(super) fn fold(conn: &Connection, seq: Seq) -> rusqlite::Result<()> {
    let (Some(text), number, _) = column(conn, seq)? else { return Ok(()) };
    move_out(conn, seq, number, read(&text)?)?;
    conn.prepare_cached("UPDATE snapshots SET ops = NULL WHERE fiber = ?1")?.execute([seq]).map(drop)
}

/// As [`fold`], but a damaged text stays as it is and is no error.
pub(super) fn fold_readable(conn: &Connection, seq: Seq) -> rusqlite::Result<()> {
    match fold(conn, seq) {
        Err(rusqlite::Error::FromSqlConversionFailure(..) | rusqlite::Error::InvalidColumnType(..) | rusqlite::Error::Utf8Error(..)) => {
            Ok(())
        }
        folded => folded,
    }
}

/// Moves an effect to `ops` if it is stored elsewhere, before its record is replaced.
pub(super) fn unfold(conn: &Connection, seq: Seq, op: &OpRecord) -> rusqlite::Result<()> {
    fold(conn, seq)?;
    let Some(number) = op.number.filter(|_| op.kind == OpKind::Effect) else { return Ok(()) };
    // Rows of `settled_ops` are behind a checkpoint, and no program comes back to them.
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

/// Effects in the column that began since checkpoint `number`, after a snapshot of this layout.
pub(super) fn since(conn: &Connection, seq: Seq, number: u64, layout: Option<&LayoutRow>) -> rusqlite::Result<Vec<OpRecord>> {
    let (Some(text), ..) = column(conn, seq)? else { return Ok(Vec::new()) };
    let record = |mut op: Recent| {
        let layout = match op.layout.take() {
            Some(hash) => layouts::with_hashes(conn, &hash)?.pop(),
            None => layout.cloned(),
        };
        Ok(OpRecord { layout: layout.map(Arc::new), ..op.record() })
    };
    read(&text)?.into_iter().filter(|op| op.number == number).map(record).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::conformance::ops::{behind, open, record};
    use crate::conformance::{SECOND, accept, claimed, snapshot};
    use crate::error::ErrorKind;
    use crate::sqlite::Sqlite;
    use crate::sqlite::conn::Conn;
    use crate::sqlite::job::Scope;
    use crate::{AdminStore, Deletion, Durability, End, FiberQuery, FiberStore, NewSnapshot, OpStore, Restart};

    async fn text(store: &Sqlite, sql: &'static str) -> Option<String> {
        store.read("look", move |c| c.query_row(sql, (), |r| r.get(0))).await.unwrap()
    }

    const COLUMN: &str = "SELECT ops FROM snapshots";
    const COUNTS: &str = "SELECT (SELECT count(*) FROM ops) || ' ' || (SELECT count(*) FROM settled_ops)";

    async fn joined() -> Sqlite {
        let store = Sqlite::in_memory().await.unwrap();
        store.join(0).await.unwrap();
        store.join(0).await.unwrap();
        store
    }

    fn effect(number: u64) -> OpRecord {
        OpRecord { number: Some(number), ..record(&format!("op {number}"), OpKind::Effect) }
    }

    fn ended(number: u64, outcome: &str) -> NewSnapshot {
        let outcome = Some(outcome.to_owned());
        let of = OpOutcome { number: Some(number), id: format!("op {number}"), state: OpState::Completed, outcome };
        NewSnapshot { ops: behind(vec![of]), ..snapshot(number + 1) }
    }

    #[tokio::test]
    async fn effect_stands_in_its_snapshot_row_until_there_are_many() {
        let store = joined().await;
        let claim = accept(&store, "a").await;
        store.save_op(claim, effect(0), 5).await.unwrap();
        assert_eq!(text(&store, COLUMN).await.as_deref(), Some(r#"[[0,"op 0","pay","charge","started",5,0]]"#));
        store.checkpoint(claim, ended(0, "7")).await.unwrap();
        assert_eq!(text(&store, COLUMN).await.as_deref(), Some(r#"[[0,"op 0","pay","charge","completed",5,1995,"7"]]"#));
        for n in 1..40 {
            store.save_op(claim, effect(n), 5).await.unwrap();
            store.checkpoint(claim, ended(n, "7")).await.unwrap();
            let row = text(&store, "SELECT CAST(octet_length(data) + octet_length(ops) AS TEXT) FROM snapshots").await;
            assert!(row.is_none_or(|bytes| bytes.parse::<usize>().unwrap() <= ROW_BYTES));
        }
        assert_eq!(text(&store, COUNTS).await.as_deref(), Some("0 1"));
        store.save_op(claim, effect(40), 5).await.unwrap();
        store.checkpoint(claim, ended(40, &"7".repeat(ROW_BYTES))).await.unwrap();
        assert_eq!((text(&store, COLUMN).await, text(&store, COUNTS).await.as_deref()), (None, Some("0 2")), "a long result does not stay");
        assert_eq!(store.ops(claim.fiber).await.unwrap().len(), 41);
        store.end(claim, End::Completed("1".into()), Vec::new(), Vec::new(), 9).await.unwrap();
        store.delete(Deletion { limit: 9, ..Deletion::default() }).await.unwrap();
        assert_eq!(text(&store, COUNTS).await.as_deref(), Some("0 0"));
    }

    #[tokio::test]
    async fn claim_and_end_move_effects_out_of_the_snapshot_row() {
        let store = joined().await;
        let claim = accept(&store, "a").await;
        store.save_op(claim, effect(0), 5).await.unwrap();
        store.checkpoint(claim, ended(0, "7")).await.unwrap();
        store.save_op(claim, effect(1), 5).await.unwrap();
        store.take_over(SECOND, 6).await.unwrap();
        let claim = claimed(&store, claim.fiber, SECOND).await;
        assert_eq!((text(&store, COLUMN).await, text(&store, COUNTS).await.as_deref()), (None, Some("1 1")));
        store.checkpoint(claim, ended(1, "8")).await.unwrap();
        store.save_op(claim, effect(2), 5).await.unwrap();
        let of = OpOutcome { number: Some(2), id: "op 2".into(), state: OpState::Failed, outcome: Some("no".into()) };
        store.end(claim, End::Failed("no".into()), vec![of], Vec::new(), 7).await.unwrap();
        assert_eq!((text(&store, COLUMN).await, text(&store, COUNTS).await.as_deref()), (None, Some("2 1")));
    }

    #[tokio::test]
    async fn damaged_text_keeps_its_fiber_from_running_and_nothing_else() {
        for damage in [r#"[[0,"op 0","pay","charge","started",5,0"#, "", "7", "[7]", r#"[[0,"op 0"]]"#, "{}"] {
            let store = joined().await;
            let (claim, other) = (accept(&store, "a").await, accept(&store, "b").await);
            for claim in [claim, other] {
                store.save_op(claim, OpRecord { id: format!("of {}", claim.fiber), ..effect(0) }, 5).await.unwrap();
            }
            let seq = claim.fiber;
            let damaged = move |c: &Conn| c.execute("UPDATE snapshots SET ops = ?2 WHERE fiber = ?1", params![seq, damage]).map(drop);
            store.write("damage", Scope::Many, damaged).await.unwrap();
            assert_eq!(store.load(seq).await.unwrap_err().kind(), ErrorKind::Value, "{damage}");
            store.save_op(claim, OpRecord { failed: 1, ..effect(0) }, 6).await.unwrap_err();
            store.take_over(SECOND, 6).await.unwrap();
            let seen = Claim { epoch: claim.epoch + 1, ..claim };
            assert_eq!(store.claim(seen, SECOND, 7).await.unwrap_err().kind(), ErrorKind::Value, "{damage}");
            store.suspend(seen, crate::Suspension::Parked("damaged".into()), 7).await.unwrap();
            let of_other = claimed(&store, other.fiber, SECOND).await;
            assert_eq!(open(&store, of_other).await, [format!("of {}", other.fiber)]);
            assert!(store.find_op(format!("of {}", other.fiber)).await.unwrap().is_some());
            store.resolve("a".into(), End::Failed("no".into()), 8).await.unwrap();
            assert!(store.restart("a".into(), Restart::FromStart, 9).await.is_err(), "an effect may be in doubt");
            let left = text(&store, COLUMN).await;
            assert_eq!(left.as_deref(), Some(damage));
            let query = FiberQuery { exclude_in_doubt: true, ..FiberQuery::default() };
            let deleted = store.delete(Deletion { query, limit: 9, ..Deletion::default() }).await.unwrap();
            assert_eq!(deleted.count, 0, "{damage}");
        }
    }

    #[tokio::test]
    async fn effects_of_calls_keep_their_layouts() {
        let layout = |hash: &str| Some(Arc::new(LayoutRow { hash: hash.into(), fiber: "pay".into(), layout: "{}".into() }));
        let store = joined().await;
        let claim = accept(&store, "a").await;
        let layouts = ["l1", "l2"].map(|hash| layout(hash).unwrap()).to_vec();
        store.checkpoint(claim, NewSnapshot { layouts: Some(layouts), ..snapshot(1) }).await.unwrap();
        let of = |id: &str, hash| OpRecord { id: id.into(), layout: layout(hash), ..effect(1) };
        let (own, callees, others) = (of("own", "l1"), of("callee's", "l2"), of("other's", "l3"));
        for op in [&own, &callees] {
            store.save_op(claim, op.clone(), 5).await.unwrap();
        }
        assert_eq!(text(&store, COUNTS).await.as_deref(), Some("0 0"));
        assert_eq!(store.load(claim.fiber).await.unwrap().ops, [own.clone(), callees.clone()]);
        store.save_op(claim, others.clone(), 5).await.unwrap();
        assert_eq!(text(&store, COUNTS).await.as_deref(), Some("3 0"));
        assert_eq!(store.load(claim.fiber).await.unwrap().ops, [callees, others, own]);
    }

    #[tokio::test]
    async fn effect_writes_the_page_of_its_snapshot_twice_and_seldom_another() {
        let folder = tempfile::tempdir().unwrap();
        let store = Sqlite::open(folder.path().join("a.db"), Durability::Process, Duration::ZERO).await.unwrap();
        store.join(0).await.unwrap();
        let claim = accept(&store, "a").await;
        let pages = || std::fs::metadata(folder.path().join("a.db-wal")).unwrap().len() / 2072;
        let (before, mut last) = (pages(), pages());
        let mut steps = Vec::new();
        for n in 0..200 {
            let effect = OpRecord { id: format!("{n:032}"), ..effect(n) };
            store.save_op(claim, effect, 1_700_000_000_000).await.unwrap();
            steps.push(pages() - std::mem::replace(&mut last, pages()));
            let outcome = format!("\"{n:0160}\"");
            let of = OpOutcome { number: Some(n), id: format!("{n:032}"), state: OpState::Completed, outcome: Some(outcome) };
            let data = format!("{n:0266}");
            store
                .checkpoint(claim, NewSnapshot { data, now_ms: 1_700_000_000_000, ops: behind(vec![of]), ..snapshot(n + 1) })
                .await
                .unwrap();
            steps.push(pages() - std::mem::replace(&mut last, pages()));
        }
        assert!(steps.iter().filter(|pages| **pages == 1).count() > 360, "{steps:?}");
        let bytes = (last - before) * 2072 / 200;
        println!("{bytes} bytes an effect");
        assert!(bytes < 5450, "{bytes} bytes an effect");
    }
}
