//! What workers publish to each other: broadcasts of agents, and events of fibers.
//!
//! Each worker numbers its items, and stores them one batch after the other, so the items of one
//! worker are seen in their order and without gaps that fill later.
use forever_store::{AgentId, Publication, PublishedItem, PublishedPage, PublishedQuery, WorkerId};

use crate::notify::CHANGED;
use crate::sql::{Done, Row, Tx, args};

/// Most items of one worker that one call reads.
const PAGE: u64 = 1000;

pub(crate) async fn publish(tx: &Tx, worker: WorkerId, first: u64, items: &[Publication]) -> Done<()> {
    let numbers: Vec<i64> = (first..).take(items.len()).map(|number| i64::try_from(number).unwrap_or(i64::MAX)).collect();
    let agents = items.iter().map(|item| item.agent.as_ref());
    let (classes, names): (Vec<Option<&str>>, Vec<Option<&str>>) =
        agents.map(|agent| (agent.map(|agent| agent.class.as_str()), agent.map(|agent| agent.name.as_str()))).unzip();
    let last = numbers.last().copied().unwrap_or(0);
    tx.run(
        "INSERT INTO @published (worker, number, class, name, data)
         SELECT $1, u.number, u.class, u.name, u.data FROM unnest($2::bigint[], $3::text[], $4::text[], $5::text[]) u (number, class, name, data)
         ON CONFLICT DO NOTHING",
        args![
            worker,
            &numbers,
            classes,
            names,
            items.iter().map(|item| item.data.as_str()).collect::<Vec<_>>(),
        ],
    )
    .await?;
    tx.run("UPDATE @workers SET published = greatest(published, $2) WHERE id = $1", args![worker, last]).await?;
    tx.announce(CHANGED);
    Ok(())
}

pub(crate) async fn published(tx: &Tx, query: &PublishedQuery) -> Done<PublishedPage> {
    let PublishedQuery { worker, after, agents, events } = query;
    let last = |row: &Row| Ok((row.int("id")?, row.number("published")?));
    let workers = tx.rows("SELECT id, published FROM @workers WHERE id <> $1 ORDER BY id", args![*worker]).await?;
    let workers: Vec<(WorkerId, u64)> = workers.iter().map(last).collect::<Done<_>>()?;
    if agents.is_empty() && !events {
        return Ok(PublishedPage { items: Vec::new(), workers, more: false });
    }
    // Items of workers that are gone are read as well.
    let mut cursors: Vec<(WorkerId, u64)> = after.iter().copied().filter(|(of, _)| of != worker).collect();
    cursors.extend(workers.iter().filter(|(id, _)| after.iter().all(|(known, _)| known != id)).map(|(id, _)| (*id, 0)));
    let (of, from): (Vec<i64>, Vec<i64>) = cursors.iter().map(|(of, from)| (*of, i64::try_from(*from).unwrap_or(i64::MAX))).unzip();
    let (classes, names): (Vec<&str>, Vec<&str>) = agents.iter().map(|agent| (agent.class.as_str(), agent.name.as_str())).unzip();
    let rows = tx
        .rows(
            "SELECT p.worker, p.number, p.class, p.name,
                    CASE WHEN p.class IS NULL AND $3 OR EXISTS (
                        SELECT 1 FROM unnest($4::text[], $5::text[]) a (class, name) WHERE a.class = p.class AND a.name = p.name)
                    THEN p.data END AS data
             FROM unnest($1::bigint[], $2::bigint[]) u (worker, after)
             CROSS JOIN LATERAL (SELECT * FROM @published p WHERE p.worker = u.worker AND p.number > u.after ORDER BY p.number LIMIT $6) p
             ORDER BY p.worker, p.number",
            args![&of, &from, *events, classes, names, PAGE],
        )
        .await?;
    let item = |row: &Row| {
        let agent = row.text_opt("class")?.zip(row.text_opt("name")?).map(|(class, name)| AgentId { class, name });
        Ok(PublishedItem { worker: row.int("worker")?, number: row.number("number")?, agent, data: row.text_opt("data")? })
    };
    let items: Vec<PublishedItem> = rows.iter().map(item).collect::<Done<_>>()?;
    let more = cursors.iter().any(|(of, _)| items.iter().filter(|item| item.worker == *of).count() as u64 >= PAGE);
    Ok(PublishedPage { items, workers, more })
}

pub(crate) async fn set_listens(tx: &Tx, worker: WorkerId, listens: bool) -> Done<()> {
    tx.announce(CHANGED);
    tx.run("UPDATE @workers SET listens = $2 WHERE id = $1", args![worker, listens]).await.map(drop)
}

/// Deletes the items that all workers have had the time to read.
pub(crate) async fn clean(tx: &Tx) -> Done<()> {
    tx.run("DELETE FROM @published WHERE stored < clock_timestamp() - INTERVAL '1 minute'", args![]).await.map(drop)
}
