//! Waits of fibers for times, messages and the ends of other fibers, and what wakes them.
//!
//! A check for something to wait for, and each event that it might miss, lock the same row first,
//! in a statement of their own: that of the waiting fiber for messages, that of the awaited fiber
//! for its end. So one of the two sees the other.
use forever_store::{Claim, Runnable, Seq, Wait, WaitResult};

use crate::sql::{Done, Tx, args};
use crate::{claims, fibers};

/// Makes ready the fibers that have none to wait for after the end of these. Each is locked before
/// its other waits are read, so that the concurrent end of another child comes before or after.
pub(crate) async fn wake_parents(tx: &Tx, children: &[Seq], now_ms: i64) -> Done<()> {
    let parents = tx
        .rows(
            "SELECT seq FROM @fibers WHERE seq IN (SELECT fiber FROM @joins WHERE child = ANY ($1)) ORDER BY seq FOR NO KEY UPDATE",
            args![children],
        )
        .await?;
    let parents: Vec<Seq> = parents.iter().map(|row| row.int("seq")).collect::<Done<_>>()?;
    tx.run("DELETE FROM @joins WHERE child = ANY ($1)", args![children]).await?;
    let free = tx
        .rows(
            "SELECT p AS seq FROM unnest($1) p WHERE NOT EXISTS (SELECT 1 FROM @joins WHERE fiber = p)
                    OR EXISTS (SELECT 1 FROM @waits WHERE fiber = p AND any_join)",
            args![parents],
        )
        .await?;
    let free: Vec<Seq> = free.iter().map(|row| row.int("seq")).collect::<Done<_>>()?;
    let woken = wake(tx, &free, now_ms).await?;
    tx.ready().extend(woken);
    Ok(())
}

/// Makes ready those of the fibers that wait.
pub(crate) async fn wake(tx: &Tx, fibers: &[Seq], now_ms: i64) -> Done<Vec<Runnable>> {
    if fibers.is_empty() {
        return Ok(Vec::new());
    }
    let woken = tx
        .rows(
            "WITH locked AS MATERIALIZED (SELECT seq FROM @fibers WHERE seq = ANY ($1) AND state = 'waiting' ORDER BY seq FOR NO KEY UPDATE)
             UPDATE @fibers f SET state = 'pending', changed_ms = $2 FROM locked WHERE f.seq = locked.seq RETURNING f.seq",
            args![fibers, now_ms],
        )
        .await?;
    let woken: Vec<Seq> = woken.iter().map(|row| row.int("seq")).collect::<Done<_>>()?;
    if !woken.is_empty() {
        tx.run("DELETE FROM @waits WHERE fiber = ANY ($1)", args![&woken]).await?;
        tx.run("DELETE FROM @joins WHERE fiber = ANY ($1)", args![&woken]).await?;
    }
    fibers::runnable(tx, &woken).await
}

pub(crate) async fn wait(tx: &Tx, claim: Claim, wait: &Wait, now_ms: i64) -> Done<WaitResult> {
    claims::hold(tx, claim).await?;
    let seq = claim.fiber;
    if wait.due_ms.is_some_and(|due| due <= now_ms) {
        return Ok(WaitResult::Ready);
    }
    if !wait.topics.is_empty() {
        let sql = "SELECT EXISTS (SELECT 1 FROM @messages WHERE fiber = $1 AND topic = ANY ($2)) AS there";
        if tx.one(sql, args![seq, &wait.topics]).await?.flag("there")? {
            return Ok(WaitResult::Ready);
        }
    }
    if !wait.fibers.is_empty() {
        let mut ids = wait.fibers.clone();
        ids.sort_unstable();
        ids.dedup();
        // A child that ends concurrently either does so before this query, or finds the wait.
        let open =
            tx.rows("SELECT seq FROM @fibers WHERE id = ANY ($1) AND finished_ms IS NULL ORDER BY seq FOR SHARE", args![&ids]).await?;
        let open: Vec<Seq> = open.iter().map(|row| row.int("seq")).collect::<Done<_>>()?;
        if open.is_empty() || wait.any_fiber && open.len() < ids.len() {
            return Ok(WaitResult::Ready);
        }
        tx.run("INSERT INTO @joins (child, fiber) SELECT child, $2 FROM unnest($1) child ON CONFLICT DO NOTHING", args![open, seq]).await?;
    }
    tx.run("DELETE FROM @waits WHERE fiber = $1", args![seq]).await?;
    let insert = format!(
        "INSERT INTO @waits (fiber, due_ms, any_join, place)
         SELECT $1, $2, $3, CASE WHEN NOT f.closure THEN {} END FROM @fibers f LEFT JOIN @snapshots s ON s.fiber = f.seq WHERE f.seq = $1",
        digest_of_place(["f.name", "s.at", "s.layout", "s.callees"], &fibers::mixed())
    );
    tx.run(&insert, args![seq, wait.due_ms, wait.any_fiber]).await?;
    if !wait.topics.is_empty() {
        tx.run(
            "INSERT INTO @wait_topics (fiber, topic) SELECT $1, topic FROM unnest($2) topic ON CONFLICT DO NOTHING",
            args![seq, &wait.topics],
        )
        .await?;
    }
    let waits = tx
        .run(
            "UPDATE @fibers SET state = 'waiting', reason = NULL, changed_ms = $2 WHERE seq = $1 AND finished_ms IS NULL AND cancel IS NULL",
            args![seq, now_ms],
        )
        .await?;
    if waits == 0 {
        // A fiber that was cancelled meanwhile does not wait.
        tx.undo();
        return Ok(WaitResult::Ready);
    }
    claims::release(tx, &[seq]).await?;
    Ok(WaitResult::Waiting)
}

/// Digest of a function, a cut point, a layout and the layouts of called functions, and whether
/// other layouts are mixed in, as SQL. Fibers that wait are counted by it: the texts themselves
/// would not fit into an index.
pub(crate) fn digest_of_place(parts: [&str; 4], mixed: &str) -> String {
    let parts = parts.join(", ");
    format!("substr(sha256(convert_to(json_build_array({parts})::text || CASE WHEN {mixed} THEN 'mixed' ELSE '' END, 'UTF8')), 1, 16)")
}

pub(crate) async fn take_due(tx: &Tx, now_ms: i64, limit: u32) -> Done<Vec<Runnable>> {
    // When several workers poll at the same time, each fiber goes to one of them.
    let due = tx
        .rows(
            "SELECT w.fiber FROM @waits w JOIN @fibers f ON f.seq = w.fiber WHERE w.due_ms <= $1 AND f.state = 'waiting'
             ORDER BY w.due_ms LIMIT $2 FOR NO KEY UPDATE OF f, w SKIP LOCKED",
            args![now_ms, limit],
        )
        .await?;
    let due: Vec<Seq> = due.iter().map(|row| row.int("fiber")).collect::<Done<_>>()?;
    let mut woken = wake(tx, &due, now_ms).await?;
    woken.sort_by_key(|fiber| due.iter().position(|seq| *seq == fiber.seq));
    Ok(woken)
}

pub(crate) async fn next_due(tx: &Tx) -> Done<Option<i64>> {
    tx.one("SELECT min(due_ms) AS due_ms FROM @waits WHERE due_ms IS NOT NULL", args![]).await?.int_opt("due_ms")
}
