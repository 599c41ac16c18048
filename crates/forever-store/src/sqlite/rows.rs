//! The statements behind the store's operations, and the rows they give.
use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::types::{Type, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params, params_from_iter};

use super::conn::Conn;
use super::places::MIXED;
use super::recent_items::{self, Destination};
use super::recent_ops::{self, Column};
use super::{claims, histories, layouts, numbers, ops, past, places, snapshot_rows, streams, topics, troubles};
use crate::AgentId;
use crate::SnapshotRows;
use crate::{
    AcceptResult, BranchResult, Claim, CommandResult, CommitNotices, End, FiberCount, FiberQuery, FiberRef, FiberRetry, FiberRow,
    FiberState, HISTORY, LayoutRow, LoadedFiber, NewFiber, NewSnapshot, OpOutcome, OpRetry, Restart, RestartResult, Runnable, SECRET_MARK,
    Seq, StreamAppend, Suspension, UnfinishedGroup, UnreadMessages, Wait,
};

pub(super) fn accept(conn: &Connection, new: &NewFiber) -> rusqlite::Result<AcceptResult> {
    let given = [new.id_given.then(|| FiberRef::Id(new.id.clone())), new.key.clone().map(FiberRef::Key)];
    for given in given.into_iter().flatten() {
        if let Some(past) = past::find(conn, &given)? {
            return Ok(AcceptResult::Deleted(Box::new(past)));
        }
    }
    if let Some(claim) = insert(conn, new)? {
        return Ok(AcceptResult::Created(claim));
    }
    let by_id = find(conn, &FiberRef::Id(new.id.clone()))?;
    let there = match (by_id, &new.key) {
        (Some(row), _) => Some(row),
        (None, Some(key)) => find(conn, &FiberRef::Key(key.clone()))?,
        (None, None) => None,
    };
    there.map(|row| AcceptResult::Existing(Box::new(row))).ok_or(rusqlite::Error::QueryReturnedNoRows)
}

