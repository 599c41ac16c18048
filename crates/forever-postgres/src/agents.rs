//! Agents and schedules.
use forever_store::{
    AgentHold, AgentId, AgentRow, FarSchedules, KeepAliveRow, NewScheduleRow, RunResult, ScheduleRow, ScheduleTiming, WorkerId,
    is_same_payload,
};

use crate::notify::CHANGED;
use crate::sql::{Done, Fail, Row, Tx, args};
use crate::workers::ALIVE;

/// Condition: a schedule that may be claimed, if its class is among those in `$1`.
const WAITS: &str = "next_ms IS NOT NULL AND running_ms IS NULL AND class = ANY ($1)";

/// Condition: no other worker has the agent of a schedule in memory; `$4` is the worker that asks.
const NOT_ELSEWHERE: &str = "NOT EXISTS (SELECT 1 FROM @agent_holders h WHERE h.class = s.class AND h.name = s.agent AND h.worker <> $4)";

/// Condition: a schedule that is due later than its timing allows, because it was computed while
/// the clock was ahead. `$1` is now in ms, `$2` the tolerance in ms.
const FAR: &str = "next_ms > $1 + $2 AND running_ms IS NULL AND (
    kind = 'every' AND attempts = 0 AND every_ms > 0 AND due_ms > $1 + every_ms + $2
    OR kind = 'delay' AND attempts = 0 AND created_ms > $1 + $2
    OR attempts > 0 AND next_ms > due_ms)";

/// Whether a schedule whose runs have died before is running; such schedules run one at a time.
const SUSPECT_RUNS: &str = "EXISTS (SELECT 1 FROM @schedules WHERE running_ms IS NOT NULL AND deaths > 1)";

pub(crate) async fn load_state(tx: &Tx, agent: &AgentId) -> Done<Option<String>> {
    let row = tx.row("SELECT state FROM @agents WHERE class = $1 AND name = $2", args![&agent.class, &agent.name]).await?;
    row.map_or(Ok(None), |row| row.text_opt("state"))
}

pub(crate) async fn save_state(tx: &Tx, agent: &AgentId, state: &str, hold: Option<AgentHold>, now_ms: i64) -> Done<()> {
    let save = "ON CONFLICT (class, name) DO UPDATE SET state = $3, changed_ms = $4, version = @agents.version + 1";
    let Some(hold) = hold else {
        tx.run(
            &format!("INSERT INTO @agents (class, name, state, changed_ms) VALUES ($1, $2, $3, $4) {save}"),
            args![&agent.class, &agent.name, state, now_ms],
        )
        .await?;
        tx.announce(CHANGED);
        return Ok(());
    };
    // The lock keeps the hold until the state is stored.
    let sql = format!(
        "WITH held AS (SELECT 1 FROM @agent_holders WHERE class = $1 AND name = $2 AND worker = $5 AND epoch = $6 FOR SHARE)
         INSERT INTO @agents (class, name, state, changed_ms) SELECT $1, $2, $3, $4 FROM held {save}"
    );
    if tx.run(&sql, args![&agent.class, &agent.name, state, now_ms, hold.worker, hold.epoch]).await? == 0 {
        return Err(Fail::Refused(hold.lost(agent)));
    }
    tx.announce(CHANGED);
    Ok(())
}

pub(crate) async fn keep_awake(tx: &Tx, agent: &AgentId, now_ms: i64, worker: WorkerId) -> Done<()> {
    tx.run(
        "INSERT INTO @agents (class, name, heartbeat_ms, changed_ms, worker) VALUES ($1, $2, $3, $3, $4)
         ON CONFLICT (class, name) DO UPDATE SET heartbeat_ms = $3, changed_ms = $3, worker = $4",
        args![&agent.class, &agent.name, now_ms, worker],
    )
    .await
    .map(drop)
}

pub(crate) async fn renew_keep_alives(tx: &Tx, agents: &[AgentId], now_ms: i64) -> Done<()> {
    let (classes, names): (Vec<&str>, Vec<&str>) = agents.iter().map(|agent| (agent.class.as_str(), agent.name.as_str())).unzip();
    tx.run(
        "UPDATE @agents a SET heartbeat_ms = $3 FROM unnest($1::text[], $2::text[]) u (class, name)
         WHERE a.class = u.class AND a.name = u.name AND a.heartbeat_ms IS NOT NULL",
        args![classes, names, now_ms],
    )
    .await
    .map(drop)
}

