//! Interruptions of turns.
use rusqlite::{Connection, OptionalExtension, params};

use crate::{IncidentRow, IncidentState, TurnSeq};

pub(super) fn word(state: IncidentState) -> &'static str {
    match state {
        IncidentState::Attempting => "attempting",
        IncidentState::Recovered => "recovered",
        IncidentState::Exhausted => "exhausted",
    }
}

pub(super) fn put(conn: &Connection, turn: TurnSeq, incident: &IncidentRow, now_ms: i64) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT OR REPLACE INTO incidents
             (turn, kind, state, attempts, attempt_ms, chunks, began_at, progress_ms, reason, created_ms, changed_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?
    .execute(params![
        turn,
        if incident.continues { "continue" } else { "retry" },
        word(incident.state),
        incident.attempts,
        incident.attempt_ms,
        incident.chunks.cast_signed(),
        incident.began_at.cast_signed(),
        incident.progress_ms,
        incident.reason,
        incident.created_ms,
        now_ms
    ])
    .map(drop)
}

pub(super) fn incident(conn: &Connection, turn: TurnSeq) -> rusqlite::Result<Option<IncidentRow>> {
    conn.prepare_cached("SELECT * FROM incidents WHERE turn = ?1")?
        .query_row([turn], |r| {
            Ok(IncidentRow {
                continues: r.get_ref("kind")?.as_str()? == "continue",
                state: match r.get_ref("state")?.as_str()? {
                    "recovered" => IncidentState::Recovered,
                    "exhausted" => IncidentState::Exhausted,
                    _ => IncidentState::Attempting,
                },
                attempts: r.get("attempts")?,
                attempt_ms: r.get("attempt_ms")?,
                chunks: r.get::<_, i64>("chunks")?.cast_unsigned(),
                began_at: r.get::<_, i64>("began_at")?.cast_unsigned(),
                progress_ms: r.get("progress_ms")?,
                reason: r.get("reason")?,
                created_ms: r.get("created_ms")?,
            })
        })
        .optional()
}