/// Stores a fiber, claimed if a worker is named; `None` if its id or key is taken.
pub(super) fn insert(conn: &Connection, new: &NewFiber) -> rusqlite::Result<Option<Claim>> {
    let (class, agent) = new.agent.as_ref().map(|a| (&a.class, &a.name)).unzip();
    let inserted = conn
        .prepare_cached(concat!(
            "INSERT INTO fibers (seq, id, name, key, state, kind, class, agent, parent, args, metadata, created_ms, changed_ms, id_given)
             VALUES (",
            numbers::next!("fibers"),
            ", ?1, ?2, ?3, ?11, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?10, ?12) ON CONFLICT DO NOTHING",
        ))?
        .execute(params![
            new.id,
            new.name,
            new.key,
            if new.closure { "closure" } else { "function" },
            class,
            agent,
            new.parent,
            new.args,
            new.metadata,
            new.now_ms,
            if new.worker.is_some() { "running" } else { "pending" },
            new.id_given
        ])?;
    if inserted == 0 {
        return Ok(None);
    }
    let claim = Claim { fiber: conn.last_insert_rowid(), epoch: i64::from(new.worker.is_some()) };
    conn.prepare_cached("INSERT INTO snapshots (fiber, epoch, worker) VALUES (?1, ?2, ?3)")?.execute(params![
        claim.fiber,
        claim.epoch,
        new.worker
    ])?;
    Ok(Some(claim))
}

const ROW: &str = "SELECT f.seq, f.id, f.name, f.key, f.state, f.kind, f.class, f.agent, p.id AS parent, f.reason, f.args, f.metadata,
                          f.result, f.created_ms, f.changed_ms, f.finished_ms, s.number, s.at, s.deaths, s.saved_ms,
                          (SELECT json_array(o.step, o.failed, o.error, max(o.next_ms)) FROM ops o
                            WHERE o.fiber = f.seq AND o.number = s.number AND o.state IN ('started', 'not_executed') AND o.error IS NOT NULL) AS retry,
                          CASE WHEN f.state = 'waiting' THEN (
                              SELECT json_array(w.due_ms, w.any_join, w.topic,
                                  json((SELECT json_group_array(t.topic) FROM wait_topics t WHERE t.fiber = w.fiber)),
                                  json((SELECT json_group_array(c.id) FROM joins j JOIN fibers c ON c.seq = j.child WHERE j.fiber = w.fiber)))
                              FROM waits w WHERE w.fiber = f.seq) END AS wait
                   FROM fibers f LEFT JOIN snapshots s ON s.fiber = f.seq LEFT JOIN fibers p ON p.seq = f.parent";

/// Finds a fiber by a unique value.
pub(super) fn find(conn: &Connection, which: &FiberRef) -> rusqlite::Result<Option<FiberRow>> {
    let (column, value): (_, &dyn ToSql) = match which {
        FiberRef::Id(id) => ("id", id),
        FiberRef::Key(key) => ("key", key),
        FiberRef::Seq(seq) => ("seq", seq),
    };
    conn.prepare_cached(&format!("{ROW} WHERE f.{column} = ?1"))?.query_row([value], fiber_row).optional()
}

pub(super) fn list(conn: &Connection, which: &FiberQuery, after: Seq, limit: u32) -> rusqlite::Result<Vec<FiberRow>> {
    let states: &[FiberState] = match &*which.states {
        // The index of a function's fibers has them by state.
        [] if which.name.is_some() => &FiberState::ALL,
        states => states,
    };
    if states.len() < 2 {
        return list_in_order(conn, which, after, limit);
    }
    // One search of an index for each state, merged: a page costs the same however many there are.
    let mut found = Vec::new();
    for state in states {
        found.extend(list_in_order(conn, &FiberQuery { states: vec![*state], ..which.clone() }, after, limit)?);
    }
    found.sort_by_key(|row| if which.newest_first { -row.seq } else { row.seq });
    found.dedup_by_key(|row| row.seq);
    found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    Ok(found)
}

/// A page of a query for one state, or for all.
fn list_in_order(conn: &Connection, which: &FiberQuery, after: Seq, limit: u32) -> rusqlite::Result<Vec<FiberRow>> {
    let (condition, values) = condition(which);
    let (behind, order) = if which.newest_first { ("<", "DESC") } else { (">", "ASC") };
    let sql = format!("{ROW} WHERE {condition} AND f.seq {behind} ? ORDER BY f.seq {order} LIMIT ?");
    let (mut found, mut after, mut left) = (Vec::new(), after, limit);
    loop {
        let place: [&dyn ToSql; 2] = [&after, &left];
        let values = values.iter().map(|value| &**value as &dyn ToSql).chain(place);
        let page: Vec<(Seq, Option<FiberRow>)> = conn
            .prepare_cached(&sql)?
            .query_map(params_from_iter(values), |row| Ok((row.get("seq")?, listed(row))))?
            .collect::<Result<_, _>>()?;
        let last = page.last().map(|(seq, _)| *seq);
        let whole = u32::try_from(page.len()) == Ok(left);
        found.extend(page.into_iter().filter_map(|(_, row)| row));
        left = limit - u32::try_from(found.len()).unwrap_or(limit);
        match last {
            Some(last) if whole && left > 0 => after = last,
            _ => return Ok(found),
        }
    }
}

/// A row as a list shows it. A damaged value hides neither the other rows nor the rest of its own.
/// `None` if not even its state can be read.
fn listed(row: &Row<'_>) -> Option<FiberRow> {
    let text = |column| match row.get_ref(column) {
        Ok(ValueRef::Text(bytes)) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    };
    let number = |column| row.get(column).unwrap_or(None);
    Some(FiberRow {
        seq: row.get("seq").ok()?,
        id: text("id").unwrap_or_default(),
        name: text("name").unwrap_or_default(),
        closure: text("kind").as_deref() == Some("closure"),
        agent: Option::zip(text("class"), text("agent")).map(|(class, name)| AgentId { class, name }),
        parent: text("parent"),
        key: text("key"),
        state: state(row).ok()?,
        reason: text("reason"),
        args: text("args").unwrap_or_default(),
        metadata: text("metadata"),
        result: text("result"),
        checkpoints: count(row).unwrap_or(0),
        at: text("at"),
        deaths: deaths(row),
        retry: retry(row),
        wait: wait_of(row),
        created_ms: number("created_ms").unwrap_or(0),
        changed_ms: number("changed_ms").unwrap_or(0),
        saved_ms: number("saved_ms"),
        finished_ms: number("finished_ms"),
    })
}

/// The `WHERE` clause of a query, with its values in order.
pub(super) fn condition(which: &FiberQuery) -> (String, Vec<Box<dyn ToSql>>) {
    let mut terms = vec!["1".to_owned()];
    let mut values: Vec<Box<dyn ToSql>> = Vec::new();
    if !which.states.is_empty() {
        // The words are ours, so they may stand in the text. Where the index covers all of them,
        // SQLite needs the condition spelled out.
        terms.push(format!("f.state IN ({})", quoted(&which.states)));
        for left_out in [FiberState::Completed, FiberState::Running] {
            if !which.states.contains(&left_out) {
                terms.push(format!("f.state <> '{left_out}'"));
            }
        }
    }
    for (column, value) in [("name", &which.name), ("class", &which.class), ("agent", &which.agent)] {
        if let Some(value) = value {
            terms.push(format!("f.{column} = ?"));
            values.push(Box::new(value.clone()));
        }
    }
    if which.agent.is_some() {
        terms.push("f.agent IS NOT NULL".to_owned());
    }
    for (term, value) in [
        ("f.finished_ms < ?", which.ended_before_ms),
        ("f.created_ms >= ?", which.created_from_ms),
        ("f.created_ms < ?", which.created_before_ms),
        ("f.changed_ms >= ?", which.changed_from_ms),
        ("f.seq >= ?", which.from_seq),
        ("f.seq <= ?", which.to_seq),
    ] {
        if let Some(value) = value {
            terms.push(term.to_owned());
            values.push(Box::new(value));
        }
    }
    for (term, value) in
        [("f.parent = (SELECT seq FROM fibers WHERE id = ?) AND f.parent IS NOT NULL", &which.parent), ("f.key = ?", &which.key)]
    {
        if let Some(value) = value {
            terms.push(term.to_owned());
            values.push(Box::new(value.clone()));
        }
    }
    for (field, value) in &which.metadata {
        // By the object's entries: a name may have any character in it.
        terms.push(
            "CASE WHEN json_valid(f.metadata) THEN EXISTS (SELECT 1 FROM json_each(f.metadata) e WHERE e.key = ? AND e.type NOT IN
             ('object', 'array') AND CASE e.type WHEN 'text' THEN json_quote(e.value) WHEN 'true' THEN 'true' WHEN 'false' THEN 'false'
             WHEN 'null' THEN 'null' ELSE CAST(e.value AS TEXT) END = ?) ELSE 0 END"
                .to_owned(),
        );
        values.push(Box::new(field.clone()));
        values.push(Box::new(value.clone()));
    }
    if let Some(text) = &which.text {
        let like = |column: &str| format!("{column} LIKE ? ESCAPE '\\'");
        // What is not shown cannot be searched for, letter by letter.
        let reason = format!("iif(f.reason LIKE '{SECRET_MARK}%', '', f.reason)");
        let columns = ["f.id", "f.name", "f.key", "f.agent", &reason, "f.metadata"];
        terms.push(format!("({})", columns.map(like).join(" OR ")));
        let pattern = contains(text);
        for _ in columns {
            values.push(Box::new(pattern.clone()));
        }
    }
    if which.exclude_awaited {
        let resumable = "p.finished_ms IS NULL OR p.state = 'failed'";
        terms.push(format!("NOT EXISTS (SELECT 1 FROM fibers p WHERE p.seq = f.parent AND ({resumable}))"));
    }
    let in_doubt = "o.kind IN ('effect', 'op') AND o.state = 'started'";
    if which.only_in_doubt {
        terms.push(format!(
            "(EXISTS (SELECT 1 FROM ops o WHERE o.fiber = f.seq AND {in_doubt})
              OR EXISTS (SELECT 1 FROM snapshots s WHERE s.fiber = f.seq AND {}))",
            recent_ops::IN_DOUBT
        ));
    }
    if which.only_retrying {
        // From the index of those that are: they are few among the fibers.
        terms.push(format!("f.seq IN (SELECT o.fiber FROM ops o JOIN snapshots s ON s.fiber = o.fiber WHERE {})", troubles::IS_RETRIED));
    }
    if which.exclude_in_doubt {
        terms.push(format!("NOT EXISTS (SELECT 1 FROM ops o WHERE o.fiber = f.seq AND {in_doubt})"));
        terms.push(format!("NOT EXISTS (SELECT 1 FROM snapshots s WHERE s.fiber = f.seq AND {})", recent_ops::IN_DOUBT));
    }
    (terms.join(" AND "), values)
}