pub(crate) async fn end_keep_alive(tx: &Tx, agent: &AgentId) -> Done<()> {
    let agent = args![&agent.class, &agent.name];
    tx.run("DELETE FROM @agents WHERE class = $1 AND name = $2 AND state IS NULL", agent).await?;
    tx.run("UPDATE @agents SET heartbeat_ms = NULL, deaths = 0, worker = NULL WHERE class = $1 AND name = $2", agent).await.map(drop)
}

/// The agents that are kept awake, without those that another living worker keeps awake.
pub(crate) async fn awake_agents(tx: &Tx, worker: WorkerId) -> Done<Vec<KeepAliveRow>> {
    let sql = format!(
        "SELECT class, name, deaths FROM @agents a WHERE heartbeat_ms IS NOT NULL
         AND NOT EXISTS (SELECT 1 FROM @workers w WHERE w.id = a.worker AND w.id <> $1 AND {ALIVE})
         ORDER BY heartbeat_ms, class COLLATE \"C\", name COLLATE \"C\""
    );
    let row = |row: &Row| {
        Ok(KeepAliveRow { agent: AgentId { class: row.text("class")?, name: row.text("name")? }, deaths: row.count("deaths")? })
    };
    tx.rows(&sql, args![worker]).await?.iter().map(row).collect()
}

pub(crate) async fn count_wake_attempt(tx: &Tx, agent: &AgentId, worker: WorkerId) -> Done<()> {
    tx.run(
        "UPDATE @agents SET deaths = least(deaths, 4294967294) + 1, worker = $3 WHERE class = $1 AND name = $2",
        args![&agent.class, &agent.name, worker],
    )
    .await
    .map(drop)
}

pub(crate) async fn reset_wake_attempts(tx: &Tx, agent: &AgentId) -> Done<()> {
    tx.run("UPDATE @agents SET deaths = 0 WHERE class = $1 AND name = $2 AND deaths > 0", args![&agent.class, &agent.name]).await.map(drop)
}

/// Takes back the deaths that the worker counted in advance, when it closes cleanly, and releases
/// its agents. Rows that another transaction has locked are left.
pub(crate) async fn close(tx: &Tx, worker: WorkerId) -> Done<()> {
    tx.run(
        "WITH released AS (
             DELETE FROM @agent_holders WHERE (class, name) IN (
                 SELECT class, name FROM @agent_holders WHERE worker = $1 FOR UPDATE SKIP LOCKED)),
         stopped AS (
             UPDATE @schedules SET running_ms = NULL, worker = NULL, deaths = greatest(deaths - 1, 0) WHERE seq IN (
                 SELECT seq FROM @schedules WHERE running_ms IS NOT NULL AND worker = $1 FOR UPDATE SKIP LOCKED))
         UPDATE @agents SET deaths = 0 WHERE (class, name) IN (
             SELECT class, name FROM @agents WHERE heartbeat_ms IS NOT NULL AND deaths > 0 AND worker = $1 FOR UPDATE SKIP LOCKED)",
        args![worker],
    )
    .await
    .map(drop)
}

/// Query for what [`close`] has left of the worker `$1`.
pub(crate) const LEFT_AT_CLOSE: &str = "SELECT 1 FROM @agent_holders WHERE worker = $1
    UNION ALL SELECT 1 FROM @schedules WHERE running_ms IS NOT NULL AND worker = $1
    UNION ALL SELECT 1 FROM @agents WHERE heartbeat_ms IS NOT NULL AND deaths > 0 AND worker = $1";

fn schedule(row: &Row) -> Done<ScheduleRow> {
    let timing = match row.text("kind")?.as_str() {
        "delay" => ScheduleTiming::Delay,
        "time" => ScheduleTiming::Time,
        "cron" => ScheduleTiming::Cron(row.text_opt("cron")?.unwrap_or_default()),
        _ => ScheduleTiming::Every(row.int_opt("every_ms")?.unwrap_or(0)),
    };
    Ok(ScheduleRow {
        id: row.text("id")?,
        agent: AgentId { class: row.text("class")?, name: row.text("agent")? },
        name: row.text("name")?,
        payload: row.text("payload")?,
        timing,
        due_ms: row.int("due_ms")?,
        next_ms: row.int_opt("next_ms")?,
        running_ms: row.int_opt("running_ms")?,
        attempts: row.count("attempts")?,
        deaths: row.count("deaths")?,
        error: row.text_opt("error")?,
        created_ms: row.int("created_ms")?,
    })
}

