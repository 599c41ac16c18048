//! Admin commands, lists of fibers, and deletion.
use std::time::Duration;

use forever_store::{
    CommandResult, DeleteCursor, DeleteResult, Deletion, End, FiberCount, FiberQuery, FiberRef, FiberRow, FiberState, FiberTombstone,
    Restart, RestartResult, Runnable, SECRET_MARK, Seq, arguments_digest,
};
use tokio_postgres::error::SqlState;

use crate::notify::CHANGED;
use crate::pool::{LOCKED, as_setting};
use crate::sql::{Arg, Done, Fail, Row, Tx, args};
use crate::{claims, fibers, ops, snapshot_rows, streams, topics, troubles};

pub(crate) async fn resolve(tx: &Tx, id: &str, how: &End, now_ms: i64) -> Done<CommandResult<(FiberRow, End)>> {
    let Some(row) = fibers::find_locked(tx, &FiberRef::Id(id.to_owned())).await? else { return Ok(CommandResult::NotFound) };
    if !matches!(row.state, FiberState::Interrupted | FiberState::Parked) {
        return Ok(CommandResult::InvalidState(row.state));
    }
    claims::void(tx, &[row.seq]).await?;
    Ok(match fibers::finish(tx, row.seq, how, &[], now_ms).await? {
        Some(end) => CommandResult::Done((row, end)),
        None => CommandResult::InvalidState(row.state),
    })
}

pub(crate) async fn cancel(tx: &Tx, id: &str, reason: &str, now_ms: i64) -> Done<CommandResult<Vec<Runnable>>> {
    let Some(row) = fibers::find_locked(tx, &FiberRef::Id(id.to_owned())).await? else { return Ok(CommandResult::NotFound) };
    if row.state.is_final() {
        return Ok(CommandResult::InvalidState(row.state));
    }
    let below = fibers::runnable(tx, &descendants(tx, row.seq).await?).await?;
    let below: Vec<Runnable> = below.into_iter().filter(|fiber| !fiber.state.is_final()).collect();
    let seqs: Vec<Seq> = below.iter().map(|fiber| fiber.seq).collect();
    tx.run("UPDATE @fibers SET cancel = coalesce(cancel, $2) WHERE seq = ANY ($1)", args![seqs, reason]).await?;
    tx.announce(CHANGED);
    // One that runs ends by itself.
    let ends: Vec<Seq> = below.iter().filter(|fiber| fiber.state != FiberState::Running).map(|fiber| fiber.seq).collect();
    claims::void(tx, &ends).await?;
    fibers::finish_cancelled(tx, &ends, now_ms).await?;
    Ok(CommandResult::Done(below))
}

/// Fiber $1 and its descendants: an index scan for each, however many the planner expects.
pub(crate) const BELOW: &str = "WITH RECURSIVE below (seq) AS (
        SELECT $1 UNION SELECT f.seq FROM below b CROSS JOIN LATERAL (SELECT seq FROM @fibers WHERE parent = b.seq OFFSET 0) f)
    SELECT seq FROM below ORDER BY seq";

/// Locks the descendants of a locked fiber, and returns it and them. They are read again once they
/// are locked, so that a child that was spawned at the same time is found: a locked fiber spawns no
/// others.
async fn descendants(tx: &Tx, top: Seq) -> Done<Vec<Seq>> {
    let mut locked = Vec::new();
    loop {
        let all: Vec<Seq> = tx.rows(BELOW, args![top]).await?.iter().map(|row| row.int("seq")).collect::<Done<_>>()?;
        if all.len() == locked.len().max(1) {
            return Ok(all);
        }
        tx.rows("SELECT seq FROM @fibers WHERE seq = ANY ($1) ORDER BY seq FOR NO KEY UPDATE", args![&all]).await?;
        locked = all;
    }
}