/// The pattern of `LIKE .. ESCAPE '\\'` for texts that contain this one.
fn contains(text: &str) -> String {
    let mut pattern = String::from("%");
    for c in text.chars() {
        if matches!(c, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push('%');
    pattern
}

/// States as a list of SQL.
fn quoted(states: &[FiberState]) -> String {
    let words: Vec<_> = states.iter().map(|state| format!("'{state}'")).collect();
    words.join(", ")
}

/// Counts fibers by function and state: those in one of `states`, or all of them without any.
pub(super) fn counts(conn: &Connection, states: &[FiberState]) -> rusqlite::Result<Vec<FiberCount>> {
    let states = if states.is_empty() { &FiberState::ALL[..] } else { states };
    let others: Vec<String> = states.iter().filter(|state| **state != FiberState::Running).map(|state| format!("('{state}')")).collect();
    // Each name and state is one search, so that other states cost nothing.
    let of_names = format!(
        "WITH RECURSIVE names (name) AS (
             SELECT min(name) FROM fibers WHERE state <> 'running'
             UNION ALL SELECT (SELECT min(name) FROM fibers WHERE name > n.name AND state <> 'running') FROM names n WHERE n.name IS NOT NULL),
         states (state) AS (VALUES {})
         SELECT n.name, s.state,
                (SELECT count(*) FROM fibers f WHERE f.name = n.name AND f.state = s.state AND f.state <> 'running') AS fibers
         FROM names n, states s WHERE n.name IS NOT NULL",
        others.join(", ")
    );
    // They are few, and in the index of those that have not completed alone.
    let running = "SELECT name, state, count(*) AS fibers FROM fibers WHERE state <> 'completed' AND state = 'running' GROUP BY name";
    let sql = match (others.is_empty(), states.contains(&FiberState::Running)) {
        (true, _) => running.to_owned(),
        (false, true) => format!("{of_names} UNION ALL {running}"),
        (false, false) => of_names,
    };
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query(())?;
    let mut counts = Vec::new();
    while let Some(row) = rows.next()? {
        // A damaged row must not keep the others from being counted.
        let (Ok(name), Ok(state), fibers) = (row.get("name"), state(row), row.get::<_, i64>("fibers")?) else { continue };
        if fibers > 0 {
            counts.push(FiberCount { name, state, fibers: fibers.unsigned_abs() });
        }
    }
    counts.sort_by(|a, b| (&a.name, a.state.as_str()).cmp(&(&b.name, b.state.as_str())));
    Ok(counts)
}

fn fiber_row(row: &Row<'_>) -> rusqlite::Result<FiberRow> {
    Ok(FiberRow {
        seq: row.get("seq")?,
        id: row.get("id")?,
        name: row.get("name")?,
        closure: row.get_ref("kind")?.as_str()? == "closure",
        agent: agent(row)?,
        parent: row.get("parent")?,
        key: row.get("key")?,
        state: state(row)?,
        reason: row.get("reason")?,
        args: row.get("args")?,
        metadata: row.get("metadata")?,
        result: row.get("result")?,
        checkpoints: count(row)?,
        at: row.get("at")?,
        deaths: deaths(row),
        retry: retry(row),
        wait: wait_of(row),
        created_ms: row.get("created_ms")?,
        changed_ms: row.get("changed_ms")?,
        saved_ms: row.get("saved_ms")?,
        finished_ms: row.get("finished_ms")?,
    })
}

/// The condition that wakes a waiting fiber. It is for information only, so a damaged one is left
/// out.
fn wait_of(row: &Row<'_>) -> Option<Wait> {
    let text: String = row.get("wait").ok()?;
    let (due_ms, any, topic, mut topics, fibers): (_, u8, Option<String>, Vec<String>, _) = serde_json::from_str(&text).ok()?;
    // One topic stands in the row of the wait.
    topics.extend(topic);
    Some(Wait { due_ms, topics, fibers, any_fiber: any == 1 })
}

/// The step that is retried. It is for information only, so a damaged one is left out.
fn retry(row: &Row<'_>) -> Option<FiberRetry> {
    let text: String = row.get("retry").ok()?;
    let (step, failed, error, next_ms) = serde_json::from_str(&text).ok()?;
    Some(FiberRetry { step, failed, last: OpRetry { error, next_ms } })
}

pub(super) fn state(row: &Row<'_>) -> rusqlite::Result<FiberState> {
    let state = row.get_ref("state")?.as_str()?;
    state.parse().map_err(|why: String| rusqlite::Error::FromSqlConversionFailure(0, Type::Text, why.into()))
}

fn agent(row: &Row<'_>) -> rusqlite::Result<Option<AgentId>> {
    let (class, name) = (row.get("class")?, row.get("agent")?);
    Ok(Option::zip(class, name).map(|(class, name)| AgentId { class, name }))
}

/// Number of checkpoints; a fiber that has completed has no snapshot row any more.
fn count(row: &Row<'_>) -> rusqlite::Result<u64> {
    let number: Option<i64> = row.get("number")?;
    Ok(number.and_then(|n| u64::try_from(n).ok()).unwrap_or(0))
}

const RUNNABLE: &str = "SELECT f.seq, f.id, f.name, f.kind, f.class, f.agent, f.state, s.epoch, coalesce(s.deaths, 0) AS deaths
                          FROM fibers f LEFT JOIN snapshots s ON s.fiber = f.seq";

pub(super) fn unfinished(conn: &Connection, after: Seq, limit: u32) -> rusqlite::Result<Vec<Runnable>> {
    // One search of the index per state, merged, so that a page costs the same however many fibers
    // there are.
    let of = |state| format!("{RUNNABLE} WHERE f.state <> 'completed' AND f.state = '{state}' AND f.seq > ?1");
    let sql = format!("{} ORDER BY 1 LIMIT ?2", READY_OR_STOPPED.map(of).join(" UNION ALL "));
    conn.prepare_cached(&sql)?.query_map(params![after, limit], runnable_row)?.collect()
}

/// Groups the unfinished fibers by everything that decides whether code can resume them. Grouped
/// here, because SQLite would sort all of them.
pub(super) fn unfinished_groups(conn: &Connection) -> rusqlite::Result<Vec<UnfinishedGroup>> {
    // Those that wait may be many. They are counted from an index, and one of each place is read.
    let waiting = format!(
        "SELECT f.name, 1, s.at, s.layout, s.callees, {MIXED}, w.fibers
         FROM (SELECT min(fiber) AS fiber, count(*) AS fibers FROM waits WHERE place IS NOT NULL GROUP BY place) w
         JOIN fibers f ON f.seq = w.fiber LEFT JOIN snapshots s ON s.fiber = w.fiber"
    );
    let of = |state: FiberState| {
        format!(
            "SELECT f.name, 0, s.at, s.layout, s.callees, {MIXED}, 1 FROM fibers f LEFT JOIN snapshots s ON s.fiber = f.seq
             WHERE f.state <> 'completed' AND f.state = '{state}' AND f.kind = 'function'"
        )
    };
    let mut statement = conn.prepare_cached(&format!("{waiting} UNION ALL {}", READY_OR_STOPPED.map(of).join(" UNION ALL ")))?;
    let mut rows = statement.query(())?;
    let mut groups: BTreeMap<_, u64> = BTreeMap::new();
    while let Some(row) = rows.next()? {
        // A damaged row must not keep the others from being compared.
        let text = |column| row.get_ref(column).map(|value| value.as_bytes().ok().map(|text| String::from_utf8_lossy(text).into_owned()));
        let stands = (text(0)?.unwrap_or_default(), row.get::<_, bool>(1)?, text(2)?, text(3)?, text(4)?, row.get::<_, bool>(5)?);
        *groups.entry(stands).or_default() += row.get::<_, i64>(6)?.unsigned_abs();
    }
    let group =
        |((name, waiting, at, layout, callees, mixed), fibers)| UnfinishedGroup { name, waiting, at, layout, callees, mixed, fibers };
    Ok(groups.into_iter().map(group).collect())
}

/// The states of fibers that have not ended and do not wait.
const READY_OR_STOPPED: [FiberState; 4] = [FiberState::Pending, FiberState::Running, FiberState::Interrupted, FiberState::Parked];

/// The fibers of a group with numbers greater than `after`.
pub(super) fn unfinished_of(conn: &Connection, group: &UnfinishedGroup, after: Seq, limit: u32) -> rusqlite::Result<Vec<Seq>> {
    let UnfinishedGroup { name, waiting, at, layout, callees, mixed, fibers: _ } = group;
    if *waiting {
        let parts = [Some(name), at.as_ref(), layout.as_ref(), callees.as_ref()].map(|text| text.map(String::as_bytes));
        let place = places::digest(parts, *mixed);
        return conn
            .prepare_cached("SELECT fiber FROM waits WHERE place = ?1 AND fiber > ?2 ORDER BY fiber LIMIT ?3")?
            .query_map(params![place, after, limit], |row| row.get(0))?
            .collect();
    }
    let of = |state: FiberState| {
        format!(
            "SELECT f.seq FROM fibers f LEFT JOIN snapshots s ON s.fiber = f.seq
             WHERE f.state <> 'completed' AND f.state = '{state}' AND f.seq > ?1 AND f.kind = 'function'
                   AND f.name = ?3 AND s.at IS ?4 AND s.layout IS ?5 AND s.callees IS ?6 AND {MIXED} = ?7"
        )
    };
    let sql = format!("{} ORDER BY 1 LIMIT ?2", READY_OR_STOPPED.map(of).join(" UNION ALL "));
    conn.prepare_cached(&sql)?.query_map(params![after, limit, name, at, layout, callees, mixed], |row| row.get(0))?.collect()
}

/// Makes those of these fibers ready that are waiting.
pub(super) fn wake_all(conn: &Connection, fibers: &[Seq], now_ms: i64, notices: &mut CommitNotices) -> rusqlite::Result<()> {
    for &seq in fibers {
        notices.ready.extend(wake(conn, seq, now_ms)?);
    }
    Ok(())
}

/// The fibers that are ready and claimed by no worker.
pub(super) fn ready(conn: &Connection, after: Seq, limit: u32) -> rusqlite::Result<Vec<Runnable>> {
    let sql = format!("{RUNNABLE} WHERE f.state <> 'completed' AND f.state = 'pending' AND f.seq > ?1 ORDER BY f.seq LIMIT ?2");
    conn.prepare_cached(&sql)?.query_map(params![after, limit], runnable_row)?.collect()
}

pub(super) fn runnable(conn: &Connection, seq: Seq) -> rusqlite::Result<Option<Runnable>> {
    conn.prepare_cached(&format!("{RUNNABLE} WHERE f.seq = ?1"))?.query_row([seq], runnable_row).optional()
}

fn runnable_row(row: &Row<'_>) -> rusqlite::Result<Runnable> {
    // A damaged row must not hide the others.
    let text = |column| row.get_ref(column).map(|v| String::from_utf8_lossy(v.as_bytes().unwrap_or_default()).into_owned());
    Ok(Runnable {
        seq: row.get("seq")?,
        id: text("id")?,
        name: text("name")?,
        closure: text("kind")? == "closure",
        agent: agent(row).unwrap_or_default(),
        state: state(row)?,
        epoch: row.get::<_, Option<i64>>("epoch")?.unwrap_or(0),
        deaths: deaths(row),
    })
}

/// Deaths of its workers; 0 for a fiber without a snapshot, and where the stored number is invalid.
fn deaths(row: &Row<'_>) -> u32 {
    row.get::<_, Option<u32>>("deaths").ok().flatten().unwrap_or(0)
}

/// Loads a fiber, all data from one moment, whatever is written meanwhile.
pub(super) fn load(conn: &Connection, seq: Seq) -> rusqlite::Result<LoadedFiber> {
    conn.prepare_cached("SAVEPOINT load")?.execute(())?;
    let loaded = stored(conn, seq).and_then(|stored| {
        let stored = LoadedFiber {
            ops: ops::since(conn, seq, stored.number, stored.layout.as_ref())?,
            branches: branches(conn, seq, stored.number)?,
            ..stored
        };
        match stored.snapshot {
            Some(_) => Ok(LoadedFiber { rows: snapshot_rows::load(conn, seq)?, ..stored }),
            None => Ok(stored),
        }
    });
    let released = conn.prepare_cached("RELEASE load").and_then(|mut release| release.execute(()));
    loaded.and_then(|stored| released.map(|_| stored))
}

/// The branch results stored since a checkpoint.
fn branches(conn: &Connection, seq: Seq, number: u64) -> rusqlite::Result<Vec<BranchResult>> {
    let sql = format!(
        "SELECT b.branch, b.data, {} FROM branch_results b LEFT JOIN layouts l ON l.hash = b.layout WHERE b.fiber = ?1 AND b.number = ?2",
        layouts::COLUMNS
    );
    let result = |row: &Row<'_>| Ok(BranchResult { branch: row.get(0)?, data: row.get(1)?, layout: layouts::of(row)?.map(Arc::new) });
    conn.prepare_cached(&sql)?.query_map(params![seq, number.cast_signed()], result)?.collect()
}

pub(super) fn save_branch(
    conn: &Conn,
    claim: Claim,
    number: u64,
    result: &BranchResult,
    appended: &[StreamAppend],
    now_ms: i64,
) -> rusqlite::Result<()> {
    claims::check_running(conn, claim)?;
    insert_branch(conn, claim.fiber, number, result)?;
    append_all(conn, claim.fiber, appended, now_ms)?;
    forget_deaths(conn, claim.fiber)
}

/// Appends to streams of a fiber.
fn append_all(conn: &Conn, seq: Seq, appended: &[StreamAppend], now_ms: i64) -> rusqlite::Result<()> {
    appended.iter().try_for_each(|append| histories::append(conn, seq, append, now_ms))
}

/// Appends to streams of a fiber between two checkpoints.
pub(super) fn append(conn: &Conn, claim: Claim, appended: &[StreamAppend], now_ms: i64) -> rusqlite::Result<()> {
    claims::check_running(conn, claim)?;
    append_all(conn, claim.fiber, appended, now_ms)
}

pub(super) fn insert_branch(conn: &Connection, seq: Seq, number: u64, result: &BranchResult) -> rusqlite::Result<()> {
    let BranchResult { branch, data, layout } = result;
    layouts::save(conn, layout.as_deref())?;
    conn.prepare_cached("INSERT INTO branch_results (fiber, number, branch, data, layout) VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![seq, number.cast_signed(), branch, data, layout.as_ref().map(|layout| &layout.hash)])
        .map(drop)
}

fn stored(conn: &Connection, seq: Seq) -> rusqlite::Result<LoadedFiber> {
    conn.prepare_cached(&format!(
        "SELECT f.args, f.restarts, f.state IN ('interrupted', 'running') AS interrupted,
                f.state = 'completed' OR s.fiber IS NOT NULL AS there, s.at, s.data, s.number, s.deaths, s.epoch, s.callees, {}
         FROM fibers f LEFT JOIN snapshots s ON s.fiber = f.seq LEFT JOIN layouts l ON l.hash = s.layout WHERE f.seq = ?1",
        layouts::COLUMNS
    ))?
    .query_row([seq], |row| {
        // Without these a fiber would look as if it had not begun, and repeat what it has done.
        let missing = |what: &str| Err(rusqlite::Error::FromSqlConversionFailure(0, Type::Null, what.into()));
        if !row.get::<_, bool>("there")? {
            return missing("its row in `snapshots` is missing");
        }
        if row.get_ref("data")? == ValueRef::Null && row.get_ref("at")? != ValueRef::Null {
            return missing("its snapshot is missing");
        }
        Ok(LoadedFiber {
            args: row.get("args")?,
            snapshot: row.get("data")?,
            rows: SnapshotRows::default(),
            number: count(row)?,
            restarts: row.get("restarts")?,
            deaths: deaths(row),
            interrupted: row.get("interrupted")?,
            epoch: row.get::<_, Option<i64>>("epoch")?.unwrap_or(0),
            lease_left_ms: None,
            ops: Vec::new(),
            branches: Vec::new(),
            layout: layouts::of(row)?,
            callees: layouts::with_hashes(conn, &row.get::<_, Option<String>>("callees")?.unwrap_or_default())?,
        })
    })
}

/// The item of the history that comes with a checkpoint.
pub(super) fn history_of(new: &NewSnapshot) -> Option<&StreamAppend> {
    new.streams.appended.iter().find(|append| append.name == HISTORY)
}

/// The item of the history goes to `item_to`.
pub(super) fn checkpoint(conn: &Conn, claim: Claim, new: &NewSnapshot, item_to: Destination) -> rusqlite::Result<Vec<Claim>> {
    // A field that is not stored does not compile.
    let NewSnapshot { number, replaces: _, at: _, data, now_ms, layouts, ops, delta, streams, received, closed, joined, children } = new;
    let seq = claim.fiber;
    if let Some(layouts) = layouts {
        layouts::save(conn, layouts.iter().map(|layout| &**layout))?;
        let callees = LayoutRow::hashes(layouts.iter().skip(1).map(|layout| &**layout));
        conn.prepare_cached("UPDATE snapshots SET layout = ?2, callees = ?3 WHERE fiber = ?1")?.execute(params![
            seq,
            layouts.first().map(|layout| &layout.hash),
            callees
        ])?;
    }
    // If the claim is lost, this is rolled back with the rest.
    let column = recent_ops::pass(conn, seq, *number, &ops.settled, data.len(), *now_ms)?;
    let replaced = replace_snapshot(conn, claim, new, column, history_of(new).filter(|_| item_to != Destination::Stream))?;
    if !replaced {
        claims::check(conn, claim)?;
        let stored = if new.replaces { "replace" } else { "follow" };
        return Err(rusqlite::Error::ToSqlConversionFailure(format!("checkpoint {number} does not {stored} the stored one").into()));
    }
    if ops.temporary {
        ops::forget_temporary(conn, seq, new.follows())?;
    }
    snapshot_rows::change(conn, seq, delta)?;
    streams::remove_of_fiber(conn, seq, streams)?;
    for append in &streams.appended {
        match item_to {
            Destination::Row if append.name == HISTORY => {}
            Destination::StreamAfterRow if append.name == HISTORY => recent_items::fold(conn, seq, append.keep, *now_ms)?,
            _ => histories::append(conn, seq, append, *now_ms)?,
        }
    }
    for message in received {
        conn.prepare_cached("DELETE FROM messages WHERE seq = ?1 AND fiber = ?2")?.execute([*message, seq])?;
    }
    if let Some(topic) = closed {
        topics::close(conn, seq, topic, *number)?;
    }
    if *joined {
        conn.prepare_cached("DELETE FROM branch_results WHERE fiber = ?1")?.execute([seq])?;
    }
    if !children.is_empty() && is_cancelled(conn, seq)? {
        // The command that cancelled it has cancelled all its children, and would have missed
        // these.
        return Err(rusqlite::Error::ToSqlConversionFailure("it is cancelled, and can spawn no children".into()));
    }
    let child = |new: &NewFiber| {
        let taken = || rusqlite::Error::ToSqlConversionFailure(format!("there is a fiber with id `{}` already", new.id).into());
        insert(conn, new)?.ok_or_else(taken)
    };
    children.iter().map(child).collect()
}

/// Replaces the main text of a fiber, and appends to the history in the same row.
///
/// Returns `false`, having done nothing, if the number does not follow the stored one, which only a
/// person can have changed, or if the claim is lost.
fn replace_snapshot(
    conn: &Connection,
    claim: Claim,
    new: &NewSnapshot,
    ops: Column,
    history: Option<&StreamAppend>,
) -> rusqlite::Result<bool> {
    macro_rules! replace {
        ($columns:literal) => {
            concat!(
                "UPDATE snapshots SET number = ?2, deaths = 0, saved_ms = ?3, at = ?4, data = ?5",
                $columns,
                " WHERE fiber = ?1 AND number = ?7 AND epoch = ?6"
            )
        };
    }
    let [number, follows] = [new.number, new.follows()].map(|number| i64::try_from(number).unwrap_or(i64::MAX));
    let snapshot = params![claim.fiber, number, new.now_ms, new.at, new.data, claim.epoch, follows];
    let replaced = match (ops, history) {
        (Column::Same, None) => conn.prepare_cached(replace!(""))?.execute(snapshot)?,
        (Column::New(ops), None) => conn.prepare_cached(replace!(", ops = ?8"))?.execute(&*[snapshot, params![ops]].concat())?,
        (Column::Same, Some(items)) => conn
            .prepare_cached(replace!(", history = coalesce(history || char(10), '') || ?8"))?
            .execute(&*[snapshot, params![items.data]].concat())?,
        (Column::New(ops), Some(items)) => conn
            .prepare_cached(replace!(", history = coalesce(history || char(10), '') || ?8, ops = ?9"))?
            .execute(&*[snapshot, params![items.data, ops]].concat())?,
    };
    Ok(replaced > 0)
}

fn checkpoints(conn: &Connection, seq: Seq) -> rusqlite::Result<u64> {
    let number = conn.prepare_cached("SELECT number FROM snapshots WHERE fiber = ?1")?.query_row([seq], count).optional()?;
    Ok(number.unwrap_or(0))
}

pub(super) fn is_cancelled(conn: &Connection, seq: Seq) -> rusqlite::Result<bool> {
    conn.prepare_cached("SELECT cancel IS NOT NULL FROM fibers WHERE seq = ?1")?.query_row([seq], |r| r.get(0))
}

/// Sets the deaths of a fiber to 0: it has made progress, as with a checkpoint.
pub(super) fn forget_deaths(conn: &Connection, seq: Seq) -> rusqlite::Result<()> {
    conn.prepare_cached("UPDATE snapshots SET deaths = 0 WHERE fiber = ?1 AND deaths > 0")?.execute([seq]).map(drop)
}

/// Ends a claimed fiber.
pub(super) fn end(
    conn: &Conn,
    claim: Claim,
    how: &End,
    settled: &[OpOutcome],
    appended: &[StreamAppend],
    now_ms: i64,
    notices: &mut CommitNotices,
) -> rusqlite::Result<End> {
    claims::check(conn, claim)?;
    append_all(conn, claim.fiber, appended, now_ms)?;
    finish(conn, claim.fiber, how, settled, now_ms, notices)?.ok_or_else(|| claims::lost(claim))
}

/// Ends a fiber, unless it has ended, and makes the fibers ready that were waiting for it alone.
pub(super) fn finish(
    conn: &Conn,
    seq: Seq,
    end: &End,
    settled: &[OpOutcome],
    now_ms: i64,
    notices: &mut CommitNotices,
) -> rusqlite::Result<Option<End>> {
    // Most fibers leave nothing but a snapshot, so one query is cheaper than a statement per table.
    type Look = (Option<String>, bool, bool, bool, bool, bool, bool);
    let (asked, left, has_messages, waited_for, has_ops, has_items, has_streams): Look = conn
        .prepare_cached(
            "SELECT cancel,
                    EXISTS (SELECT 1 FROM ops WHERE fiber = ?1 AND kind IN ('step', 'transaction') AND number =
                           (SELECT number FROM snapshots WHERE fiber = ?1))
                    OR EXISTS (SELECT 1 FROM waits WHERE fiber = ?1) OR EXISTS (SELECT 1 FROM joins WHERE fiber = ?1)
                    OR EXISTS (SELECT 1 FROM branch_results WHERE fiber = ?1),
                    EXISTS (SELECT 1 FROM messages WHERE fiber = ?1),
                    EXISTS (SELECT 1 FROM joins WHERE child = ?1),
                    EXISTS (SELECT 1 FROM snapshots WHERE fiber = ?1 AND ops IS NOT NULL),
                    EXISTS (SELECT 1 FROM snapshots WHERE fiber = ?1 AND history IS NOT NULL),
                    EXISTS (SELECT 1 FROM streams WHERE fiber = ?1)
             FROM fibers WHERE seq = ?1",
        )?
        .query_row([seq], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?, r.get(4)?, r.get(5)?, r.get(6)?)))?;
    let end = match asked {
        Some(reason) => End::Cancelled(reason),
        None => end.clone(),
    };
    let (state, reason, result) = match &end {
        End::Completed(result) => (FiberState::Completed, None, Some(result)),
        End::Failed(why) => (FiberState::Failed, Some(why), None),
        End::Cancelled(why) => (FiberState::Cancelled, Some(why), None),
    };
    let finished = conn
        .prepare_cached(
            "UPDATE fibers SET state = ?2, reason = ?3, result = ?4, changed_ms = ?5, finished_ms = ?5 WHERE seq = ?1 AND finished_ms IS NULL",
        )?
        .execute(params![seq, state.as_str(), reason, result, now_ms])?;
    if finished == 0 {
        return Ok(None);
    }
    if has_ops {
        recent_ops::fold_readable(conn, seq)?;
    }
    if has_items {
        recent_items::fold(conn, seq, None, now_ms)?;
    }
    if has_streams && state == FiberState::Completed {
        streams::delete_logs(conn, seq)?;
    }
    if has_items || has_streams {
        histories::close(conn, seq)?;
        streams::close_of_fiber(conn, seq)?;
    }
    ops::settle(conn, seq, settled, now_ms)?;
    if left {
        // A failed fiber may be resumed. Then it needs its branch results and stashes.
        let failed = state == FiberState::Failed;
        let gone: &[&str] = if failed { &["waits", "joins"] } else { &["waits", "joins", "branch_results"] };
        if !failed {
            ops::forget_temporary(conn, seq, checkpoints(conn, seq)?)?;
        }
        for table in gone {
            conn.prepare_cached(&format!("DELETE FROM {table} WHERE fiber = ?1"))?.execute([seq])?;
        }
    }
    if has_messages {
        let (id, name) =
            conn.prepare_cached("SELECT id, name FROM fibers WHERE seq = ?1")?.query_row([seq], |r| Ok((r.get(0)?, r.get(1)?)))?;
        let topics = topics::all(conn, seq)?.into_iter().filter(|topic| topic.unread > 0).collect();
        notices.unread.push(UnreadMessages { id, name, state, topics });
    }
    if state == FiberState::Completed {
        conn.prepare_cached("DELETE FROM snapshots WHERE fiber = ?1")?.execute([seq])?;
    } else {
        claims::release_one(conn, seq)?;
    }
    if !waited_for {
        return Ok(Some(end));
    }
    let waiting: Vec<Seq> = conn
        .prepare_cached("DELETE FROM joins WHERE child = ?1 RETURNING fiber")?
        .query_map([seq], |r| r.get(0))?
        .collect::<Result<_, _>>()?;
    for fiber in waiting {
        let others: bool = conn
            .prepare_cached(
                "SELECT EXISTS (SELECT 1 FROM joins WHERE fiber = ?1)
                        AND NOT EXISTS (SELECT 1 FROM waits WHERE fiber = ?1 AND any_join)",
            )?
            .query_row([fiber], |r| r.get(0))?;
        if !others {
            notices.ready.extend(wake(conn, fiber, now_ms)?);
        }
    }
    Ok(Some(end))
}

