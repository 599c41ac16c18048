//! What workers need to know of each other: changes, declined fibers, lists of workers, and
//! holders of agents.
use forever_store::{
    AgentHold, AgentId, Changes, Claim, DeclineResult, End, FiberState, HoldResult, Seq, Suspension, TurnProgress, Watch, WorkerId,
    WorkerRow,
};

use crate::notify::READY;
use crate::sql::{Done, Row, Tx, args};
use crate::workers::ALIVE;
use crate::{chat, claims, fibers, requests};

/// Condition: the worker `$1` has declined fiber `f` with snapshot `s`, and another worker that
/// is alive has not.
pub(crate) fn left_to_others() -> String {
    let declined = "SELECT 1 FROM @declined d WHERE d.fiber = f.seq AND d.number = s.number AND d.worker";
    format!(
        "(EXISTS ({declined} = $1)
          AND EXISTS (SELECT 1 FROM @workers w WHERE w.id <> $1 AND NOT EXISTS ({declined} = w.id) AND {ALIVE}))"
    )
}

pub(crate) async fn decline(tx: &Tx, seen: Claim, worker: WorkerId, reason: &str, interrupted: bool, now_ms: i64) -> Done<DeclineResult> {
    claims::hold(tx, seen).await?;
    let seq = seen.fiber;
    if fibers::is_cancelled(tx, seq).await? {
        let end = fibers::finish(tx, seq, &End::Cancelled(String::new()), &[], now_ms).await?;
        return end.map(DeclineResult::Ended).ok_or_else(|| claims::lost(seen));
    }
    // One statement after the other: the locks above make this order the order of all decliners.
    tx.run(
        "INSERT INTO @declined AS d (fiber, worker, number)
         SELECT s.fiber, w.id, s.number FROM @snapshots s, @workers w WHERE s.fiber = $1 AND w.id = $2
         ON CONFLICT (fiber, worker) DO UPDATE SET number = excluded.number",
        args![seq, worker],
    )
    .await?;
    let look = tx
        .one(
            &format!("SELECT f.state, {} AS others FROM @fibers f JOIN @snapshots s ON s.fiber = f.seq WHERE f.seq = $2", left_to_others()),
            args![worker, seq],
        )
        .await?;
    let (state, others) = (look.word::<FiberState>("state")?, look.flag("others")?);
    match (state, others) {
        // A worker that can resume it claims it as it is.
        (FiberState::Parked, true) => Ok(DeclineResult::Parked),
        (_, true) => {
            // Only interrupted fibers have a reason.
            tx.run(
                "UPDATE @fibers SET state = 'pending', changed_ms = $2,
                        reason = CASE WHEN state <> 'running' THEN reason WHEN $3 THEN 'a worker could not resume it' END
                 WHERE seq = $1 AND state IN ('running', 'interrupted')",
                args![seq, now_ms, interrupted],
            )
            .await?;
            claims::release(tx, &[seq]).await?;
            tx.announce(READY);
            Ok(DeclineResult::Left)
        }
        (_, false) => {
            let parked = fibers::suspend(tx, seen, &Suspension::Parked(reason.to_owned()), now_ms).await?;
            Ok(parked.map_or(DeclineResult::Parked, DeclineResult::Ended))
        }
    }
}

