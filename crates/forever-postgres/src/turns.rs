//! Turns: accepted, started, settled.
use forever_store::{
    AcceptTurnResult, Admission, AgentId, Claim, FiberState, IncidentRow, IncidentState, MessageRole, MessageRow, NewTurnRow, QueuePolicy,
    Seq, Suspension, TurnFilter, TurnKind, TurnRequest, TurnRow, TurnSeq, TurnSettlement, TurnSettler, TurnStart, TurnState, TurnWrite,
    WorkerId,
};

use crate::chat::{chat_of, chunks, fence, find_chat, insert_message, last_message, lock_of, next_place, replace, update};
use crate::sql::{Done, Row, Tx, args, damaged, refused};
use crate::{claims, fibers};

const TURN: &str = "SELECT t.*, c.class, c.agent FROM @chats c JOIN @turns t ON t.chat = c.seq";

fn turn_row(row: &Row) -> Done<TurnRow> {
    let origins = origins(row)?.ok_or_else(|| damaged("`origins` of a turn makes no sense"))?;
    Ok(TurnRow { origins, ..listed(row)? })
}

/// `None` if they cannot be read.
fn origins(row: &Row) -> Done<Option<Vec<String>>> {
    Ok(serde_json::from_str(&row.text("origins")?).ok())
}

/// A row as a list shows it. Damaged origins hide neither the other rows nor the rest of their own.
fn listed(row: &Row) -> Done<TurnRow> {
    Ok(TurnRow {
        seq: row.int("seq")?,
        chat: AgentId { class: row.text("class")?, name: row.text("agent")? },
        id: row.text("id")?,
        key: row.text_opt("key")?,
        kind: if row.text("kind")? == "continue" { TurnKind::Continue } else { TurnKind::Reply },
        state: row.word("state")?,
        reason: row.text_opt("reason")?,
        error: row.text_opt("error")?,
        cancel: row.text_opt("cancel")?,
        message: row.text("message")?,
        place: row.int("place")?,
        origins: origins(row)?.unwrap_or_default(),
        deaths: row.count("deaths")?,
        created_ms: row.int("created_ms")?,
        started_ms: row.int_opt("started_ms")?,
        settled_ms: row.int_opt("settled_ms")?,
    })
}

pub(crate) async fn by_seq(tx: &Tx, turn: TurnSeq) -> Done<Option<TurnRow>> {
    tx.row(&format!("{TURN} WHERE t.seq = $1"), args![turn]).await?.as_ref().map(turn_row).transpose()
}

async fn there(tx: &Tx, turn: TurnSeq) -> Done<TurnRow> {
    by_seq(tx, turn).await?.ok_or_else(|| damaged(format!("there is no turn with number {turn}")))
}

pub(crate) async fn by_id(tx: &Tx, chat: &AgentId, id: &str) -> Done<Option<TurnRow>> {
    let sql = format!("{TURN} WHERE c.class = $1 AND c.agent = $2 AND t.id = $3");
    tx.row(&sql, args![&chat.class, &chat.name, id]).await?.as_ref().map(turn_row).transpose()
}

pub(crate) async fn by_key(tx: &Tx, chat: &AgentId, key: &str) -> Done<Option<TurnRow>> {
    let sql = format!("{TURN} WHERE c.class = $1 AND c.agent = $2 AND t.key = $3");
    tx.row(&sql, args![&chat.class, &chat.name, key]).await?.as_ref().map(turn_row).transpose()
}