pub(crate) async fn schedules(tx: &Tx, agent: &AgentId) -> Done<Vec<ScheduleRow>> {
    let sql = "SELECT * FROM @schedules WHERE class = $1 AND agent = $2 ORDER BY seq";
    tx.rows(sql, args![&agent.class, &agent.name]).await?.iter().map(schedule).collect()
}

/// Agents that have a state or are kept awake, behind one.
pub(crate) async fn list(tx: &Tx, after: Option<&AgentId>, limit: u32) -> Done<Vec<AgentRow>> {
    let (class, name) = after.map(|agent| (agent.class.as_str(), agent.name.as_str())).unwrap_or_default();
    let sql = "SELECT class, name, state, heartbeat_ms, deaths, changed_ms FROM @agents WHERE (class COLLATE \"C\", name COLLATE \"C\") > ($1, $2)
               ORDER BY class COLLATE \"C\", name COLLATE \"C\" LIMIT $3";
    let row = |row: &Row| {
        Ok(AgentRow {
            agent: AgentId { class: row.text("class")?, name: row.text("name")? },
            state: row.text_opt("state")?,
            awake_ms: row.int_opt("heartbeat_ms")?,
            deaths: row.count("deaths")?,
            changed_ms: row.int("changed_ms")?,
        })
    };
    tx.rows(sql, args![class, name, limit]).await?.iter().map(row).collect()
}

/// The schedules of all agents behind one.
pub(crate) async fn all_schedules(tx: &Tx, after: Option<&str>, limit: u32) -> Done<Vec<ScheduleRow>> {
    let sql = "SELECT * FROM @schedules WHERE seq > coalesce((SELECT seq FROM @schedules WHERE id = $1), 0) ORDER BY seq LIMIT $2";
    tx.rows(sql, args![after, limit]).await?.iter().map(schedule).collect()
}

pub(crate) async fn cancel_schedule(tx: &Tx, agent: &AgentId, id: &str) -> Done<bool> {
    let sql = "DELETE FROM @schedules WHERE class = $1 AND agent = $2 AND id = $3";
    tx.run(sql, args![&agent.class, &agent.name, id]).await.map(|gone| gone == 1)
}

pub(crate) async fn add(tx: &Tx, new: &NewScheduleRow) -> Done<(ScheduleRow, bool)> {
    if new.idempotent {
        // Locks the agent's name, so that two transactions that add the same schedule run one after
        // the other.
        tx.rows(
            "SELECT pg_advisory_xact_lock(hashtextextended(concat_ws(chr(31), '@schedules', $1, $2, $3), 0))::text AS locked",
            args![&new.agent.class, &new.agent.name, &new.name],
        )
        .await?;
        if let Some((seq, there)) = like(tx, new).await? {
            return Ok((renew(tx, seq, there, new).await?, false));
        }
    }
    let (cron, every_ms) = match &new.timing {
        ScheduleTiming::Cron(cron) => (Some(cron), None),
        ScheduleTiming::Every(every_ms) => (None, Some(*every_ms)),
        ScheduleTiming::Delay | ScheduleTiming::Time => (None, None),
    };
    let added = tx
        .one(
            "INSERT INTO @schedules (id, class, agent, name, payload, kind, cron, every_ms, due_ms, next_ms, created_ms)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9, $10) RETURNING *",
            args![
                &new.id,
                &new.agent.class,
                &new.agent.name,
                &new.name,
                &new.payload,
                new.timing.kind(),
                cron,
                every_ms,
                new.due_ms,
                new.now_ms,
            ],
        )
        .await?;
    Ok((schedule(&added)?, true))
}

/// Finds the first schedule of the same kind, name and payload as a new one, and for cron of the
/// same pattern.
async fn like(tx: &Tx, new: &NewScheduleRow) -> Done<Option<(i64, ScheduleRow)>> {
    let rows = tx
        .rows(
            "SELECT * FROM @schedules WHERE class = $1 AND agent = $2 AND name = $3 AND kind = $4 ORDER BY seq FOR UPDATE",
            args![&new.agent.class, &new.agent.name, &new.name, new.timing.kind()],
        )
        .await?;
    for row in &rows {
        let there = schedule(row)?;
        if !new.timing.repeats() && new.begun.contains(&there.id) {
            // It is deleted when its run ends, and the new schedule must outlive it.
            continue;
        }
        let same_pattern = !matches!(new.timing, ScheduleTiming::Cron(_)) || there.timing == new.timing;
        if same_pattern && is_same_payload(&there.payload, &new.payload) {
            return Ok(Some((row.int("seq")?, there)));
        }
    }
    Ok(None)
}

