//! The statements behind the store's operations on agents and schedules.
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::job::Scope;
use super::store::Sqlite;
use crate::error::Result;
use crate::future::BoxFuture;
use crate::{AgentHold, AgentId, AgentRow, AgentStore, FarSchedules, KeepAliveRow, NewScheduleRow, RunResult, ScheduleRow, ScheduleTiming};

/// A schedule that may be claimed, if its class is among the ones in the JSON array `?1`.
const WAITS: &str = "next_ms IS NOT NULL AND running_ms IS NULL AND +class IN (SELECT value FROM json_each(?1))";

/// A schedule that is due implausibly late: `?1` is now, `?2` the tolerance.
const FAR: &str = "next_ms > ?1 + ?2 AND running_ms IS NULL AND (
    kind = 'every' AND attempts = 0 AND every_ms > 0 AND due_ms > ?1 + every_ms + ?2
    OR kind = 'delay' AND attempts = 0 AND created_ms > ?1 + ?2
    OR attempts > 0 AND next_ms > due_ms)";

/// Whether a schedule with deaths runs, which it does alone.
const SUSPECT_RUNS: &str = "EXISTS (SELECT 1 FROM schedules WHERE running_ms IS NOT NULL AND deaths > 1)";

impl AgentStore for Sqlite {
    fn load_state(&self, agent: AgentId) -> BoxFuture<'_, Result<Option<String>>> {
        Box::pin(self.read("load the state of an agent", move |c| {
            c.prepare_cached("SELECT state FROM agents WHERE class = ?1 AND name = ?2")?
                .query_row(params![agent.class, agent.name], |row| row.get(0))
                .optional()
                .map(Option::flatten)
        }))
    }

    fn save_state(&self, agent: AgentId, state: String, _hold: Option<AgentHold>, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write("store the state of an agent", Scope::One, move |c| {
            c.prepare_cached(
                "INSERT INTO agents (class, name, state, changed_ms) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT DO UPDATE SET state = ?3, changed_ms = ?4",
            )?
            .execute(params![agent.class, agent.name, state, now_ms])
            .map(drop)
        }))
    }

    fn keep_awake(&self, agent: AgentId, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write("store that an agent is kept awake", Scope::One, move |c| {
            c.prepare_cached(
                "INSERT INTO agents (class, name, heartbeat_ms, changed_ms) VALUES (?1, ?2, ?3, ?3)
                 ON CONFLICT DO UPDATE SET heartbeat_ms = ?3, changed_ms = ?3",
            )?
            .execute(params![agent.class, agent.name, now_ms])
            .map(drop)
        }))
    }

    fn renew_keep_alives(&self, agents: Vec<AgentId>, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write("store that agents are kept awake", Scope::Many, move |c| {
            let mut update =
                c.prepare_cached("UPDATE agents SET heartbeat_ms = ?3 WHERE class = ?1 AND name = ?2 AND heartbeat_ms IS NOT NULL")?;
            agents.iter().try_for_each(|agent| update.execute(params![agent.class, agent.name, now_ms]).map(drop))
        }))
    }

    fn end_keep_alive(&self, agent: AgentId) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write("store that an agent may sleep", Scope::Many, move |c| {
            c.prepare_cached("DELETE FROM agents WHERE class = ?1 AND name = ?2 AND state IS NULL")?
                .execute(params![agent.class, agent.name])?;
            c.prepare_cached("UPDATE agents SET heartbeat_ms = NULL, deaths = 0 WHERE class = ?1 AND name = ?2")?
                .execute(params![agent.class, agent.name])
                .map(drop)
        }))
    }

    fn awake_agents(&self) -> BoxFuture<'_, Result<Vec<KeepAliveRow>>> {
        Box::pin(self.read("list the agents that were left awake", |c| {
            c.prepare_cached("SELECT class, name, deaths FROM agents WHERE heartbeat_ms IS NOT NULL ORDER BY heartbeat_ms, class, name")?
                .query_map((), |row| {
                    let agent = AgentId { class: text(row, "class")?, name: text(row, "name")? };
                    Ok(KeepAliveRow { agent, deaths: row.get("deaths").unwrap_or(0) })
                })?
                .collect()
        }))
    }

    fn count_wake_attempt(&self, agent: AgentId) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write("count the waking of an agent", Scope::One, move |c| {
            c.prepare_cached("UPDATE agents SET deaths = min(deaths, 4294967294) + 1 WHERE class = ?1 AND name = ?2")?
                .execute(params![agent.class, agent.name])
                .map(drop)
        }))
    }

    fn reset_wake_attempts(&self, agent: AgentId) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write("store that an agent has woken", Scope::One, move |c| {
            c.prepare_cached("UPDATE agents SET deaths = 0 WHERE class = ?1 AND name = ?2 AND deaths > 0")?
                .execute(params![agent.class, agent.name])
                .map(drop)
        }))
    }

    fn add_schedule(&self, new: NewScheduleRow) -> BoxFuture<'_, Result<(ScheduleRow, bool)>> {
        Box::pin(self.write("store a schedule", Scope::Many, move |c| add(c, &new)))
    }

    fn schedules(&self, agent: AgentId) -> BoxFuture<'_, Result<Vec<ScheduleRow>>> {
        Box::pin(self.read("list schedules", move |c| {
            c.prepare_cached("SELECT * FROM schedules WHERE class = ?1 AND agent = ?2 ORDER BY seq")?
                .query_map(params![agent.class, agent.name], row)?
                .collect()
        }))
    }

    fn cancel_schedule(&self, agent: AgentId, id: String) -> BoxFuture<'_, Result<bool>> {
        Box::pin(self.write("cancel a schedule", Scope::One, move |c| {
            c.prepare_cached("DELETE FROM schedules WHERE class = ?1 AND agent = ?2 AND id = ?3")?
                .execute(params![agent.class, agent.name, id])
                .map(|gone| gone == 1)
        }))
    }

    fn recover_schedules(&self, strikes: u32) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write("recover schedules that were left running", Scope::Many, move |c| {
            c.execute(
                "UPDATE schedules SET next_ms = NULL, error = 'the process died ' || deaths || ' times in a row while it ran'
                 WHERE running_ms IS NOT NULL AND deaths >= ?1",
                [strikes],
            )?;
            c.execute("UPDATE schedules SET running_ms = NULL WHERE running_ms IS NOT NULL", ()).map(drop)
        }))
    }

    fn claim_schedules(&self, classes: Vec<String>, now_ms: i64, limit: u32) -> BoxFuture<'_, Result<Vec<ScheduleRow>>> {
        let classes = array(&classes);
        Box::pin(self.write("take schedules that are due", Scope::Many, move |c| claim(c, &classes, now_ms, limit)))
    }

    fn end_run(&self, run: ScheduleRow, ran: RunResult) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write("store how a schedule has run", Scope::Many, move |c| end_run(c, &run, &ran)))
    }

    fn far_schedules(&self, now_ms: i64, slack_ms: i64) -> BoxFuture<'_, Result<FarSchedules>> {
        Box::pin(self.read("find schedules that are far ahead", move |c| {
            let crons = c
                .prepare_cached(
                    "SELECT cron, max(next_ms) FROM schedules
                     WHERE next_ms > ?1 + ?2 AND running_ms IS NULL AND kind = 'cron' AND attempts = 0 AND cron IS NOT NULL GROUP BY cron",
                )?
                .query_map([now_ms, slack_ms], |row| Ok((text(row, "cron")?, row.get(1)?)))?
                .collect::<Result<_, _>>()?;
            let others = c
                .prepare_cached(&format!("SELECT EXISTS (SELECT 1 FROM schedules WHERE {FAR})"))?
                .query_row([now_ms, slack_ms], |row| row.get(0))?;
            Ok(FarSchedules { crons, others })
        }))
    }

    fn correct_schedules(&self, now_ms: i64, slack_ms: i64, crons: Vec<(i64, String)>) -> BoxFuture<'_, Result<u64>> {
        Box::pin(self.write("correct schedules that are far ahead", Scope::Many, move |c| correct(c, now_ms, slack_ms, &crons)))
    }

    fn next_schedule(&self, classes: Vec<String>) -> BoxFuture<'_, Result<Option<i64>>> {
        let classes = array(&classes);
        Box::pin(self.read("find the schedule that is due next", move |c| {
            c.prepare_cached(&format!(
                "SELECT next_ms FROM schedules WHERE {WAITS} AND (deaths = 0 OR NOT {SUSPECT_RUNS}) ORDER BY next_ms LIMIT 1"
            ))?
            .query_row([&classes], |row| row.get(0))
            .optional()
        }))
    }

    fn unregistered_classes(&self, classes: Vec<String>) -> BoxFuture<'_, Result<Vec<String>>> {
        let classes = array(&classes);
        Box::pin(self.read("list the classes of agents", move |c| {
            c.prepare_cached(
                "SELECT class FROM (SELECT class FROM schedules WHERE next_ms IS NOT NULL
                                    UNION SELECT class FROM agents WHERE heartbeat_ms IS NOT NULL)
                 WHERE class NOT IN (SELECT value FROM json_each(?1)) ORDER BY class",
            )?
            .query_map([&classes], |row| text(row, "class"))?
            .collect()
        }))
    }
}