pub(crate) async fn restart(tx: &Tx, id: &str, how: Restart, now_ms: i64) -> Done<CommandResult<RestartResult>> {
    let Some(row) = fibers::find_locked(tx, &FiberRef::Id(id.to_owned())).await? else { return Ok(CommandResult::NotFound) };
    let stopped = matches!(row.state, FiberState::Failed | FiberState::Parked | FiberState::Interrupted);
    let cancelled = row.state == FiberState::Cancelled && how == Restart::FromStart;
    if !(stopped || cancelled) {
        return Ok(CommandResult::InvalidState(row.state));
    }
    if how == Restart::FromStart {
        if let Some(op) = fibers::forget_progress(tx, row.seq).await? {
            return Ok(CommandResult::Done(RestartResult::InDoubt(op)));
        }
        if cancelled {
            // Its end has reported them as unread.
            tx.run("DELETE FROM @messages WHERE fiber = $1", args![row.seq]).await?;
        }
        topics::forget_ids(tx, row.seq).await?;
    } else if row.state == FiberState::Failed {
        ops::forget_attempts(tx, row.seq).await?;
    }
    fibers::make_ready(tx, row.seq, now_ms).await?;
    Ok(CommandResult::Done(RestartResult::Ready))
}

/// The `WHERE` conditions of a query, with their arguments.
struct Condition<'a> {
    terms: Vec<String>,
    values: Vec<Arg<'a>>,
}

impl<'a> Condition<'a> {
    fn new() -> Self {
        Condition { terms: vec!["TRUE".to_owned()], values: Vec::new() }
    }

    /// Adds an argument, and returns its placeholder.
    fn value(&mut self, value: impl Into<Arg<'a>>) -> String {
        self.values.push(value.into());
        format!("${}", self.values.len())
    }

    fn of(query: &'a FiberQuery) -> Self {
        let mut condition = Condition::new();
        if !query.states.is_empty() {
            // State names are constants of this crate, so they need no placeholders. Postgres uses
            // the partial index only where the text of the query shows that all of them are in it.
            let words: Vec<_> = query.states.iter().map(|s| format!("'{s}'")).collect();
            condition.terms.push(format!("f.state IN ({})", words.join(", ")));
            if !query.states.contains(&FiberState::Completed) {
                condition.terms.push("f.state <> 'completed'".to_owned());
            }
        }
        for (column, value) in [("name", &query.name), ("class", &query.class), ("agent", &query.agent)] {
            if let Some(value) = value {
                let place = condition.value(value);
                condition.terms.push(format!("f.{column} = {place}"));
            }
        }
        if query.agent.is_some() {
            condition.terms.push("f.agent IS NOT NULL".to_owned());
        }
        for (term, value) in [
            ("f.finished_ms <", query.ended_before_ms),
            ("f.created_ms >=", query.created_from_ms),
            ("f.created_ms <", query.created_before_ms),
            ("f.changed_ms >=", query.changed_from_ms),
            ("f.seq >=", query.from_seq),
            ("f.seq <=", query.to_seq),
        ] {
            if let Some(value) = value {
                let place = condition.value(value);
                condition.terms.push(format!("{term} {place}"));
            }
        }
        if let Some(parent) = &query.parent {
            let place = condition.value(parent);
            condition.terms.push(format!("f.parent = (SELECT seq FROM @fibers WHERE id = {place})"));
        }
        if let Some(key) = &query.key {
            let place = condition.value(key);
            condition.terms.push(format!("f.key = {place}"));
        }
        for (field, value) in &query.metadata {
            let (field, value) = (condition.value(field), condition.value(value));
            condition.terms.push(format!("@metadata_has(f.metadata, {field}, {value})"));
        }
        if let Some(text) = &query.text {
            let place = condition.value(text);
            // What is not shown cannot be searched for, letter by letter.
            let reason = format!("CASE WHEN f.reason LIKE '{SECRET_MARK}%' THEN '' ELSE f.reason END");
            // `strpos`: no pattern, so nothing of the text has to be escaped.
            let columns = ["f.id", "f.name", "f.key", "f.agent", &reason, "f.metadata"];
            let columns = columns.map(|column| format!("strpos(lower({column}), lower({place})) > 0"));
            condition.terms.push(format!("({})", columns.join(" OR ")));
        }
        if query.only_in_doubt {
            let in_doubt = "o.kind IN ('effect', 'op') AND o.state = 'started'";
            condition.terms.push(format!("EXISTS (SELECT 1 FROM @ops o WHERE o.fiber = f.seq AND {in_doubt})"));
        }
        if query.only_retrying {
            let retried = troubles::IS_RETRIED;
            condition
                .terms
                .push(format!("EXISTS (SELECT 1 FROM @ops o JOIN @snapshots s ON s.fiber = o.fiber WHERE o.fiber = f.seq AND {retried})"));
        }
        if query.exclude_awaited {
            let resumable = "p.finished_ms IS NULL OR p.state = 'failed'";
            condition.terms.push(format!("NOT EXISTS (SELECT 1 FROM @fibers p WHERE p.seq = f.parent AND ({resumable}))"));
        }
        if query.exclude_in_doubt {
            let in_doubt = "o.kind IN ('effect', 'op') AND o.state = 'started'";
            condition.terms.push(format!("NOT EXISTS (SELECT 1 FROM @ops o WHERE o.fiber = f.seq AND {in_doubt})"));
        }
        condition
    }