/// Makes a waiting fiber ready.
pub(super) fn wake(conn: &Connection, seq: Seq, now_ms: i64) -> rusqlite::Result<Option<Runnable>> {
    conn.prepare_cached("DELETE FROM waits WHERE fiber = ?1")?.execute([seq])?;
    conn.prepare_cached("DELETE FROM joins WHERE fiber = ?1")?.execute([seq])?;
    let woken = conn
        .prepare_cached("UPDATE fibers SET state = 'pending', changed_ms = ?2 WHERE seq = ?1 AND state = 'waiting'")?
        .execute(params![seq, now_ms])?;
    if woken == 0 { Ok(None) } else { runnable(conn, seq) }
}

/// Suspends a claimed fiber; one that was cancelled ends.
pub(super) fn suspend(
    conn: &Conn,
    claim: Claim,
    how: &Suspension,
    now_ms: i64,
    notices: &mut CommitNotices,
) -> rusqlite::Result<Option<End>> {
    claims::check(conn, claim)?;
    if is_cancelled(conn, claim.fiber)? {
        return end(conn, claim, &End::Cancelled(String::new()), &[], &[], now_ms, notices).map(Some);
    }
    recent_ops::fold_readable(conn, claim.fiber)?;
    let (state, reason) = match how {
        // The next open passes all of them to their hooks.
        Suspension::Interrupted(why) | Suspension::HookFailed { reason: why, .. } => ("interrupted", why),
        Suspension::Parked(why) => ("parked", why),
    };
    // A fiber that is parked again at every open for the same reason costs no write.
    conn.prepare_cached(
        "UPDATE fibers SET state = ?2, reason = ?3, changed_ms = ?4
         WHERE seq = ?1 AND (state <> ?2 OR reason IS NOT ?3) AND finished_ms IS NULL",
    )?
    .execute(params![claim.fiber, state, reason, now_ms])?;
    claims::release_one(conn, claim.fiber)?;
    Ok(None)
}