/// Renews a schedule. A new interval takes effect, and a schedule that was suspended for its errors
/// is enabled again. One that was suspended for deaths stays suspended.
async fn renew(tx: &Tx, seq: i64, there: ScheduleRow, new: &NewScheduleRow) -> Done<ScheduleRow> {
    let failed = there.next_ms.is_none() && there.deaths == 0;
    if !failed && there.timing == new.timing {
        return Ok(there);
    }
    let every_ms = if let ScheduleTiming::Every(every_ms) = new.timing { Some(every_ms) } else { None };
    let renewed = tx
        .one(
            "UPDATE @schedules SET every_ms = $2, due_ms = $3, attempts = 0,
                    next_ms = CASE WHEN next_ms IS NULL AND deaths > 0 AND running_ms IS NULL THEN NULL ELSE $3 END
             WHERE seq = $1 RETURNING *",
            args![seq, every_ms, new.due_ms],
        )
        .await?;
    schedule(&renewed)
}

/// Ends the runs of workers that are gone, and those of this worker, which can only be from an
/// earlier process.
pub(crate) async fn recover(tx: &Tx, strikes: u32, worker: WorkerId) -> Done<()> {
    // Rows that another transaction has locked are left for the next search.
    let gone = format!("(worker IS NULL OR worker <> $1 AND NOT EXISTS (SELECT 1 FROM @workers w WHERE w.id = worker AND {ALIVE}))");
    for (which, locked) in [("worker = $1", ""), (&gone, "SKIP LOCKED")] {
        let sql = format!(
            "UPDATE @schedules SET running_ms = NULL, worker = NULL,
                    next_ms = CASE WHEN deaths < $2 THEN next_ms END,
                    error = CASE WHEN deaths < $2 THEN error ELSE 'the process died ' || deaths || ' times in a row while it ran' END
             WHERE seq IN (SELECT seq FROM @schedules WHERE running_ms IS NOT NULL AND {which} FOR NO KEY UPDATE {locked})"
        );
        tx.run(&sql, args![worker, strikes]).await?;
    }
    Ok(())
}

pub(crate) async fn claim(tx: &Tx, classes: &[String], now_ms: i64, limit: u32, worker: WorkerId) -> Done<Vec<ScheduleRow>> {
    let taken = async |which: &str, limit: u32| -> Done<Vec<ScheduleRow>> {
        let sql = format!(
            "UPDATE @schedules SET running_ms = $2, worker = $4, deaths = least(deaths, 4294967294) + 1
             WHERE seq IN (SELECT seq FROM @schedules s WHERE {WAITS} AND next_ms <= $2 AND {which} AND {NOT_ELSEWHERE}
                           ORDER BY next_ms, seq LIMIT $3 FOR UPDATE SKIP LOCKED)
             RETURNING *"
        );
        tx.rows(&sql, args![classes, now_ms, limit, worker]).await?.iter().map(schedule).collect()
    };
    let suspects = suspects(tx, classes, now_ms).await?;
    let mut rows = taken("deaths = 0", limit).await?;
    if suspects {
        rows.extend(taken(&format!("deaths > 0 AND NOT {SUSPECT_RUNS}"), 1).await?);
    }
    rows.sort_by_key(|row| row.next_ms);
    Ok(rows)
}

/// Whether a schedule with deaths is due. If so, takes an advisory lock until the end of the
/// transaction, so that workers that try such schedules do so one after the other.
async fn suspects(tx: &Tx, classes: &[String], now_ms: i64) -> Done<bool> {
    let sql = format!("SELECT EXISTS (SELECT 1 FROM @schedules WHERE {WAITS} AND next_ms <= $2 AND deaths > 0) AS there");
    let there = tx.one(&sql, args![classes, now_ms]).await?.flag("there")?;
    if there {
        tx.rows("SELECT pg_advisory_xact_lock(hashtextextended('@schedules', 0))::text AS locked", args![]).await?;
    }
    Ok(there)
}