pub(crate) async fn list(tx: &Tx, chat: &AgentId, filter: &TurnFilter, after: TurnSeq, limit: u32) -> Done<Vec<TurnRow>> {
    // State names are constants of this crate, so they need no placeholders.
    let words: Vec<_> = filter.states.iter().map(|s| format!("'{s}'")).collect();
    let mut terms = String::new();
    if !words.is_empty() {
        terms = format!("AND t.state IN ({})", words.join(", "));
    }
    if !filter.states.is_empty() && !filter.states.iter().any(|s| s.is_settled()) {
        terms.push_str(" AND t.settled_ms IS NULL");
    }
    let (behind, order) = if filter.latest_first { ("t.seq < $3", "t.seq DESC") } else { ("t.seq > $3", "t.seq") };
    let after = if filter.latest_first && after == 0 { TurnSeq::MAX } else { after };
    let sql = format!("{TURN} WHERE c.class = $1 AND c.agent = $2 AND {behind} {terms} ORDER BY {order} LIMIT $4");
    tx.rows(&sql, args![&chat.class, &chat.name, after, limit]).await?.iter().map(listed).collect()
}

/// Turns of all chats before one, the newest first.
pub(crate) async fn all(tx: &Tx, before: Option<TurnSeq>, limit: u32) -> Done<Vec<TurnRow>> {
    newest(tx, "", before, limit).await
}

/// Those of them that failed.
pub(crate) async fn failed(tx: &Tx, before: Option<TurnSeq>, limit: u32) -> Done<Vec<TurnRow>> {
    newest(tx, "AND t.state IN ('error', 'interrupted')", before, limit).await
}

async fn newest(tx: &Tx, which: &str, before: Option<TurnSeq>, limit: u32) -> Done<Vec<TurnRow>> {
    let sql = format!("{TURN} WHERE t.seq < $1 {which} ORDER BY t.seq DESC LIMIT $2");
    tx.rows(&sql, args![before.unwrap_or(TurnSeq::MAX), limit]).await?.iter().map(listed).collect()
}

pub(crate) async fn is_under_way(tx: &Tx, chat: i64) -> Done<bool> {
    tx.one("SELECT EXISTS (SELECT 1 FROM @turns WHERE chat = $1 AND settled_ms IS NULL) AS there", args![chat]).await?.flag("there")
}

/// Whether the queue of a chat is full. Reads no more turns than the limit.
async fn is_full(tx: &Tx, chat: i64, max_queued: u32) -> Done<bool> {
    let sql = "SELECT count(*) >= $2 AS is_full FROM (
                   SELECT 1 FROM @turns WHERE chat = $1 AND settled_ms IS NULL AND state = 'queued' LIMIT $2) q";
    tx.one(sql, args![chat, max_queued]).await?.flag("is_full")
}

/// Stores a turn. A refusal that is known only after messages were written rolls them back.
pub(crate) async fn accept(tx: &Tx, new: &NewTurnRow) -> Done<AcceptTurnResult> {
    let accepted = accept_here(tx, new).await?;
    if matches!(accepted, AcceptTurnResult::NothingToContinue | AcceptTurnResult::Refused(_)) {
        tx.undo();
    }
    Ok(accepted)
}

