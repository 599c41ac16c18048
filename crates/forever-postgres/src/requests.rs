//! Calls of agents from any worker.
//!
//! The caller stores a request. The worker that holds the agent begins it, which is stored, carries
//! it out, and stores the outcome, which the caller takes. Begin and outcome are conditional on the
//! hold: the row in `@agent_holders` is locked first, so that the hold stays until the end of the
//! transaction, and `@agent_requests.epoch` is the epoch of the hold under which a request has
//! begun. A begun request whose hold is gone is lost: nothing repeats it.
use forever_store::{AgentId, AgentRequest, NewAgentRequest, RequestOutcome, RequestProgress, WorkerId};

use crate::notify::{CHANGED, REQUESTED};
use crate::sql::{Done, Row, Tx, args, damaged};
use crate::workers::ALIVE;

/// Condition: a living worker holds the agent of request `r` as it did when the request began.
fn is_held() -> String {
    format!(
        "EXISTS (SELECT 1 FROM @agent_holders h JOIN @workers w ON w.id = h.worker
                 WHERE h.class = r.class AND h.name = r.name AND h.epoch = r.epoch AND {ALIVE})"
    )
}

pub(crate) async fn request(tx: &Tx, new: &NewAgentRequest) -> Done<()> {
    tx.run(
        "INSERT INTO @agent_requests (id, class, name, method, args, caller, deadline)
         VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp() + least($7, 31536000000) * INTERVAL '1 millisecond')",
        args![&new.id, &new.agent.class, &new.agent.name, &new.method, &new.args, new.caller, new.limit_ms],
    )
    .await?;
    tx.announce(CHANGED | REQUESTED);
    Ok(())
}

pub(crate) async fn begin(tx: &Tx, agent: &AgentId, worker: WorkerId) -> Done<Option<AgentRequest>> {
    let held = "SELECT epoch FROM @agent_holders WHERE class = $1 AND name = $2 AND worker = $3 FOR SHARE";
    let Some(held) = tx.row(held, args![&agent.class, &agent.name, worker]).await? else { return Ok(None) };
    let sql = "UPDATE @agent_requests SET state = 'begun', epoch = $3 WHERE seq = (
                   SELECT seq FROM @agent_requests WHERE class = $1 AND name = $2 AND state = 'waiting' AND deadline > clock_timestamp()
                   ORDER BY seq LIMIT 1 FOR UPDATE SKIP LOCKED)
               RETURNING id, method, args";
    let row = |row: Row| Ok(AgentRequest { id: row.text("id")?, method: row.text("method")?, args: row.text("args")? });
    tx.row(sql, args![&agent.class, &agent.name, held.int("epoch")?]).await?.map(row).transpose()
}

pub(crate) async fn end(tx: &Tx, id: &str, worker: WorkerId, outcome: &RequestOutcome) -> Done<bool> {
    let held = "SELECT 1 AS there FROM @agent_requests r JOIN @agent_holders h ON h.class = r.class AND h.name = r.name
                WHERE r.id = $1 AND h.worker = $2 AND h.epoch = r.epoch FOR SHARE OF h";
    if tx.row(held, args![id, worker]).await?.is_none() {
        return Ok(false);
    }
    let (state, text) = match outcome {
        RequestOutcome::Answered(text) => ("answered", text),
        RequestOutcome::Failed(text) => ("failed", text),
    };
    let ended =
        tx.run("UPDATE @agent_requests SET state = $2, outcome = $3 WHERE id = $1 AND state = 'begun'", args![id, state, text]).await?;
    tx.announce(CHANGED | REQUESTED);
    Ok(ended > 0)
}

pub(crate) async fn take(tx: &Tx, id: &str) -> Done<RequestProgress> {
    // The lock is a statement of its own: the next one sees the hold as it is by then.
    if tx.row("SELECT 1 AS there FROM @agent_requests WHERE id = $1 FOR UPDATE", args![id]).await?.is_none() {
        return Ok(RequestProgress::Lost);
    }
    let sql = format!("SELECT r.state, r.outcome, {} AS held FROM @agent_requests r WHERE r.id = $1", is_held());
    let row = tx.one(&sql, args![id]).await?;
    let outcome = row.text_opt("outcome")?.unwrap_or_default();
    let progress = match (row.text("state")?.as_str(), row.flag("held")?) {
        ("waiting", _) => return Ok(RequestProgress::Waiting),
        ("begun", true) => return Ok(RequestProgress::Begun),
        ("begun", false) => RequestProgress::Lost,
        ("answered", _) => RequestProgress::Ended(RequestOutcome::Answered(outcome)),
        ("failed", _) => RequestProgress::Ended(RequestOutcome::Failed(outcome)),
        (state, _) => return Err(damaged(format!("request `{id}` has the state `{state}`"))),
    };
    tx.run("DELETE FROM @agent_requests WHERE id = $1", args![id]).await?;
    Ok(progress)
}

pub(crate) async fn withdraw(tx: &Tx, id: &str) -> Done<bool> {
    let deleted = tx.row("DELETE FROM @agent_requests WHERE id = $1 RETURNING state", args![id]).await?;
    deleted.map_or(Ok(false), |row| Ok(row.text("state")? == "waiting"))
}

/// The watched requests that can be taken: ended, lost, or gone.
pub(crate) async fn ended(tx: &Tx, watched: &[String]) -> Done<Vec<String>> {
    let sql = format!(
        "SELECT u.id FROM unnest($1::text[]) u (id) LEFT JOIN @agent_requests r ON r.id = u.id
         WHERE r.id IS NULL OR r.state IN ('answered', 'failed') OR r.state = 'begun' AND NOT {}",
        is_held()
    );
    tx.rows(&sql, args![watched]).await?.iter().map(|row| row.text("id")).collect()
}

/// The agents with requests that have not begun and that a worker carries out.
pub(crate) async fn requested(tx: &Tx, worker: WorkerId) -> Done<Vec<AgentId>> {
    let sql = format!(
        "SELECT DISTINCT r.class, r.name FROM @agent_requests r LEFT JOIN @agent_holders h ON h.class = r.class AND h.name = r.name
         WHERE r.state = 'waiting' AND r.deadline > clock_timestamp()
         AND (h.worker = $1 OR r.caller = $1 AND NOT EXISTS (SELECT 1 FROM @workers w WHERE w.id = h.worker AND {ALIVE}))"
    );
    let row = |row: &Row| Ok(AgentId { class: row.text("class")?, name: row.text("name")? });
    tx.rows(&sql, args![worker]).await?.iter().map(row).collect()
}

/// Deletes requests that no caller waits for any more: a caller withdraws its own at the deadline.
pub(crate) async fn clean(tx: &Tx) -> Done<()> {
    tx.run("DELETE FROM @agent_requests WHERE deadline < clock_timestamp() - INTERVAL '1 minute'", args![]).await.map(drop)
}