    fn sql(&self) -> String {
        self.terms.join(" AND ")
    }
}

pub(crate) async fn list(tx: &Tx, query: &FiberQuery, after: Seq, limit: u32) -> Done<Vec<FiberRow>> {
    let (sql, values) = of_page(query, after, limit);
    tx.rows(&sql, &values).await?.iter().map(fibers::fiber_row).collect()
}

/// The statement of a page of a list, with its arguments.
pub(crate) fn of_page(query: &FiberQuery, after: Seq, limit: u32) -> (String, Vec<Arg<'_>>) {
    let mut condition = Condition::of(query);
    let (after, limit) = (condition.value(after), condition.value(limit));
    let (behind, order) = if query.newest_first { ("<", "DESC") } else { (">", "ASC") };
    let page = |state: &str| {
        format!("{} WHERE {}{state} AND f.seq {behind} {after} ORDER BY f.seq {order} LIMIT {limit}", fibers::ROW, condition.sql())
    };
    let mut states = match &*query.states {
        [] if query.name.is_some() => ALL_STATES.to_vec(),
        states => states.to_vec(),
    };
    states.sort_unstable_by_key(|state| state.as_str());
    states.dedup();
    let sql = if states.len() < 2 {
        page("")
    } else {
        // One index scan for each state, merged: a page costs the same however many fibers there
        // are.
        let open = |state: &FiberState| if *state == FiberState::Completed { "" } else { " AND f.state <> 'completed'" };
        let pages: Vec<String> = states.iter().map(|s| format!("({})", page(&format!(" AND f.state = '{s}'{}", open(s))))).collect();
        format!("{} ORDER BY seq {order} LIMIT {limit}", pages.join(" UNION ALL "))
    };
    (sql, condition.values)
}

/// All states that this version of the store knows.
const ALL_STATES: [FiberState; 8] = [
    FiberState::Pending,
    FiberState::Running,
    FiberState::Waiting,
    FiberState::Completed,
    FiberState::Failed,
    FiberState::Cancelled,
    FiberState::Interrupted,
    FiberState::Parked,
];

pub(crate) async fn counts(tx: &Tx, states: &[FiberState]) -> Done<Vec<FiberCount>> {
    let words: Vec<&str> = states.iter().map(|state| state.as_str()).collect();
    let sql = of_counts(states);
    let counted = if states.is_empty() { tx.rows(&sql, args![]).await? } else { tx.rows(&sql, args![words]).await? };
    let count = |row: &Row| Ok(FiberCount { name: row.text("name")?, state: row.word("state")?, fibers: row.number("fibers")? });
    counted.iter().map(count).collect()
}