/// Takes back the deaths that were counted in advance for running schedules and agents that are
/// being woken: at a clean close the process has not died.
pub(super) fn close(conn: &Connection) -> rusqlite::Result<()> {
    conn.execute("UPDATE schedules SET running_ms = NULL, deaths = max(deaths - 1, 0) WHERE running_ms IS NOT NULL", ())?;
    conn.execute("UPDATE agents SET deaths = 0 WHERE heartbeat_ms IS NOT NULL AND deaths > 0", ()).map(drop)
}

/// A JSON array of names.
pub(super) fn array(names: &[String]) -> String {
    serde_json::to_string(names).unwrap_or_else(|_| "[]".to_owned())
}

/// A text column that may be damaged: one bad row must not hide the others.
fn text(row: &Row<'_>, column: &str) -> rusqlite::Result<String> {
    row.get_ref(column).map(|value| String::from_utf8_lossy(value.as_bytes().unwrap_or_default()).into_owned())
}

/// Agents that have a state or are kept awake, behind one.
pub(super) fn list(conn: &Connection, after: Option<&AgentId>, limit: u32) -> rusqlite::Result<Vec<AgentRow>> {
    let (class, name) = after.map(|agent| (&*agent.class, &*agent.name)).unwrap_or_default();
    conn.prepare_cached(
        "SELECT class, name, state, heartbeat_ms, deaths, changed_ms FROM agents WHERE (class, name) > (?1, ?2) ORDER BY class, name LIMIT ?3",
    )?
    .query_map(params![class, name, limit], |row| {
        Ok(AgentRow {
            agent: AgentId { class: text(row, "class")?, name: text(row, "name")? },
            state: row.get("state").unwrap_or_default(),
            awake_ms: row.get("heartbeat_ms").unwrap_or_default(),
            deaths: row.get("deaths").unwrap_or(0),
            changed_ms: row.get("changed_ms").unwrap_or(0),
        })
    })?
    .collect()
}