async fn accept_here(tx: &Tx, new: &NewTurnRow) -> Done<AcceptTurnResult> {
    let chat = chat_of(tx, &new.chat).await?;
    let there = match (by_id(tx, &new.chat, &new.id).await?, &new.key) {
        (None, Some(key)) => by_key(tx, &new.chat, key).await?,
        (there, _) => there,
    };
    if let Some(there) = there {
        return Ok(AcceptTurnResult::Existing(Box::new(there)));
    }
    if let Some(message) = &new.unless_asked
        && let Some(turn) = reply_to(tx, chat, message).await?
    {
        return Ok(AcceptTurnResult::Existing(Box::new(turn)));
    }
    if new.queueing == QueuePolicy::Drop && is_under_way(tx, chat).await? {
        return Ok(AcceptTurnResult::Dropped);
    }
    if new.kind == TurnKind::Reply && is_full(tx, chat, new.max_queued).await? {
        return Ok(AcceptTurnResult::Full);
    }
    if let Some(last) = &new.cut_behind {
        tx.run(
            "DELETE FROM @chat_messages WHERE chat = $1 AND place > (SELECT place FROM @chat_messages WHERE chat = $1 AND id = $2)",
            args![chat, last],
        )
        .await?;
    }
    if let Some(change) = &new.update
        && let Err(why) = update(tx, chat, change, new.now_ms).await?
    {
        return Ok(AcceptTurnResult::Refused(why));
    }
    let mut origins = Vec::new();
    for message in &new.messages {
        if !replace(tx, chat, message, new.now_ms).await? {
            insert_message(tx, chat, next_place(tx, chat).await?, message, new.now_ms).await?;
            if message.role == MessageRole::User {
                origins.push(message.id.clone());
            }
        }
    }
    if new.queueing == QueuePolicy::Merge {
        origins = [merged(tx, chat).await?, origins].concat();
    }
    if origins.is_empty() {
        origins.extend(last_message(tx, chat, Some("user")).await?.map(|(id, _)| id));
    }
    let (mut body, mut tools) = (new.body.clone(), new.tools.clone());
    let (message, place) = match new.kind {
        TurnKind::Reply => (new.message.clone(), next_place(tx, chat).await?),
        TurnKind::Continue => {
            let Some((message, place)) = to_continue(tx, chat).await? else { return Ok(AcceptTurnResult::NothingToContinue) };
            let (of_body, of_tools) = asked_with(tx, chat, &message).await?;
            (body, tools) = (body.or(of_body), tools.or(of_tools));
            (message, place)
        }
    };
    // This turn continues the message that was to be continued, or the message is not to be
    // continued any more.
    tx.run("UPDATE @chats SET held = NULL WHERE seq = $1 AND held IS NOT NULL", args![chat]).await?;
    let (policy, due_ms) = match new.queueing {
        QueuePolicy::Queue | QueuePolicy::Drop => ("queue", None),
        QueuePolicy::Latest => ("latest", None),
        QueuePolicy::Merge => ("merge", None),
        QueuePolicy::Debounce(ms) => ("debounce", Some(new.now_ms.saturating_add(ms))),
    };
    let Some(claim) = fibers::insert(tx, &new.fiber).await? else {
        return refused(format!("there is a fiber with id `{}` already", new.fiber.id));
    };
    let ready = fibers::runnable(tx, &[claim.fiber]).await?.pop().ok_or_else(|| damaged("a fiber is not there"))?;
    let turn = tx
        .one(
            "INSERT INTO @turns (chat, id, key, kind, policy, state, fiber, message, place, origins, due_ms, created_ms)
             VALUES ($1, $2, $3, $4, $5, 'queued', $6, $7, $8, $9, $10, $11) RETURNING seq",
            args![
                chat,
                &new.id,
                &new.key,
                if new.kind == TurnKind::Continue { "continue" } else { "answer" },
                policy,
                claim.fiber,
                &message,
                place,
                &serde_json::to_string(&origins).unwrap_or_else(|_| "[]".to_owned()),
                due_ms,
                new.now_ms,
            ],
        )
        .await?
        .int("seq")?;
    tx.run("INSERT INTO @turn_requests (turn, body, tools, metadata) VALUES ($1, $2, $3, $4)", args![turn, &body, &tools, &new.metadata])
        .await?;
    Ok(AcceptTurnResult::Created(Box::new(self::there(tx, turn).await?), ready))
}

/// The latest turn that replies to a user message. A new message is not stored yet, and no turn is
/// read for it.
async fn reply_to(tx: &Tx, chat: i64, message: &str) -> Done<Option<TurnRow>> {
    let stored = "SELECT EXISTS (SELECT 1 FROM @chat_messages WHERE chat = $1 AND id = $2) AS stored";
    if !tx.one(stored, args![chat, message]).await?.flag("stored")? {
        return Ok(None);
    }
    // The server would fail where one of the rows is damaged, and where an id has U+0000.
    let written = serde_json::to_string(message).unwrap_or_default();
    let sql = "SELECT seq, origins FROM @turns WHERE chat = $1 AND kind = 'answer' AND strpos(origins, $2) > 0 ORDER BY seq DESC";
    for row in tx.rows(sql, args![chat, &written]).await? {
        if origins(&row)?.unwrap_or_default().iter().any(|id| id == message) {
            return by_seq(tx, row.int("seq")?).await;
        }
    }
    Ok(None)
}