/// The count of the fibers in the states $1, or of all where none is given.
pub(crate) fn of_counts(states: &[FiberState]) -> String {
    let which = match states {
        [] => "",
        states if states.contains(&FiberState::Completed) => "WHERE state = ANY ($1)",
        // The condition of the index of those that have not completed.
        _ => "WHERE state = ANY ($1) AND state <> 'completed'",
    };
    format!(
        "SELECT name, state, count(*) AS fibers FROM @fibers {which} GROUP BY name, state ORDER BY name COLLATE \"C\", state COLLATE \"C\""
    )
}

/// An ended fiber that may be deleted.
struct Candidate {
    seq: Seq,
    finished_ms: i64,
    /// The tombstone that the deletion leaves.
    past: Option<FiberTombstone>,
}

pub(crate) async fn delete(tx: &Tx, deletion: &Deletion) -> Done<DeleteResult> {
    let candidates = candidates(tx, deletion).await?;
    let full = u32::try_from(candidates.len()) == Ok(deletion.limit);
    let next = candidates.last().filter(|_| full).map(|last| DeleteCursor { finished_ms: last.finished_ms, seq: last.seq });
    let all: Vec<&Candidate> = candidates.iter().collect();
    let mut deleted = Vec::new();
    if remove(tx, &all, LOCKED).await? {
        deleted = all;
    } else {
        // A table of the program refers to one of them, so each is deleted by itself. However many
        // of its rows are locked, the page is done within the time of a call.
        for candidate in all {
            if remove(tx, &[candidate], LOCKED / 50).await? {
                deleted.push(candidate);
            }
        }
    }
    if let Some(now_ms) = deletion.tombstone_ms {
        for past in deleted.iter().filter_map(|candidate| candidate.past.as_ref()) {
            remember(tx, past, now_ms).await?;
        }
    }
    Ok(DeleteResult { count: deleted.len() as u64, held: (candidates.len() - deleted.len()) as u64, next })
}

/// A page of the fibers that the deletion selects, in the order of the index, without those that
/// another transaction has locked.
async fn candidates(tx: &Tx, deletion: &Deletion) -> Done<Vec<Candidate>> {
    let mut condition = Condition::of(&deletion.query);
    let mut after = String::new();
    if let Some(DeleteCursor { finished_ms, seq }) = deletion.after {
        let (finished_ms, seq) = (condition.value(finished_ms), condition.value(seq));
        after = format!(" AND (f.finished_ms, f.seq) > ({finished_ms}, {seq})");
    }
    let limit = condition.value(deletion.limit);
    let sql = format!(
        "SELECT f.seq, f.finished_ms, f.id_given OR f.key IS NOT NULL AS is_remembered, f.id, f.key, f.name, f.args, f.state
         FROM @fibers f WHERE f.finished_ms IS NOT NULL AND {}{after} ORDER BY f.state, f.finished_ms, f.seq LIMIT {limit}
         FOR UPDATE OF f SKIP LOCKED",
        condition.sql()
    );
    let candidate = |row: &Row| {
        let is_remembered = deletion.tombstone_ms.is_some() && row.flag("is_remembered")?;
        let past =
            if is_remembered { Some(FiberTombstone { args: arguments_digest(&row.text("args")?), ..past_fiber(row)? }) } else { None };
        Ok(Candidate { seq: row.int("seq")?, finished_ms: row.int("finished_ms")?, past })
    };
    tx.rows(&sql, &condition.values).await?.iter().map(candidate).collect()
}

/// Deletes all of the fibers, or none if the program keeps one; returns whether it deleted them.
/// For rows of the program that are locked it waits for the time `patience`.
async fn remove(tx: &Tx, fibers: &[&Candidate], patience: Duration) -> Done<bool> {
    if fibers.is_empty() {
        return Ok(true);
    }
    let seqs: Vec<Seq> = fibers.iter().map(|fiber| fiber.seq).collect();
    tx.batch(&format!("SAVEPOINT remove; SET LOCAL lock_timeout = {}", as_setting(patience))).await?;
    match remove_rows(tx, &seqs).await {
        Ok(()) => tx.batch("RELEASE SAVEPOINT remove").await.map(|()| true),
        Err(why) if is_held(&why) => tx.batch("ROLLBACK TO SAVEPOINT remove; RELEASE SAVEPOINT remove").await.map(|()| false),
        Err(why) => Err(why),
    }
}