pub(super) fn resolve(
    conn: &Conn,
    id: &str,
    how: &End,
    now_ms: i64,
    notices: &mut CommitNotices,
) -> rusqlite::Result<CommandResult<(FiberRow, End)>> {
    let Some(row) = find(conn, &FiberRef::Id(id.to_owned()))? else { return Ok(CommandResult::NotFound) };
    if !matches!(row.state, FiberState::Interrupted | FiberState::Parked) {
        return Ok(CommandResult::InvalidState(row.state));
    }
    claims::void(conn, row.seq)?;
    Ok(match finish(conn, row.seq, how, &[], now_ms, notices)? {
        Some(end) => CommandResult::Done((row, end)),
        None => CommandResult::InvalidState(row.state),
    })
}

pub(super) fn cancel(
    conn: &Conn,
    id: &str,
    reason: &str,
    now_ms: i64,
    notices: &mut CommitNotices,
) -> rusqlite::Result<CommandResult<Vec<Runnable>>> {
    let Some(row) = find(conn, &FiberRef::Id(id.to_owned()))? else { return Ok(CommandResult::NotFound) };
    if row.state.is_final() {
        return Ok(CommandResult::InvalidState(row.state));
    }
    let sql = format!(
        "WITH RECURSIVE below (seq) AS (
             SELECT ?1 UNION SELECT f.seq FROM below b JOIN fibers f ON f.parent = b.seq AND f.parent IS NOT NULL)
         {RUNNABLE} WHERE f.seq IN (SELECT seq FROM below) AND f.finished_ms IS NULL ORDER BY f.seq"
    );
    let below = conn.prepare_cached(&sql)?.query_map([row.seq], runnable_row)?.collect::<Result<Vec<_>, _>>()?;
    let mut ended = CommitNotices::default();
    for fiber in &below {
        conn.prepare_cached("UPDATE fibers SET cancel = coalesce(cancel, ?2) WHERE seq = ?1")?.execute(params![fiber.seq, reason])?;
        if fiber.state != FiberState::Running {
            claims::void(conn, fiber.seq)?;
            finish(conn, fiber.seq, &End::Cancelled(reason.to_owned()), &[], now_ms, &mut ended)?;
        }
    }
    // One of them may have waited for another.
    notices.ready.extend(ended.ready.into_iter().filter(|woken| below.binary_search_by_key(&woken.seq, |fiber| fiber.seq).is_err()));
    notices.unread.append(&mut ended.unread);
    Ok(CommandResult::Done(below))
}