/// The origins of the queued turn that a new one takes over when the two are merged.
async fn merged(tx: &Tx, chat: i64) -> Done<Vec<String>> {
    let sql = "SELECT origins FROM @turns WHERE chat = $1 AND settled_ms IS NULL AND state = 'queued' AND policy = 'merge'
               ORDER BY seq DESC LIMIT 1";
    // Origins that cannot be read are dropped.
    let origins = tx.row(sql, args![chat]).await?.as_ref().map(origins).transpose()?;
    Ok(origins.flatten().unwrap_or_default())
}

/// The message that a turn of kind `Continue` adds to, and its place: that of the last turn under
/// way, else the last message if it is the assistant's.
async fn to_continue(tx: &Tx, chat: i64) -> Done<Option<(String, i64)>> {
    let sql = "SELECT message, place FROM @turns WHERE chat = $1 AND settled_ms IS NULL ORDER BY seq DESC LIMIT 1";
    if let Some(row) = tx.row(sql, args![chat]).await? {
        return Ok(Some((row.text("message")?, row.int("place")?)));
    }
    let last = last_message(tx, chat, None).await?;
    let of_assistant = last_message(tx, chat, Some("assistant")).await?;
    Ok(last.filter(|last| of_assistant.as_ref() == Some(last)))
}

/// The body and the client's tools of the request whose turn wrote a message last.
async fn asked_with(tx: &Tx, chat: i64, message: &str) -> Done<(Option<String>, Option<String>)> {
    let sql = "SELECT r.body, r.tools FROM @turns t JOIN @turn_requests r ON r.turn = t.seq
               WHERE t.chat = $1 AND t.message = $2 ORDER BY t.seq DESC LIMIT 1";
    tx.row(sql, args![chat, message]).await?.map_or(Ok((None, None)), |row| Ok((row.text_opt("body")?, row.text_opt("tools")?)))
}

pub(crate) async fn begin(tx: &Tx, claim: Claim, turn: TurnSeq, now_ms: i64, worker: WorkerId) -> Done<Admission> {
    lock_of(tx, turn).await?;
    fence(tx, claim, turn).await?;
    let row = there(tx, turn).await?;
    if row.state.is_settled() {
        return Ok(Admission::Settled(Box::new(row)));
    }
    let more = tx.one("SELECT chat, policy, due_ms FROM @turns WHERE seq = $1", args![turn]).await?;
    let (chat, policy, due_ms) = (more.int("chat")?, more.text("policy")?, more.int_opt("due_ms")?);
    let again = row.state == TurnState::Running;
    if !again && policy != "queue" {
        let sql = "SELECT EXISTS (SELECT 1 FROM @turns WHERE chat = $1 AND seq > $2 AND settled_ms IS NULL AND policy = $3) AS newer";
        if tx.one(sql, args![chat, turn, &policy]).await?.flag("newer")? {
            let why = "another one has taken its place";
            tx.run("UPDATE @turns SET state = 'skipped', reason = $2, settled_ms = $3 WHERE seq = $1", args![turn, why, now_ms]).await?;
            let row = TurnRow { state: TurnState::Skipped, reason: Some(why.to_owned()), settled_ms: Some(now_ms), ..row };
            return Ok(Admission::Settled(Box::new(row)));
        }
    }
    let before = tx
        .row(
            "SELECT t.seq, f.id FROM @turns t LEFT JOIN @fibers f ON f.seq = t.fiber AND f.finished_ms IS NULL
             WHERE t.chat = $1 AND t.seq < $2 AND t.settled_ms IS NULL AND t.state IN ('queued', 'running') ORDER BY t.seq DESC LIMIT 1",
            args![chat, turn],
        )
        .await?;
    if let Some(before) = before {
        return Ok(match before.text_opt("id")? {
            Some(fiber) => Admission::Behind(fiber),
            None => Admission::Orphaned(Box::new(there(tx, before.int("seq")?).await?)),
        });
    }
    if let Some(due_ms) = due_ms
        && !again
        && due_ms > now_ms
    {
        return Ok(Admission::NotBefore(due_ms));
    }
    tx.run(
        "UPDATE @turns SET state = 'running', started_ms = coalesce(started_ms, $2), deaths = least(deaths, 4294967294) + 1, worker = $3
         WHERE seq = $1",
        args![turn, now_ms, worker],
    )
    .await?;
    Ok(Admission::Begun(Box::new(TurnStart {
        row: there(tx, turn).await?,
        request: request(tx, turn).await?,
        chunks: chunks(tx, turn, 0, u32::MAX).await?,
        incident: incident(tx, turn).await?,
        again,
    })))
}