async fn remove_rows(tx: &Tx, seqs: &[Seq]) -> Done<()> {
    tx.run("DELETE FROM @fibers WHERE seq = ANY ($1)", args![seqs]).await?;
    ops::delete(tx, seqs).await?;
    snapshot_rows::delete(tx, seqs).await?;
    streams::delete(tx, seqs).await?;
    // A deferred constraint fails at the commit, and would undo the whole deletion.
    tx.batch("SET CONSTRAINTS ALL IMMEDIATE").await
}

/// Whether the program keeps a fiber: by a constraint, a lock, or a trigger with whatever error.
fn is_held(why: &Fail) -> bool {
    let Fail::Postgres(why) = why else { return false };
    // Without a report of the server the connection was lost.
    let Some(error) = why.as_db_error() else { return false };
    match error.code().code().get(..2) {
        _ if *error.code() == SqlState::LOCK_NOT_AVAILABLE => true,
        // Connection, transaction and its conflicts, memory and disk, an operator, a device.
        Some("08" | "25" | "40" | "53" | "57" | "58") => false,
        // What the server cannot carry out: a statement of ours, unless the report names a trigger
        // or a function around it.
        Some("0A" | "26" | "42") => error.where_().is_some(),
        _ => true,
    }
}

async fn remember(tx: &Tx, past: &FiberTombstone, now_ms: i64) -> Done<()> {
    tx.run("DELETE FROM @past_fibers WHERE id = $1 OR key = $2", args![&past.id, &past.key]).await?;
    tx.run(
        "INSERT INTO @past_fibers (id, key, name, args, state, finished_ms, deleted_ms) VALUES ($1, $2, $3, $4, $5, $6, $7)",
        args![&past.id, &past.key, &past.name, &past.args, past.state.as_str(), past.finished_ms, now_ms],
    )
    .await
    .map(drop)
}

fn past_fiber(row: &Row) -> Done<FiberTombstone> {
    Ok(FiberTombstone {
        id: row.text("id")?,
        key: row.text_opt("key")?,
        name: row.text("name")?,
        args: row.text("args")?,
        state: row.word("state")?,
        finished_ms: row.int("finished_ms")?,
    })
}

pub(crate) async fn tombstone(tx: &Tx, which: &FiberRef) -> Done<Option<FiberTombstone>> {
    if let FiberRef::Seq(_) = which {
        // Sequence numbers leave no tombstones: they mean nothing outside of the store.
        return Ok(None);
    }
    let (column, value) = fibers::column(which);
    let sql = format!("SELECT id, key, name, args, state, finished_ms FROM @past_fibers WHERE {column} = $1");
    tx.row(&sql, &[value]).await?.as_ref().map(past_fiber).transpose()
}

pub(crate) async fn delete_tombstones(tx: &Tx, deletion: &Deletion, deleted_before_ms: Option<i64>) -> Done<u64> {
    let query = &deletion.query;
    let mut condition = Condition::new();
    if !query.states.is_empty() {
        let words: Vec<_> = query.states.iter().map(|state| format!("'{state}'")).collect();
        condition.terms.push(format!("state IN ({})", words.join(", ")));
    }
    if let Some(name) = &query.name {
        let place = condition.value(name);
        condition.terms.push(format!("name = {place}"));
    }
    for (column, before) in [("finished_ms", query.ended_before_ms), ("deleted_ms", deleted_before_ms)] {
        if let Some(before) = before {
            let place = condition.value(before);
            condition.terms.push(format!("{column} < {place}"));
        }
    }
    let limit = condition.value(deletion.limit);
    let sql = format!(
        "DELETE FROM @past_fibers WHERE id IN (SELECT id FROM @past_fibers WHERE {} LIMIT {limit} FOR UPDATE SKIP LOCKED)",
        condition.sql()
    );
    tx.run(&sql, &condition.values).await
}