/// Ends a run of this worker. One that was taken over from it is another worker's to end.
pub(crate) async fn end_run(tx: &Tx, run: &ScheduleRow, ran: &RunResult, worker: WorkerId) -> Done<()> {
    let ours = "id = $1 AND worker = $2 AND running_ms IS NOT DISTINCT FROM $3";
    if *ran == RunResult::Done {
        return tx.run(&format!("DELETE FROM @schedules WHERE {ours}"), args![&run.id, worker, run.running_ms]).await.map(drop);
    }
    let sql = format!("UPDATE @schedules SET running_ms = NULL, worker = NULL, deaths = 0 WHERE {ours}");
    if tx.run(&sql, args![&run.id, worker, run.running_ms]).await? == 0 {
        return Ok(());
    }
    let (due_ms, next_ms, attempts, error) = match ran {
        RunResult::Done => return Ok(()),
        RunResult::Next { due_ms, error } => (*due_ms, Some(*due_ms), 0, error.as_ref()),
        RunResult::Retry { next_ms, error } => (run.due_ms, Some(*next_ms), run.attempts.saturating_add(1), Some(error)),
        RunResult::Suspended { error } => (run.due_ms, None, run.attempts.saturating_add(1), Some(error)),
    };
    // A schedule that was renewed during its run keeps its new times.
    tx.run(
        "UPDATE @schedules SET due_ms = $3, next_ms = $4, attempts = $5, error = $6 WHERE id = $1 AND due_ms = $2",
        args![&run.id, run.due_ms, due_ms, next_ms, attempts, error],
    )
    .await
    .map(drop)
}

pub(crate) async fn far(tx: &Tx, now_ms: i64, slack_ms: i64) -> Done<FarSchedules> {
    let crons = tx
        .rows(
            "SELECT cron, max(next_ms) AS next_ms FROM @schedules
             WHERE next_ms > $1 + $2 AND running_ms IS NULL AND kind = 'cron' AND attempts = 0 AND cron IS NOT NULL GROUP BY cron ORDER BY cron",
            args![now_ms, slack_ms],
        )
        .await?;
    let crons = crons.iter().map(|row| Ok((row.text("cron")?, row.int("next_ms")?))).collect::<Done<_>>()?;
    let others = tx.one(&format!("SELECT EXISTS (SELECT 1 FROM @schedules WHERE {FAR}) AS there"), args![now_ms, slack_ms]).await?;
    Ok(FarSchedules { crons, others: others.flag("there")? })
}

pub(crate) async fn correct(tx: &Tx, now_ms: i64, slack_ms: i64, crons: &[(i64, String)]) -> Done<u64> {
    let mut corrected = tx
        .run(
            &format!(
                // All expressions see the row before the update.
                "UPDATE @schedules SET
                     due_ms = CASE WHEN attempts > 0 THEN due_ms WHEN kind = 'every' THEN due_ms - (due_ms - $1 - 1) / every_ms * every_ms
                                   ELSE $1 + greatest(due_ms - created_ms, 0) END,
                     next_ms = CASE WHEN attempts > 0 THEN CASE WHEN kind = 'time' THEN greatest(due_ms, $1) ELSE $1 END
                                    WHEN kind = 'every' THEN due_ms - (due_ms - $1 - 1) / every_ms * every_ms
                                    ELSE $1 + greatest(due_ms - created_ms, 0) END,
                     created_ms = CASE WHEN created_ms > $1 + $2 THEN $1 ELSE created_ms END
                 WHERE {FAR}"
            ),
            args![now_ms, slack_ms],
        )
        .await?;
    for (next_ms, pattern) in crons {
        corrected += tx
            .run(
                "UPDATE @schedules SET due_ms = $3, next_ms = $3
                 WHERE next_ms > $3 + $2 AND running_ms IS NULL AND kind = 'cron' AND attempts = 0 AND cron = $4 AND $1 < $3",
                args![now_ms, slack_ms, *next_ms, pattern],
            )
            .await?;
    }
    Ok(corrected)
}

pub(crate) async fn next(tx: &Tx, classes: &[String], worker: WorkerId) -> Done<Option<i64>> {
    let not_elsewhere = NOT_ELSEWHERE.replace("$4", "$2");
    let sql = format!(
        "SELECT next_ms FROM @schedules s WHERE {WAITS} AND (deaths = 0 OR NOT {SUSPECT_RUNS}) AND {not_elsewhere} ORDER BY next_ms LIMIT 1"
    );
    tx.row(&sql, args![classes, worker]).await?.map_or(Ok(None), |row| row.int_opt("next_ms"))
}

pub(crate) async fn unregistered_classes(tx: &Tx, classes: &[String]) -> Done<Vec<String>> {
    let sql = "SELECT class FROM (SELECT class FROM @schedules WHERE next_ms IS NOT NULL
                                  UNION SELECT class FROM @agents WHERE heartbeat_ms IS NOT NULL) c
               WHERE class <> ALL ($1) ORDER BY class COLLATE \"C\"";
    tx.rows(sql, args![classes]).await?.iter().map(|row| row.text("class")).collect()
}