pub(crate) async fn release(tx: &Tx, claim: Claim, turn: TurnSeq) -> Done<()> {
    fence(tx, claim, turn).await?;
    tx.run("UPDATE @turns SET deaths = greatest(deaths - 1, 0), worker = NULL WHERE seq = $1", args![turn]).await.map(drop)
}

/// Releases a turn and parks its fiber, unless the turn was cancelled or has ended.
pub(crate) async fn park(tx: &Tx, claim: Claim, turn: TurnSeq, how: &Suspension, now_ms: i64) -> Done<bool> {
    claims::hold(tx, claim).await?;
    let is_running = fence(tx, claim, turn).await?;
    let sql = "UPDATE @turns SET deaths = greatest(deaths - 1, 0), worker = NULL WHERE seq = $1 RETURNING cancel IS NOT NULL AS cancelled";
    let is_cancelled = tx.row(sql, args![turn]).await?.map_or(Ok(false), |row| row.flag("cancelled"))?;
    if !is_running || is_cancelled {
        return Ok(false);
    }
    if !fibers::is_cancelled(tx, claim.fiber).await? {
        fibers::suspend(tx, claim, how, now_ms).await?;
    }
    Ok(true)
}

/// Locks the fibers of turns, before anything is written to the turns; returns the parked ones.
async fn lock_fibers(tx: &Tx, turns: &[TurnSeq]) -> Done<Vec<Seq>> {
    // The state is read after the lock, so that this waits for a fiber that is about to park.
    let sql = "SELECT f.seq, f.state FROM @turns t JOIN @fibers f ON f.seq = t.fiber JOIN @snapshots s ON s.fiber = f.seq
               WHERE t.seq = ANY ($1) ORDER BY f.seq FOR NO KEY UPDATE OF f, s";
    let mut parked = Vec::new();
    for row in tx.rows(sql, args![turns]).await? {
        if row.word::<FiberState>("state")? == FiberState::Parked {
            parked.push(row.int("seq")?);
        }
    }
    Ok(parked)
}

/// Makes parked fibers ready, so that they see their turns end.
async fn wake_parked(tx: &Tx, parked: &[Seq], now_ms: i64) -> Done<()> {
    for fiber in parked {
        fibers::make_ready(tx, *fiber, now_ms).await?;
    }
    Ok(())
}

/// Takes back the deaths that the worker counted in advance, of turns under way, when it closes
/// cleanly. Turns that another transaction has locked are left.
pub(crate) async fn close(tx: &Tx, worker: WorkerId) -> Done<()> {
    let sql = format!(
        "UPDATE @turns SET deaths = greatest(deaths - 1, 0), worker = NULL WHERE seq IN ({LEFT_AT_CLOSE} FOR NO KEY UPDATE OF t SKIP LOCKED)"
    );
    tx.run(&sql, args![worker]).await.map(drop)
}

