//! The list of messages with a pending interaction.
use rusqlite::{Connection, Row, named_params};

use super::messages::message_row;
use crate::{AgentId, InteractionCursor, InteractionQuery, InteractionRow};

/// Columns of a listed message, and whether another message follows it.
const COLUMNS: &str = "m.seq, m.pending_ms, m.id, m.role, m.data, c.class, c.agent,
    EXISTS (SELECT 1 FROM chat_messages l WHERE l.chat = m.chat AND l.place > m.place) AS superseded";

/// Messages after the cursor, except the one that a running turn writes.
const LISTED: &str = "m.pending_ms IS NOT NULL AND (m.pending_ms, m.seq) < (:pending_ms, :seq)
    AND NOT EXISTS (SELECT 1 FROM turns t INDEXED BY turns_open
                    WHERE t.chat = m.chat AND t.settled_ms IS NULL AND t.state = 'running' AND t.message = m.id)
    ORDER BY m.pending_ms DESC, m.seq DESC LIMIT :limit";

/// The statement for a query. Its cross joins fix the order: one agent has an index of its own, and
/// all others are looked up from the pending messages.
fn statement(query: &InteractionQuery) -> String {
    let (of_one, of_all) = ("chat_messages_pending_chat", "chat_messages_pending");
    match (&query.class, &query.agent) {
        (Some(_), Some(_)) => format!(
            "SELECT {COLUMNS} FROM chats c CROSS JOIN chat_messages m INDEXED BY {of_one} ON m.chat = c.seq
             WHERE c.class = :class AND c.agent = :agent AND {LISTED}"
        ),
        _ => format!(
            "SELECT {COLUMNS} FROM chat_messages m INDEXED BY {of_all} CROSS JOIN chats c ON c.seq = m.chat
             WHERE c.class = coalesce(:class, c.class) AND c.agent = coalesce(:agent, c.agent) AND {LISTED}"
        ),
    }
}

fn listed(row: &Row<'_>) -> rusqlite::Result<InteractionRow> {
    Ok(InteractionRow {
        at: InteractionCursor { pending_ms: row.get("pending_ms")?, seq: row.get("seq")? },
        chat: AgentId { class: row.get("class")?, name: row.get("agent")? },
        message: message_row(row)?,
        superseded: row.get("superseded")?,
    })
}

pub(super) fn list(
    conn: &Connection,
    query: &InteractionQuery,
    after: Option<InteractionCursor>,
    limit: u32,
) -> rusqlite::Result<Vec<InteractionRow>> {
    let mut select = conn.prepare_cached(&statement(query))?;
    let mut after = after.unwrap_or(InteractionCursor { pending_ms: i64::MAX, seq: i64::MAX });
    let mut found = Vec::new();
    // Rows that cannot be read are left out, and later ones take their place: a short page is the
    // last one.
    loop {
        let left = limit - u32::try_from(found.len()).unwrap_or(limit);
        let mut rows = select.query(named_params! {
            ":class": query.class,
            ":agent": query.agent,
            ":pending_ms": after.pending_ms,
            ":seq": after.seq,
            ":limit": left,
        })?;
        let mut read = 0;
        while let Some(row) = rows.next()? {
            read += 1;
            after = InteractionCursor { pending_ms: row.get("pending_ms")?, seq: row.get("seq")? };
            found.extend(listed(row).ok());
        }
        if read < left || found.len() >= limit as usize {
            return Ok(found);
        }
    }
}