pub(crate) async fn changes(tx: &Tx, watch: &Watch) -> Done<Changes> {
    let mut changes = Changes::default();
    if !watch.fibers.is_empty() {
        let sql = "SELECT id FROM unnest($1) id WHERE NOT EXISTS (
                       SELECT 1 FROM @fibers f WHERE f.id = id.id AND f.state IN ('pending', 'running', 'waiting'))";
        changes.stopped = texts(&tx.rows(sql, args![&watch.fibers]).await?, "id")?;
    }
    if !watch.receivers.is_empty() {
        let sql = "SELECT f.id FROM @fibers f WHERE f.id = ANY ($1) AND EXISTS (SELECT 1 FROM @messages m WHERE m.fiber = f.seq)";
        changes.received = texts(&tx.rows(sql, args![&watch.receivers]).await?, "id")?;
    }
    let cancelled = "SELECT f.id, f.cancel FROM @fibers f JOIN @snapshots s ON s.fiber = f.seq
                     WHERE f.cancel IS NOT NULL AND f.finished_ms IS NULL AND s.worker = $1";
    let row = |row: &Row| Ok((row.text("id")?, row.text("cancel")?));
    changes.cancelled = tx.rows(cancelled, args![watch.worker]).await?.iter().map(row).collect::<Done<_>>()?;
    if !watch.turns.is_empty() {
        changes.turns = turns(tx, &watch.turns).await?;
    }
    changes.chats = versions(tx, "@chats", "agent", &watch.chats).await?;
    changes.agents = versions(tx, "@agents", "name", &watch.agents).await?;
    if !watch.requests.is_empty() {
        changes.requests = requests::ended(tx, &watch.requests).await?;
    }
    changes.requested = requests::requested(tx, watch.worker).await?;
    let listening = "SELECT coalesce(bool_or(listens AND id <> $1), FALSE) AS others, coalesce(bool_or(listens AND id = $1), FALSE) AS this
                     FROM @workers";
    let listening = tx.one(listening, args![watch.worker]).await?;
    (changes.listeners, changes.listens) = (listening.flag("others")?, listening.flag("this")?);
    Ok(changes)
}

async fn turns(tx: &Tx, turns: &[i64]) -> Done<Vec<TurnProgress>> {
    // Settled turns first: what is read of their logs afterwards is all of them.
    let rows = tx.rows("SELECT seq, state, reason, error, cancel FROM @turns WHERE seq = ANY ($1)", args![turns]).await?;
    let mut progress = Vec::with_capacity(rows.len());
    for row in rows {
        let turn = row.int("seq")?;
        let last = chat::chunks(tx, turn, u64::MAX >> 1, 1).await?;
        progress.push(TurnProgress {
            turn,
            chunks: last.last().map_or(0, |chunks| chunks.first + chunks.count),
            state: row.word("state")?,
            reason: row.text_opt("reason")?,
            error: row.text_opt("error")?,
            cancel: row.text_opt("cancel")?,
        });
    }
    Ok(progress)
}

async fn versions(tx: &Tx, table: &str, name: &str, agents: &[AgentId]) -> Done<Vec<(AgentId, i64)>> {
    if agents.is_empty() {
        return Ok(Vec::new());
    }
    let (classes, names): (Vec<&str>, Vec<&str>) = agents.iter().map(|agent| (agent.class.as_str(), agent.name.as_str())).unzip();
    let sql = format!(
        "SELECT t.class, t.{name} AS name, t.version FROM unnest($1::text[], $2::text[]) u (class, name)
         JOIN {table} t ON t.class = u.class AND t.{name} = u.name"
    );
    let row = |row: &Row| Ok((AgentId { class: row.text("class")?, name: row.text("name")? }, row.int("version")?));
    tx.rows(&sql, args![classes, names]).await?.iter().map(row).collect()
}

fn texts(rows: &[Row], column: &str) -> Done<Vec<String>> {
    rows.iter().map(|row| row.text(column)).collect()
}

fn worker_row(row: &Row) -> Done<WorkerRow> {
    Ok(WorkerRow {
        id: row.int("id")?,
        process: row.int_opt("process")?.and_then(|process| u32::try_from(process).ok()),
        address: row.text_opt("address")?,
        joined_ms: row.int("joined_ms")?,
        silent_ms: row.int("silent_ms")?.max(0),
        lease_ms: row.int("lease_ms")?,
        shows_life: row.flag("shows_life")?,
        running: row.number("running")?,
    })
}

const WORKER: &str = "SELECT w.id, w.process, w.address, w.joined_ms, w.lease_ms, w.lock IS NOT NULL AS shows_life,
        (extract(epoch FROM clock_timestamp() - w.seen) * 1000)::bigint AS silent_ms";

pub(crate) async fn workers(tx: &Tx) -> Done<Vec<WorkerRow>> {
    let sql = format!(
        "{WORKER}, coalesce(r.running, 0) AS running FROM @workers w
         LEFT JOIN (SELECT s.worker, count(*) AS running FROM @fibers f JOIN @snapshots s ON s.fiber = f.seq
                    WHERE f.state = 'running' AND f.state <> 'completed' GROUP BY s.worker) r ON r.worker = w.id
         WHERE {ALIVE} ORDER BY w.id"
    );
    tx.rows(&sql, args![]).await?.iter().map(worker_row).collect()
}