/// Query for what [`close`] has left of the worker `$1`.
pub(crate) const LEFT_AT_CLOSE: &str = "SELECT t.seq FROM @turns t JOIN @fibers f ON f.seq = t.fiber
    WHERE t.settled_ms IS NULL AND t.state = 'running' AND t.worker = $1 AND f.state <> 'parked'";

fn word(state: IncidentState) -> &'static str {
    match state {
        IncidentState::Attempting => "attempting",
        IncidentState::Recovered => "recovered",
        IncidentState::Exhausted => "exhausted",
    }
}

pub(crate) async fn store_incident(tx: &Tx, claim: Claim, turn: TurnSeq, incident: &IncidentRow, now_ms: i64) -> Done<()> {
    fence(tx, claim, turn).await?;
    tx.run(
        "INSERT INTO @incidents (turn, continues, state, attempts, attempt_ms, chunks, began_at, progress_ms, reason, created_ms, changed_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
         ON CONFLICT (turn) DO UPDATE SET continues = $2, state = $3, attempts = $4, attempt_ms = $5, chunks = $6, began_at = $7,
                progress_ms = $8, reason = $9, created_ms = $10, changed_ms = $11",
        args![
            turn,
            incident.continues,
            word(incident.state),
            incident.attempts,
            incident.attempt_ms,
            incident.chunks,
            incident.began_at,
            incident.progress_ms,
            &incident.reason,
            incident.created_ms,
            now_ms,
        ],
    )
    .await
    .map(drop)
}

async fn incident(tx: &Tx, turn: TurnSeq) -> Done<Option<IncidentRow>> {
    let Some(row) = tx.row("SELECT * FROM @incidents WHERE turn = $1", args![turn]).await? else { return Ok(None) };
    Ok(Some(IncidentRow {
        continues: row.flag("continues")?,
        state: match row.text("state")?.as_str() {
            "recovered" => IncidentState::Recovered,
            "exhausted" => IncidentState::Exhausted,
            _ => IncidentState::Attempting,
        },
        attempts: row.count("attempts")?,
        attempt_ms: row.int("attempt_ms")?,
        chunks: row.number("chunks")?,
        began_at: row.number("began_at")?,
        progress_ms: row.int("progress_ms")?,
        reason: row.text_opt("reason")?,
        created_ms: row.int("created_ms")?,
    }))
}

pub(crate) async fn stash(tx: &Tx, claim: Claim, turn: TurnSeq, stash: &str) -> Done<TurnWrite> {
    if !fence(tx, claim, turn).await? {
        return Ok(TurnWrite::NotRunning);
    }
    let stored = tx.run("UPDATE @turn_requests SET stash = $2 WHERE turn = $1", args![turn, stash]).await?;
    Ok(if stored == 0 { TurnWrite::NotRunning } else { TurnWrite::Done })
}

pub(crate) async fn settle(tx: &Tx, by: TurnSettler, turn: TurnSeq, how: &TurnSettlement) -> Done<TurnWrite> {
    lock_of(tx, turn).await?;
    match by {
        TurnSettler::Activation(claim) => {
            fence(tx, claim, turn).await?;
        }
        TurnSettler::Other => {
            let sql =
                "SELECT f.finished_ms IS NULL AS runs FROM @turns t JOIN @fibers f ON f.seq = t.fiber WHERE t.seq = $1 FOR SHARE OF f";
            if tx.row(sql, args![turn]).await?.map_or(Ok(false), |row| row.flag("runs"))? {
                return Ok(TurnWrite::HasFiber);
            }
        }
    }
    let Some(row) = by_seq(tx, turn).await? else { return Ok(TurnWrite::NotRunning) };
    if row.state.is_settled() {
        return Ok(TurnWrite::NotRunning);
    }
    if let Some(data) = &how.message {
        let chat = chat_of(tx, &row.chat).await?;
        let message = MessageRow { id: row.message.clone(), role: MessageRole::Assistant, data: data.clone(), pending: how.pending };
        insert_message(tx, chat, row.place, &message, how.now_ms).await?;
    }
    if let Some(state) = how.incident {
        tx.run("UPDATE @incidents SET state = $2, changed_ms = $3 WHERE turn = $1", args![turn, word(state), how.now_ms]).await?;
    }
    tx.run(
        "UPDATE @turns SET state = $2, reason = $3, error = $4, settled_ms = $5, deaths = greatest(deaths - 1, 0), worker = NULL WHERE seq = $1",
        args![turn, how.state.as_str(), &how.reason, &how.error, how.now_ms],
    )
    .await?;
    Ok(TurnWrite::Done)
}