/// The schedules of all agents behind one.
pub(super) fn all_schedules(conn: &Connection, after: Option<&str>, limit: u32) -> rusqlite::Result<Vec<ScheduleRow>> {
    conn.prepare_cached("SELECT * FROM schedules WHERE seq > coalesce((SELECT seq FROM schedules WHERE id = ?1), 0) ORDER BY seq LIMIT ?2")?
        .query_map(params![after, limit], row)?
        .collect()
}

fn row(row: &Row<'_>) -> rusqlite::Result<ScheduleRow> {
    let timing = match text(row, "kind")?.as_str() {
        "delay" => ScheduleTiming::Delay,
        "time" => ScheduleTiming::Time,
        "cron" => ScheduleTiming::Cron(text(row, "cron")?),
        _ => ScheduleTiming::Every(row.get::<_, Option<i64>>("every_ms")?.unwrap_or(0)),
    };
    Ok(ScheduleRow {
        id: text(row, "id")?,
        agent: AgentId { class: text(row, "class")?, name: text(row, "agent")? },
        name: text(row, "name")?,
        payload: text(row, "payload")?,
        timing,
        due_ms: row.get("due_ms")?,
        next_ms: row.get("next_ms")?,
        running_ms: row.get("running_ms")?,
        attempts: row.get("attempts").unwrap_or(0),
        deaths: row.get("deaths").unwrap_or(0),
        error: row.get::<_, Option<String>>("error").unwrap_or_default(),
        created_ms: row.get("created_ms")?,
    })
}