pub(super) fn restart(
    conn: &Connection,
    id: &str,
    how: Restart,
    now_ms: i64,
    notices: &mut CommitNotices,
) -> rusqlite::Result<CommandResult<RestartResult>> {
    let Some(row) = find(conn, &FiberRef::Id(id.to_owned()))? else { return Ok(CommandResult::NotFound) };
    let stopped = matches!(row.state, FiberState::Failed | FiberState::Parked | FiberState::Interrupted);
    let cancelled = row.state == FiberState::Cancelled && how == Restart::FromStart;
    if !(stopped || cancelled) {
        return Ok(CommandResult::InvalidState(row.state));
    }
    if how == Restart::FromStart {
        if let Some(op) = forget_progress(conn, row.seq)? {
            return Ok(CommandResult::Done(RestartResult::InDoubt(op)));
        }
        if cancelled {
            // Its end has reported them as unread.
            conn.prepare_cached("DELETE FROM messages WHERE fiber = ?1")?.execute([row.seq])?;
        }
        topics::forget_ids(conn, row.seq)?;
    } else if row.state == FiberState::Failed {
        ops::forget_attempts(conn, row.seq)?;
    }
    notices.ready.extend(make_ready(conn, row.seq, now_ms)?);
    Ok(CommandResult::Done(RestartResult::Ready))
}