pub(crate) async fn cancel(tx: &Tx, turn: TurnSeq, reason: &str, now_ms: i64) -> Done<Option<TurnRow>> {
    lock_of(tx, turn).await?;
    let parked = lock_fibers(tx, &[turn]).await?;
    tx.run("UPDATE @turns SET cancel = coalesce(cancel, $2) WHERE seq = $1 AND settled_ms IS NULL", args![turn, reason]).await?;
    tx.run(
        "UPDATE @turns SET state = 'aborted', reason = $2, settled_ms = $3 WHERE seq = $1 AND state = 'queued' AND settled_ms IS NULL",
        args![turn, reason, now_ms],
    )
    .await?;
    wake_parked(tx, &parked, now_ms).await?;
    by_seq(tx, turn).await
}

pub(crate) async fn fiber_state(tx: &Tx, turn: TurnSeq) -> Done<Option<FiberState>> {
    let row = tx.row("SELECT f.state FROM @turns t JOIN @fibers f ON f.seq = t.fiber WHERE t.seq = $1", args![turn]).await?;
    row.map(|row| row.word("state")).transpose()
}

pub(crate) async fn request(tx: &Tx, turn: TurnSeq) -> Done<TurnRequest> {
    let Some(row) = tx.row("SELECT body, tools, metadata, stash FROM @turn_requests WHERE turn = $1", args![turn]).await? else {
        return Ok(TurnRequest::default());
    };
    Ok(TurnRequest {
        body: row.text_opt("body")?,
        tools: row.text_opt("tools")?,
        metadata: row.text_opt("metadata")?,
        stash: row.text_opt("stash")?,
    })
}

pub(crate) async fn clear(tx: &Tx, chat: &AgentId, now_ms: i64) -> Done<Vec<TurnRow>> {
    let Some(seq) = find_chat(tx, chat).await? else { return Ok(Vec::new()) };
    tx.run("DELETE FROM @chat_messages WHERE chat = $1", args![seq]).await?;
    let open = tx.rows("SELECT seq FROM @turns WHERE chat = $1 AND settled_ms IS NULL", args![seq]).await?;
    let open: Vec<TurnSeq> = open.iter().map(|row| row.int("seq")).collect::<Done<_>>()?;
    let parked = lock_fibers(tx, &open).await?;
    // Locks the turns, so that no chunk is appended after the deletion of the log.
    tx.rows("SELECT seq FROM @turns WHERE chat = $1 AND settled_ms IS NULL ORDER BY seq FOR NO KEY UPDATE", args![seq]).await?;
    let open = tx.rows(&format!("{TURN} WHERE c.seq = $1 AND t.settled_ms IS NULL ORDER BY t.seq"), args![seq]).await?;
    let mut ended = Vec::new();
    for row in &open {
        let turn = listed(row)?;
        let state = if turn.state == TurnState::Running { TurnState::Aborted } else { TurnState::Skipped };
        let why = "the chat was cleared";
        tx.run(
            "UPDATE @turns SET state = $2, reason = $3, settled_ms = $4, worker = NULL WHERE seq = $1",
            args![turn.seq, state.as_str(), why, now_ms],
        )
        .await?;
        ended.push(TurnRow { state, reason: Some(why.to_owned()), settled_ms: Some(now_ms), ..turn });
    }
    let turns = tx.rows("UPDATE @turns SET compacted = TRUE WHERE chat = $1 AND NOT compacted RETURNING seq", args![seq]).await?;
    let turns: Vec<TurnSeq> = turns.iter().map(|row| row.int("seq")).collect::<Done<_>>()?;
    tx.run("DELETE FROM @stream_items WHERE turn = ANY ($1)", args![turns]).await?;
    wake_parked(tx, &parked, now_ms).await?;
    Ok(ended)
}