pub(crate) async fn hold_agent(tx: &Tx, agent: &AgentId, worker: WorkerId) -> Done<HoldResult> {
    // The row of a worker that counts as dead is deleted by the take-over, and the hold with it.
    let hold = format!(
        "INSERT INTO @agent_holders AS h (class, name, worker) SELECT $1, $2, id FROM @workers WHERE id = $3
         ON CONFLICT (class, name) DO UPDATE
         SET worker = $3, epoch = CASE WHEN h.worker = $3 THEN h.epoch ELSE excluded.epoch END
         WHERE h.worker = $3 OR NOT EXISTS (SELECT 1 FROM @workers w WHERE w.id = h.worker AND {ALIVE})
         RETURNING epoch"
    );
    let holder = format!(
        "{WORKER}, 0::bigint AS running FROM @agent_holders h JOIN @workers w ON w.id = h.worker WHERE h.class = $1 AND h.name = $2"
    );
    // A holder that lets go in between is neither in the way nor found.
    for _ in 0..3 {
        if let Some(held) = tx.row(&hold, args![&agent.class, &agent.name, worker]).await? {
            return Ok(HoldResult::Held(AgentHold { worker, epoch: held.int("epoch")? }));
        }
        if let Some(row) = tx.row(&holder, args![&agent.class, &agent.name]).await? {
            return worker_row(&row).map(HoldResult::Elsewhere);
        }
    }
    crate::sql::refused(format!("worker {worker} is not registered at this moment, or holders of agent `{agent}` change"))
}

pub(crate) async fn release_agent(tx: &Tx, agent: &AgentId, worker: WorkerId) -> Done<()> {
    tx.run("DELETE FROM @agent_holders WHERE class = $1 AND name = $2 AND worker = $3", args![&agent.class, &agent.name, worker])
        .await
        .map(drop)
}

/// Condition: an interrupted fiber that its worker would have tried again by now. That worker has
/// died between two tries.
const ABANDONED: &str = "f.state = 'interrupted' AND NOT f.closure AND (f.agent IS NULL OR f.name LIKE 'forever.%')
    AND f.changed_ms < (extract(epoch FROM clock_timestamp()) * 1000)::bigint - 600000";

/// Condition: a fiber whose recovery hook has failed in a worker that is gone, or that no longer
/// has the agent because `$1` holds it.
const HOOK_FAILED: &str = "f.state = 'interrupted' AND f.hook_worker IS NOT NULL AND f.hook_worker <> $1
    AND (NOT EXISTS (SELECT 1 FROM @workers w WHERE w.id = f.hook_worker)
         OR EXISTS (SELECT 1 FROM @agent_holders h WHERE h.class = f.class AND h.name = f.agent AND h.worker = $1))";

/// The fibers that are ready and that no worker has claimed, without those that `worker` leaves
/// to others.
pub(crate) async fn ready(tx: &Tx, after: Seq, limit: u32, worker: WorkerId) -> Done<Vec<forever_store::Runnable>> {
    let of =
        |which: &str| format!("({} WHERE f.state <> 'completed' AND {which} AND f.seq > $2 ORDER BY f.seq LIMIT $3)", fibers::RUNNABLE);
    // The hook of an agent decides where the agent is.
    let elsewhere = "f.reason IS NOT NULL AND f.agent IS NOT NULL AND f.name NOT LIKE 'forever.%' AND EXISTS (
        SELECT 1 FROM @agent_holders h WHERE h.class = f.class AND h.name = f.agent AND h.worker <> $1)";
    let pending = of(&format!("f.state = 'pending' AND NOT {} AND NOT ({elsewhere})", left_to_others()));
    let hook_failed = of(&format!("{HOOK_FAILED} AND NOT ({elsewhere})"));
    let sql = format!("{pending} UNION ALL {hook_failed} UNION ALL {} ORDER BY 1 LIMIT $3", of(ABANDONED));
    tx.rows(&sql, args![worker, after, limit]).await?.iter().map(fibers::runnable_row).collect()
}