fn add(conn: &Connection, new: &NewScheduleRow) -> rusqlite::Result<(ScheduleRow, bool)> {
    if new.idempotent
        && let Some((seq, there)) = like(conn, new)?
    {
        return Ok((renew(conn, seq, there, new)?, false));
    }
    let (cron, every_ms) = match &new.timing {
        ScheduleTiming::Cron(cron) => (Some(cron), None),
        ScheduleTiming::Every(every_ms) => (None, Some(every_ms)),
        ScheduleTiming::Delay | ScheduleTiming::Time => (None, None),
    };
    let added = conn
        .prepare_cached(
            "INSERT INTO schedules (id, class, agent, name, payload, kind, cron, every_ms, due_ms, next_ms, created_ms)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, ?10) RETURNING *",
        )?
        .query_row(
            params![
                new.id,
                new.agent.class,
                new.agent.name,
                new.name,
                new.payload,
                new.timing.kind(),
                cron,
                every_ms,
                new.due_ms,
                new.now_ms
            ],
            row,
        )?;
    Ok((added, true))
}

/// The first schedule that a new one repeats: same kind, name and payload, and for cron the same
/// pattern.
fn like(conn: &Connection, new: &NewScheduleRow) -> rusqlite::Result<Option<(i64, ScheduleRow)>> {
    let mut found =
        conn.prepare_cached("SELECT * FROM schedules WHERE class = ?1 AND agent = ?2 AND name = ?3 AND kind = ?4 ORDER BY seq")?;
    let mut rows = found.query(params![new.agent.class, new.agent.name, new.name, new.timing.kind()])?;
    while let Some(there) = rows.next()? {
        let seq = there.get("seq")?;
        let there = row(there)?;
        if !new.timing.repeats() && new.begun.contains(&there.id) {
            // It is deleted when its run ends; the new one must come after that.
            continue;
        }
        let same_pattern = !matches!(new.timing, ScheduleTiming::Cron(_)) || there.timing == new.timing;
        if same_pattern && forever_json::same(&there.payload, &new.payload) {
            return Ok(Some((seq, there)));
        }
    }
    Ok(None)
}

/// Renews a schedule. A new interval takes effect, and a schedule that was suspended for its errors
/// runs again. One that was suspended for deaths stays suspended.
fn renew(conn: &Connection, seq: i64, there: ScheduleRow, new: &NewScheduleRow) -> rusqlite::Result<ScheduleRow> {
    let failed = there.next_ms.is_none() && there.deaths == 0;
    if !failed && there.timing == new.timing {
        return Ok(there);
    }
    let every_ms = if let ScheduleTiming::Every(every_ms) = new.timing { Some(every_ms) } else { None };
    conn.prepare_cached(
        "UPDATE schedules SET every_ms = ?2, due_ms = ?3, attempts = 0,
                next_ms = CASE WHEN next_ms IS NULL AND deaths > 0 AND running_ms IS NULL THEN NULL ELSE ?3 END
         WHERE seq = ?1 RETURNING *",
    )?
    .query_row(params![seq, every_ms, new.due_ms], row)
}