pub(crate) async fn orphaned(tx: &Tx) -> Done<Vec<TurnSeq>> {
    let sql = "SELECT t.seq FROM @turns t LEFT JOIN @fibers f ON f.seq = t.fiber
               WHERE t.settled_ms IS NULL AND (f.seq IS NULL OR f.finished_ms IS NOT NULL) ORDER BY t.seq";
    tx.rows(sql, args![]).await?.iter().map(|row| row.int("seq")).collect()
}

pub(crate) async fn compact(tx: &Tx, before_ms: i64, limit: u32) -> Done<u64> {
    let over = tx
        .rows(
            "UPDATE @turns SET compacted = TRUE WHERE seq IN (
                 SELECT seq FROM @turns WHERE settled_ms IS NOT NULL AND settled_ms < $1 AND NOT compacted ORDER BY settled_ms LIMIT $2
                 FOR UPDATE SKIP LOCKED)
             RETURNING seq",
            args![before_ms, limit],
        )
        .await?;
    let over: Vec<TurnSeq> = over.iter().map(|row| row.int("seq")).collect::<Done<_>>()?;
    tx.run("DELETE FROM @stream_items WHERE turn = ANY ($1)", args![&over]).await?;
    Ok(over.len() as u64)
}

pub(crate) async fn delete(tx: &Tx, before_ms: i64, limit: u32) -> Done<u64> {
    let gone = tx
        .rows(
            "DELETE FROM @turns WHERE seq IN (
                 SELECT seq FROM @turns WHERE settled_ms IS NOT NULL AND settled_ms < $1 ORDER BY settled_ms LIMIT $2 FOR UPDATE SKIP LOCKED)
             RETURNING seq",
            args![before_ms, limit],
        )
        .await?;
    let gone: Vec<TurnSeq> = gone.iter().map(|row| row.int("seq")).collect::<Done<_>>()?;
    tx.run("DELETE FROM @stream_items WHERE turn = ANY ($1)", args![&gone]).await?;
    Ok(gone.len() as u64)
}

/// Condition: a turn that is debounced until a time that was computed while the clock was ahead.
/// `$1` is now in ms, `$2` the tolerance in ms.
const FAR: &str = "settled_ms IS NULL AND state = 'queued' AND due_ms IS NOT NULL AND created_ms > $1 + $2";

pub(crate) async fn has_far(tx: &Tx, now_ms: i64, slack_ms: i64) -> Done<bool> {
    tx.one(&format!("SELECT EXISTS (SELECT 1 FROM @turns WHERE {FAR}) AS there"), args![now_ms, slack_ms]).await?.flag("there")
}

/// Restarts the debounce of those turns from now.
pub(crate) async fn correct(tx: &Tx, now_ms: i64, slack_ms: i64) -> Done<u64> {
    tx.run(
        &format!(
            "UPDATE @waits w SET due_ms = $1 + greatest(t.due_ms - t.created_ms, 0)
             FROM (SELECT fiber, due_ms, created_ms FROM @turns WHERE {FAR}) t WHERE w.fiber = t.fiber AND w.due_ms IS NOT NULL"
        ),
        args![now_ms, slack_ms],
    )
    .await?;
    tx.run(
        &format!("UPDATE @turns SET due_ms = $1 + greatest(due_ms - created_ms, 0), created_ms = $1 WHERE {FAR}"),
        args![now_ms, slack_ms],
    )
    .await
}
