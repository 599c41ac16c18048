//! Topics of fibers: their pending messages, and those that are closed.
use forever_store::{FiberState, PendingMessage, Seq, TopicPage, TopicRow, UnreadMessages, message_digest};

use crate::sql::{Done, Row, Tx, args};

pub(crate) async fn page(tx: &Tx, seq: Seq, topic: &str, after: i64, limit: u32) -> Done<TopicPage> {
    // One row for each message, or one without a message.
    let sql = "SELECT m.seq, m.topic, m.data, m.sent_ms, c.closed
               FROM (SELECT EXISTS (SELECT 1 FROM @closed_topics WHERE fiber = $1 AND topic = $2) AS closed) c
               LEFT JOIN (SELECT seq, topic, data, sent_ms FROM @messages WHERE fiber = $1 AND topic = $2 AND seq > $3
                          ORDER BY seq LIMIT $4) m ON TRUE
               ORDER BY m.seq";
    let rows = tx.rows(sql, args![seq, topic, after, i64::from(limit)]).await?;
    let mut page = TopicPage::default();
    for row in &rows {
        page.closed = row.flag("closed")?;
        if row.int_opt("seq")?.is_some() {
            page.messages.push(pending(row)?);
        }
    }
    Ok(page)
}

/// The topics of a fiber that are closed or have messages.
pub(crate) async fn all(tx: &Tx, seq: Seq) -> Done<Vec<TopicRow>> {
    let sql = "SELECT topic, count(unread) AS unread, max(closed) AS closed FROM (
                   SELECT topic, 1 AS unread, NULL::bigint AS closed FROM @messages WHERE fiber = $1
                   UNION ALL SELECT topic, NULL, number FROM @closed_topics WHERE fiber = $1) t
               GROUP BY topic ORDER BY topic COLLATE \"C\"";
    tx.rows(sql, args![seq]).await?.iter().map(topic).collect()
}

/// The unread messages of fibers that have ended.
pub(crate) async fn unread(tx: &Tx, fibers: &[Seq], state: FiberState) -> Done<Vec<UnreadMessages>> {
    let sql = "SELECT f.id, f.name, m.topic, m.unread, c.number AS closed
               FROM (SELECT fiber, topic, count(*) AS unread FROM @messages WHERE fiber = ANY ($1) GROUP BY fiber, topic) m
               JOIN @fibers f ON f.seq = m.fiber LEFT JOIN @closed_topics c ON c.fiber = m.fiber AND c.topic = m.topic
               ORDER BY m.fiber, m.topic COLLATE \"C\"";
    let mut unread: Vec<UnreadMessages> = Vec::new();
    for row in &tx.rows(sql, args![fibers]).await? {
        let (id, topic) = (row.text("id")?, topic(row)?);
        match unread.last_mut().filter(|last| last.id == id) {
            Some(last) => last.topics.push(topic),
            None => unread.push(UnreadMessages { id, name: row.text("name")?, state, topics: vec![topic] }),
        }
    }
    Ok(unread)
}

fn topic(row: &Row) -> Done<TopicRow> {
    let closed = row.int_opt("closed")?.map(|number| u64::try_from(number).unwrap_or(0));
    Ok(TopicRow { topic: row.text("topic")?, unread: row.number("unread")?, closed })
}

/// As [`all`], of a fiber by its id.
pub(crate) async fn all_of(tx: &Tx, id: &str) -> Done<Vec<TopicRow>> {
    match tx.row("SELECT seq FROM @fibers WHERE id = $1", args![id]).await? {
        Some(row) => all(tx, row.int("seq")?).await,
        None => Ok(Vec::new()),
    }
}

/// Closes a topic of a fiber whose row is locked, with the checkpoint of this number.
pub(crate) async fn close(tx: &Tx, seq: Seq, topic: &str, number: u64) -> Done<()> {
    let sql = "INSERT INTO @closed_topics (fiber, topic, number) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
    tx.run(sql, args![seq, topic, number]).await.map(drop)
}

/// Whether the fiber has closed a topic. Its row is locked where the answer is to stay so.
pub(crate) async fn is_closed(tx: &Tx, seq: Seq, topic: &str) -> Done<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM @closed_topics WHERE fiber = $1 AND topic = $2) AS closed";
    tx.one(sql, args![seq, topic]).await?.flag("closed")
}

/// Forgets the ids of all messages but the unread ones. A run that begins anew has had none of
/// them, so a sender that repeats one is to reach it.
pub(crate) async fn forget_ids(tx: &Tx, seq: Seq) -> Done<()> {
    let unread = tx.rows("SELECT topic, data FROM @messages WHERE fiber = $1", args![seq]).await?;
    let digest = |row: &Row| Ok(message_digest(&row.text("topic")?, &row.text("data")?));
    let unread = unread.iter().map(digest).collect::<Done<Vec<String>>>()?;
    tx.run("DELETE FROM @message_ids WHERE fiber = $1 AND NOT coalesce(digest = ANY ($2), FALSE)", args![seq, &unread]).await.map(drop)
}

pub(crate) fn pending(row: &Row) -> Done<PendingMessage> {
    Ok(PendingMessage { seq: row.int("seq")?, topic: row.text("topic")?, data: row.text("data")?, sent_ms: row.int("sent_ms")? })
}