fn correct(conn: &Connection, now_ms: i64, slack_ms: i64, crons: &[(i64, String)]) -> rusqlite::Result<u64> {
    let mut corrected = conn
        .prepare_cached(&format!(
            // All expressions see the row as it was.
            "UPDATE schedules SET
                 due_ms = CASE WHEN attempts > 0 THEN due_ms WHEN kind = 'every' THEN due_ms - (due_ms - ?1 - 1) / every_ms * every_ms
                               ELSE ?1 + max(due_ms - created_ms, 0) END,
                 next_ms = CASE WHEN attempts > 0 THEN iif(kind = 'time', max(due_ms, ?1), ?1)
                                WHEN kind = 'every' THEN due_ms - (due_ms - ?1 - 1) / every_ms * every_ms
                                ELSE ?1 + max(due_ms - created_ms, 0) END,
                 created_ms = iif(created_ms > ?1 + ?2, ?1, created_ms)
             WHERE {FAR}"
        ))?
        .execute([now_ms, slack_ms])?;
    let mut of_pattern = conn.prepare_cached(
        "UPDATE schedules SET due_ms = ?3, next_ms = ?3
         WHERE next_ms > ?3 + ?2 AND running_ms IS NULL AND kind = 'cron' AND attempts = 0 AND cron = ?4 AND ?1 < ?3",
    )?;
    for (next_ms, pattern) in crons {
        corrected += of_pattern.execute(params![now_ms, slack_ms, next_ms, pattern])?;
    }
    Ok(corrected as u64)
}

fn claim(conn: &Connection, classes: &str, now_ms: i64, limit: u32) -> rusqlite::Result<Vec<ScheduleRow>> {
    let taken = |which: &str, limit: u32| -> rusqlite::Result<Vec<ScheduleRow>> {
        conn.prepare_cached(&format!(
            "UPDATE schedules SET running_ms = ?2, deaths = min(deaths, 4294967294) + 1
             WHERE seq IN (SELECT seq FROM schedules WHERE {WAITS} AND next_ms <= ?2 AND {which} ORDER BY next_ms, seq LIMIT ?3)
             RETURNING *"
        ))?
        .query_map(params![classes, now_ms, limit], row)?
        .collect()
    };
    let mut rows = taken("deaths = 0", limit)?;
    rows.extend(taken(&format!("deaths > 0 AND NOT {SUSPECT_RUNS}"), 1)?);
    rows.sort_by_key(|row| row.next_ms);
    Ok(rows)
}

fn end_run(conn: &Connection, run: &ScheduleRow, ran: &RunResult) -> rusqlite::Result<()> {
    if *ran == RunResult::Done {
        conn.prepare_cached("DELETE FROM schedules WHERE id = ?1")?.execute([&run.id])?;
        return Ok(());
    }
    conn.prepare_cached("UPDATE schedules SET running_ms = NULL, deaths = 0 WHERE id = ?1")?.execute([&run.id])?;
    let (due_ms, next_ms, attempts, error) = match ran {
        RunResult::Done => return Ok(()),
        RunResult::Next { due_ms, error } => (*due_ms, Some(*due_ms), 0, error.as_ref()),
        RunResult::Retry { next_ms, error } => (run.due_ms, Some(*next_ms), run.attempts.saturating_add(1), Some(error)),
        RunResult::Suspended { error } => (run.due_ms, None, run.attempts.saturating_add(1), Some(error)),
    };
    // A schedule that was renewed meanwhile keeps its new times.
    conn.prepare_cached("UPDATE schedules SET due_ms = ?3, next_ms = ?4, attempts = ?5, error = ?6 WHERE id = ?1 AND due_ms = ?2")?
        .execute(params![run.id, run.due_ms, due_ms, next_ms, attempts, error])
        .map(drop)
}