pub(super) fn restart_claimed(
    conn: &Connection,
    claim: Claim,
    now_ms: i64,
    notices: &mut CommitNotices,
) -> rusqlite::Result<RestartResult> {
    claims::check(conn, claim)?;
    if let Some(op) = forget_progress(conn, claim.fiber)? {
        return Ok(RestartResult::InDoubt(op));
    }
    topics::forget_ids(conn, claim.fiber)?;
    notices.ready.extend(make_ready(conn, claim.fiber, now_ms)?);
    Ok(RestartResult::Ready)
}

/// Resets a fiber to its start. If an operation is in doubt, returns it and changes nothing.
fn forget_progress(conn: &Connection, seq: Seq) -> rusqlite::Result<Option<String>> {
    recent_ops::fold(conn, seq)?;
    if let Some(op) = ops::in_doubt(conn, seq)? {
        return Ok(Some(op));
    }
    ops::forget_temporary(conn, seq, checkpoints(conn, seq)?)?;
    // The counts continue, so that the operations of the new run have other ids.
    conn.prepare_cached("UPDATE fibers SET restarts = restarts + 1 WHERE seq = ?1")?.execute([seq])?;
    conn.prepare_cached(
        "UPDATE snapshots SET data = NULL, at = NULL, layout = NULL, callees = NULL, number = number + 1 WHERE fiber = ?1",
    )?
    .execute([seq])?;
    for table in ["branch_results", "parts", "closed_topics"] {
        conn.prepare_cached(&format!("DELETE FROM {table} WHERE fiber = ?1"))?.execute([seq])?;
    }
    streams::delete_logs(conn, seq)?;
    Ok(None)
}

/// Makes a stopped fiber ready, and ends its claims. Its cancellation is forgotten if it has ended
/// by it, but not if it was parked before it could.
pub(super) fn make_ready(conn: &Connection, seq: Seq, now_ms: i64) -> rusqlite::Result<Option<Runnable>> {
    conn.prepare_cached(
        "UPDATE fibers SET cancel = CASE state WHEN 'cancelled' THEN NULL ELSE cancel END,
                           state = 'pending', reason = NULL, changed_ms = ?2, finished_ms = NULL WHERE seq = ?1",
    )?
    .execute(params![seq, now_ms])?;
    conn.prepare_cached("UPDATE snapshots SET deaths = 0, worker = NULL, epoch = min(epoch, 9223372036854775806) + 1 WHERE fiber = ?1")?
        .execute([seq])?;
    runnable(conn, seq)
}
