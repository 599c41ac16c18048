//! Fibers: spawned, loaded, checkpointed, suspended, ended.
use std::sync::Arc;

use forever_store::{
    AcceptResult, AgentId, BranchResult, Claim, End, FiberRef, FiberRetry, FiberRow, FiberState, LayoutRow, LoadedFiber, NewFiber,
    NewSnapshot, OpOutcome, OpRetry, RestartResult, Runnable, Seq, SnapshotRows, StreamAppend, Suspension, UnfinishedGroup, Wait, WorkerId,
};

use crate::notify::{CHANGED, READY};
use crate::sql::{Arg, Done, Row, Tx, args, damaged, refused};
use crate::{admin, claims, layouts, ops, snapshot_rows, streams, topics, waits};

pub(crate) async fn accept(tx: &Tx, new: &NewFiber) -> Done<AcceptResult> {
    let made = insert(tx, new).await?;
    // Read after the insert, which waits for a deletion under way: the tombstone is stored by then.
    let given = [new.id_given.then(|| FiberRef::Id(new.id.clone())), new.key.clone().map(FiberRef::Key)];
    for given in given.into_iter().flatten() {
        if let Some(past) = admin::tombstone(tx, &given).await? {
            tx.undo();
            return Ok(AcceptResult::Deleted(Box::new(past)));
        }
    }
    if let Some(claim) = made {
        return Ok(AcceptResult::Created(claim));
    }
    let by_id = find(tx, &FiberRef::Id(new.id.clone())).await?;
    let there = match (by_id, &new.key) {
        (Some(row), _) => Some(row),
        (None, Some(key)) => find(tx, &FiberRef::Key(key.clone())).await?,
        (None, None) => None,
    };
    match there {
        Some(row) => Ok(AcceptResult::Existing(Box::new(row))),
        None => refused("the fiber with the same id or key was deleted at this moment"),
    }
}

/// Stores a fiber, with a claim if a worker is named. Returns `None` if its id or key is taken.
pub(crate) async fn insert(tx: &Tx, new: &NewFiber) -> Done<Option<Claim>> {
    let (class, agent) = new.agent.as_ref().map(|a| (a.class.as_str(), a.name.as_str())).unzip();
    let epoch = i64::from(new.worker.is_some());
    if new.worker.is_none() {
        tx.announce(READY);
    }
    let made = tx
        .row(
            "WITH made AS (
                 INSERT INTO @fibers (id, name, key, state, closure, id_given, class, agent, parent, args, metadata, created_ms, changed_ms)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $12) ON CONFLICT DO NOTHING RETURNING seq)
             INSERT INTO @snapshots (fiber, epoch, worker) SELECT seq, $13, $14 FROM made RETURNING fiber",
            args![
                &new.id,
                &new.name,
                &new.key,
                if new.worker.is_some() { "running" } else { "pending" },
                new.closure,
                new.id_given,
                class,
                agent,
                new.parent,
                &new.args,
                &new.metadata,
                new.now_ms,
                epoch,
                new.worker,
            ],
        )
        .await?;
    made.map(|row| Ok(Claim { fiber: row.int("fiber")?, epoch })).transpose()
}

pub(crate) const ROW: &str = "SELECT f.seq, f.id, f.name, f.key, f.state, f.closure, f.class, f.agent, p.id AS parent, f.reason, f.args,
        f.metadata, f.result, f.created_ms, f.changed_ms, f.finished_ms, s.number, s.at, s.deaths, s.saved_ms, w.due_ms, w.any_join, w.topics,
        w.fibers, r.step, r.failed, r.error, r.next_ms
    FROM @fibers f LEFT JOIN @snapshots s ON s.fiber = f.seq LEFT JOIN @fibers p ON p.seq = f.parent
    LEFT JOIN LATERAL (SELECT o.step, o.failed, o.error, o.next_ms FROM @ops o
        WHERE o.fiber = f.seq AND o.number = s.number AND o.state IN ('started', 'not_executed') AND o.error IS NOT NULL
        ORDER BY o.next_ms DESC LIMIT 1) r ON TRUE
    LEFT JOIN LATERAL (SELECT w.due_ms, w.any_join,
            (SELECT array_agg(t.topic ORDER BY t.topic) FROM @wait_topics t WHERE t.fiber = w.fiber) AS topics,
            (SELECT array_agg(c.id ORDER BY c.seq) FROM @joins j JOIN @fibers c ON c.seq = j.child WHERE j.fiber = w.fiber) AS fibers
        FROM @waits w WHERE w.fiber = f.seq) w ON f.state = 'waiting'";

/// The column that a reference selects by, and the value.
pub(crate) fn column(which: &FiberRef) -> (&'static str, Arg<'_>) {
    match which {
        FiberRef::Id(id) => ("id", id.into()),
        FiberRef::Key(key) => ("key", key.into()),
        FiberRef::Seq(seq) => ("seq", (*seq).into()),
    }
}

pub(crate) async fn find(tx: &Tx, which: &FiberRef) -> Done<Option<FiberRow>> {
    let (column, value) = column(which);
    tx.row(&format!("{ROW} WHERE f.{column} = $1"), &[value]).await?.as_ref().map(fiber_row).transpose()
}

/// Finds a fiber and locks its row until the end of the transaction.
pub(crate) async fn find_locked(tx: &Tx, which: &FiberRef) -> Done<Option<FiberRow>> {
    let (column, value) = column(which);
    let locked = tx.row(&format!("SELECT seq FROM @fibers WHERE {column} = $1 FOR NO KEY UPDATE"), &[value]).await?;
    match locked {
        Some(row) => find(tx, &FiberRef::Seq(row.int("seq")?)).await,
        None => Ok(None),
    }
}

pub(crate) fn fiber_row(row: &Row) -> Done<FiberRow> {
    Ok(FiberRow {
        seq: row.int("seq")?,
        id: row.text("id")?,
        name: row.text("name")?,
        closure: row.flag("closure")?,
        agent: agent(row)?,
        parent: row.text_opt("parent")?,
        key: row.text_opt("key")?,
        state: row.word("state")?,
        reason: row.text_opt("reason")?,
        args: row.text("args")?,
        metadata: row.text_opt("metadata")?,
        result: row.text_opt("result")?,
        checkpoints: row.number("number")?,
        at: row.text_opt("at")?,
        deaths: row.count("deaths")?,
        retry: retry(row)?,
        wait: wait(row)?,
        created_ms: row.int("created_ms")?,
        changed_ms: row.int("changed_ms")?,
        saved_ms: row.int_opt("saved_ms")?,
        finished_ms: row.int_opt("finished_ms")?,
    })
}

/// The condition that wakes a waiting fiber.
fn wait(row: &Row) -> Done<Option<Wait>> {
    let Some(any_fiber) = row.flag_opt("any_join")? else { return Ok(None) };
    Ok(Some(Wait { due_ms: row.int_opt("due_ms")?, topics: row.texts("topics")?, fibers: row.texts("fibers")?, any_fiber }))
}

fn retry(row: &Row) -> Done<Option<FiberRetry>> {
    let (Some(step), Some(error), Some(next_ms)) = (row.text_opt("step")?, row.text_opt("error")?, row.int_opt("next_ms")?) else {
        return Ok(None);
    };
    Ok(Some(FiberRetry { step, failed: row.count("failed")?, last: OpRetry { error, next_ms } }))
}

fn agent(row: &Row) -> Done<Option<AgentId>> {
    Ok(Option::zip(row.text_opt("class")?, row.text_opt("agent")?).map(|(class, name)| AgentId { class, name }))
}

/// A fiber of an agent that was interrupted and is ready waits for the decision of its agent's
/// hook: it is shown as interrupted.
pub(crate) const RUNNABLE: &str = "SELECT f.seq, f.id, f.name, f.closure, f.class, f.agent,
        coalesce(s.epoch, 0) AS epoch, coalesce(s.deaths, 0) AS deaths,
        CASE WHEN f.state = 'pending' AND f.reason IS NOT NULL AND f.agent IS NOT NULL AND f.name NOT LIKE 'forever.%' THEN 'interrupted'
             ELSE f.state END AS state
    FROM @fibers f LEFT JOIN @snapshots s ON s.fiber = f.seq";

pub(crate) fn runnable_row(row: &Row) -> Done<Runnable> {
    Ok(Runnable {
        seq: row.int("seq")?,
        id: row.text("id")?,
        name: row.text("name")?,
        closure: row.flag("closure")?,
        agent: agent(row)?,
        state: row.word("state")?,
        epoch: row.int("epoch")?,
        deaths: row.count("deaths")?,
    })
}

/// The fibers with these sequence numbers, as the dispatcher sees them.
pub(crate) async fn runnable(tx: &Tx, seqs: &[Seq]) -> Done<Vec<Runnable>> {
    if seqs.is_empty() {
        return Ok(Vec::new());
    }
    tx.rows(&format!("{RUNNABLE} WHERE f.seq = ANY ($1) ORDER BY f.seq"), args![seqs]).await?.iter().map(runnable_row).collect()
}

pub(crate) async fn unfinished(tx: &Tx, after: Seq, limit: u32, worker: WorkerId) -> Done<Vec<Runnable>> {
    // One index scan for each state, merged: a page costs the same however many fibers there are.
    let of = |state| {
        // What another worker runs is no business of this one.
        let free = match state {
            FiberState::Running => "AND (s.worker = $3 OR NOT EXISTS (SELECT 1 FROM @workers w WHERE w.id = s.worker))",
            _ => "",
        };
        format!("({RUNNABLE} WHERE f.state <> 'completed' AND f.state = '{state}' AND f.seq > $1 {free} ORDER BY f.seq LIMIT $2)")
    };
    let states = [FiberState::Pending, FiberState::Running, FiberState::Interrupted, FiberState::Parked].map(of);
    let sql = format!("{} ORDER BY 1 LIMIT $2", states.join(" UNION ALL "));
    tx.rows(&sql, args![after, limit, worker]).await?.iter().map(runnable_row).collect()
}

/// Condition: an operation or a branch result after a snapshot was stored under another layout than
/// the snapshot.
pub(crate) fn mixed() -> String {
    let any = |table: &str| {
        format!(
            "EXISTS (SELECT 1 FROM {table} b WHERE b.fiber = f.seq AND b.number = s.number AND b.layout IS NOT NULL
                     AND b.layout IS DISTINCT FROM s.layout AND strpos(coalesce(s.callees, ''), b.layout) = 0)"
        )
    };
    format!("({} OR {})", any("@branch_results"), any("@ops"))
}

/// Condition: a fiber that has not ended, does not wait, and is no closure.
const READY_OR_STOPPED: &str = "f.state IN ('pending', 'running', 'interrupted', 'parked') AND f.state <> 'completed' AND NOT f.closure";

/// Groups fibers that wait by their places: they are counted from an index, and one of each place
/// is read.
pub(crate) fn groups() -> String {
    format!(
        "SELECT name, waiting, at, layout, callees, mixed, sum(fibers)::bigint AS fibers FROM (
             SELECT f.name, TRUE AS waiting, s.at, s.layout, s.callees, {} AS mixed, w.fibers
             FROM (SELECT min(fiber) AS fiber, count(*) AS fibers FROM @waits WHERE place IS NOT NULL GROUP BY place) w
             JOIN @fibers f ON f.seq = w.fiber LEFT JOIN @snapshots s ON s.fiber = w.fiber
             UNION ALL SELECT f.name, FALSE, s.at, s.layout, s.callees, {}, 1
             FROM @fibers f LEFT JOIN @snapshots s ON s.fiber = f.seq WHERE {READY_OR_STOPPED}) each_place
         GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4, 5, 6",
        mixed(),
        mixed()
    )
}

pub(crate) async fn unfinished_groups(tx: &Tx) -> Done<Vec<UnfinishedGroup>> {
    let group = |row: &Row| {
        Ok(UnfinishedGroup {
            name: row.text("name")?,
            waiting: row.flag("waiting")?,
            at: row.text_opt("at")?,
            layout: row.text_opt("layout")?,
            callees: row.text_opt("callees")?,
            mixed: row.flag("mixed")?,
            fibers: row.number("fibers")?,
        })
    };
    tx.rows(&groups(), args![]).await?.iter().map(group).collect()
}

pub(crate) async fn unfinished_of(tx: &Tx, group: &UnfinishedGroup, after: Seq, limit: u32) -> Done<Vec<Seq>> {
    let UnfinishedGroup { name, waiting, at, layout, callees, mixed, fibers: _ } = group;
    let rows = tx.rows(&of_group(*waiting), args![after, limit, name, at, layout, callees, *mixed]).await?;
    rows.iter().map(|row| row.int("seq")).collect()
}

/// The fibers of a group: behind $1, at most $2.
pub(crate) fn of_group(waiting: bool) -> String {
    if waiting {
        let place = waits::digest_of_place(["$3", "$4", "$5", "$6"], "$7");
        format!("SELECT fiber AS seq FROM @waits WHERE place = {place} AND fiber > $1 ORDER BY fiber LIMIT $2")
    } else {
        format!(
            "SELECT f.seq FROM @fibers f LEFT JOIN @snapshots s ON s.fiber = f.seq
             WHERE {READY_OR_STOPPED} AND f.seq > $1 AND f.name = $3 AND s.at IS NOT DISTINCT FROM $4 AND s.layout IS NOT DISTINCT FROM $5
             AND s.callees IS NOT DISTINCT FROM $6 AND {} = $7 ORDER BY f.seq LIMIT $2",
            mixed()
        )
    }
}

pub(crate) async fn load(tx: &Tx, seq: Seq) -> Done<LoadedFiber> {
    let sql = format!(
        "SELECT f.args, f.restarts,
                f.state IN ('interrupted', 'running') OR f.state = 'pending' AND f.reason IS NOT NULL AS interrupted,
                f.state = 'completed' OR s.fiber IS NOT NULL AS there, s.at, s.data, s.number, s.deaths, s.epoch, s.callees, {}
         FROM @fibers f LEFT JOIN @snapshots s ON s.fiber = f.seq LEFT JOIN @layouts l ON l.hash = s.layout WHERE f.seq = $1",
        layouts::COLUMNS
    );
    let row = tx.row(&sql, args![seq]).await?.ok_or_else(|| damaged(format!("there is no fiber with number {seq}")))?;
    // Without its snapshot a fiber would start over, and repeat finished steps.
    if !row.flag("there")? {
        return Err(damaged(format!("the row of fiber {seq} in `snapshots` is missing")));
    }
    let (snapshot, at) = (row.text_opt("data")?, row.text_opt("at")?);
    if snapshot.is_none() && at.is_some() {
        return Err(damaged(format!("the snapshot of fiber {seq} is missing")));
    }
    let number = row.number("number")?;
    let rows = if snapshot.is_some() { snapshot_rows::load(tx, seq).await? } else { SnapshotRows::default() };
    Ok(LoadedFiber {
        args: row.text("args")?,
        snapshot,
        rows,
        number,
        restarts: row.count("restarts")?,
        deaths: row.count("deaths")?,
        interrupted: row.flag("interrupted")?,
        epoch: row.int_opt("epoch")?.unwrap_or(0),
        lease_left_ms: None,
        ops: ops::since(tx, seq, number).await?,
        branches: branches(tx, seq, number).await?,
        layout: layouts::of(&row)?,
        callees: layouts::with_hashes(tx, &row.text_opt("callees")?.unwrap_or_default()).await?,
    })
}

/// The branch results stored since checkpoint `number`.
async fn branches(tx: &Tx, seq: Seq, number: u64) -> Done<Vec<BranchResult>> {
    let sql = format!(
        "SELECT b.branch, b.data, {} FROM @branch_results b LEFT JOIN @layouts l ON l.hash = b.layout
         WHERE b.fiber = $1 AND b.number = $2 ORDER BY b.branch COLLATE \"C\"",
        layouts::COLUMNS
    );
    let result =
        |row: &Row| Ok(BranchResult { branch: row.text("branch")?, data: row.text("data")?, layout: layouts::of(row)?.map(Arc::new) });
    tx.rows(&sql, args![seq, number]).await?.iter().map(result).collect()
}

pub(crate) async fn checkpoint(tx: &Tx, claim: Claim, new: &NewSnapshot) -> Done<Vec<Claim>> {
    // A field that is not stored does not compile.
    let NewSnapshot { number, replaces, at, data, now_ms, layouts, ops, delta, streams, received, closed, joined, children } = new;
    let seq = claim.fiber;
    // A concurrent cancel waits until the children are stored, and then cancels them too.
    let cancelled = !children.is_empty()
        && match tx.row("SELECT cancel IS NOT NULL AS cancelled FROM @fibers WHERE seq = $1 FOR SHARE", args![seq]).await? {
            Some(row) => row.flag("cancelled")?,
            None => false,
        };
    if closed.is_some() {
        // A message is sent under this lock: it is stored before the topic is closed, or refused.
        tx.row("SELECT 1 AS there FROM @fibers WHERE seq = $1 FOR NO KEY UPDATE", args![seq]).await?;
    }
    let (mut layout, mut callees) = (None, None);
    if let Some(layouts) = layouts {
        layouts::save(tx, layouts.iter().map(|layout| &**layout)).await?;
        layout = layouts.first().map(|layout| layout.hash.as_str());
        callees = LayoutRow::hashes(layouts.iter().skip(1).map(|layout| &**layout));
    }
    // The number follows the stored one, unless the row was changed by hand.
    let replaced = tx
        .run(
            "UPDATE @snapshots SET number = $2, deaths = 0, saved_ms = $3, at = $4, data = $5,
                    layout = CASE WHEN $7 THEN $8 ELSE layout END, callees = CASE WHEN $7 THEN $9 ELSE callees END
             WHERE fiber = $1 AND number = $10 AND epoch = $6",
            args![seq, *number, *now_ms, *at, data, claim.epoch, layouts.is_some(), layout, &callees, new.follows()],
        )
        .await?;
    if replaced == 0 {
        claims::check(tx, claim).await?;
        let stored = if *replaces { "replace" } else { "follow" };
        return refused(format!("checkpoint {number} does not {stored} the stored one"));
    }
    ops::pass(tx, seq, new.follows(), ops, *now_ms).await?;
    snapshot_rows::change(tx, seq, delta).await?;
    streams::change(tx, seq, streams, *now_ms).await?;
    if !received.is_empty() {
        tx.run("DELETE FROM @messages WHERE seq = ANY ($1) AND fiber = $2", args![received, seq]).await?;
    }
    if let Some(topic) = closed {
        topics::close(tx, seq, topic, *number).await?;
    }
    if *joined {
        tx.run("DELETE FROM @branch_results WHERE fiber = $1", args![seq]).await?;
    }
    if cancelled {
        // The command that cancelled the fiber has cancelled its children. It would have missed
        // these.
        return refused("the fiber is cancelled, and makes no children any more");
    }
    let mut made = Vec::with_capacity(children.len());
    for child in children {
        match insert(tx, child).await? {
            Some(claim) => made.push(claim),
            None => return refused(format!("there is a fiber with id `{}` already", child.id)),
        }
    }
    Ok(made)
}

pub(crate) async fn stash(tx: &Tx, claim: Claim, data: &str, now_ms: i64) -> Done<()> {
    let stored = tx
        .run(
            "UPDATE @snapshots SET number = number + 1, deaths = 0, saved_ms = $3, data = $4
             WHERE fiber = $1 AND epoch = $2 AND worker IS NOT NULL",
            args![claim.fiber, claim.epoch, now_ms, data],
        )
        .await?;
    if stored == 0 { Err(claims::lost(claim)) } else { Ok(()) }
}

pub(crate) async fn save_branch(
    tx: &Tx,
    claim: Claim,
    number: u64,
    result: &BranchResult,
    appended: &[StreamAppend],
    now_ms: i64,
) -> Done<()> {
    claims::check_running(tx, claim).await?;
    insert_branch(tx, claim.fiber, number, result).await?;
    streams::append(tx, claim.fiber, appended, now_ms).await?;
    forget_deaths(tx, claim.fiber).await
}

/// Appends to streams of a fiber between two checkpoints.
pub(crate) async fn append(tx: &Tx, claim: Claim, appended: &[StreamAppend], now_ms: i64) -> Done<()> {
    claims::check_running(tx, claim).await?;
    streams::append(tx, claim.fiber, appended, now_ms).await
}

pub(crate) async fn insert_branch(tx: &Tx, seq: Seq, number: u64, result: &BranchResult) -> Done<()> {
    let BranchResult { branch, data, layout } = result;
    layouts::save(tx, layout.as_deref()).await?;
    tx.run(
        "INSERT INTO @branch_results (fiber, number, branch, data, layout) VALUES ($1, $2, $3, $4, $5)",
        args![seq, number, branch, data, layout.as_ref().map(|layout| &layout.hash)],
    )
    .await
    .map(drop)
}

/// Resets the deaths of a fiber that made progress, as a checkpoint does.
pub(crate) async fn forget_deaths(tx: &Tx, seq: Seq) -> Done<()> {
    tx.run("UPDATE @snapshots SET deaths = 0 WHERE fiber = $1 AND deaths > 0", args![seq]).await.map(drop)
}

/// Condition: fiber `f` leaves rows in other tables when it ends.
pub(crate) const LEAVES: &str = "(EXISTS (SELECT 1 FROM @ops o JOIN @snapshots s ON s.fiber = o.fiber AND s.number = o.number
            WHERE o.fiber = f.seq AND o.kind IN ('step', 'transaction'))
    OR EXISTS (SELECT 1 FROM @messages WHERE fiber = f.seq) OR EXISTS (SELECT 1 FROM @waits WHERE fiber = f.seq)
    OR EXISTS (SELECT 1 FROM @joins WHERE fiber = f.seq) OR EXISTS (SELECT 1 FROM @branch_results WHERE fiber = f.seq))";

/// Condition: fiber `f` has rows beside the main text of its snapshot.
pub(crate) const HAS_ROWS: &str = "(EXISTS (SELECT 1 FROM @parts WHERE fiber = f.seq)
    OR EXISTS (SELECT 1 FROM @stream_items WHERE fiber = f.seq AND name >= 'log/' AND name < 'log0'))";

/// Ends a claimed fiber.
pub(crate) async fn end(tx: &Tx, claim: Claim, how: &End, settled: &[OpOutcome], appended: &[StreamAppend], now_ms: i64) -> Done<End> {
    claims::hold(tx, claim).await?;
    streams::append(tx, claim.fiber, appended, now_ms).await?;
    finish(tx, claim.fiber, how, settled, now_ms).await?.ok_or_else(|| claims::lost(claim))
}

/// Ends a fiber whose row is locked, unless it has ended, and makes ready the fibers for which it
/// was the last one to wait for.
pub(crate) async fn finish(tx: &Tx, seq: Seq, end: &End, settled: &[OpOutcome], now_ms: i64) -> Done<Option<End>> {
    // Most fibers leave nothing but a snapshot: one query is cheaper than a statement for each
    // table.
    let sql = format!(
        "SELECT f.cancel, {LEAVES} AS leaves, {HAS_ROWS} AS has_rows, EXISTS (SELECT 1 FROM @joins WHERE child = f.seq) AS waited_for
         FROM @fibers f WHERE f.seq = $1"
    );
    let look = tx.one(&sql, args![seq]).await?;
    let end = match look.text_opt("cancel")? {
        Some(reason) => End::Cancelled(reason),
        None => end.clone(),
    };
    let (state, reason, result) = match &end {
        End::Completed(result) => (FiberState::Completed, None, Some(result)),
        End::Failed(why) => (FiberState::Failed, Some(why), None),
        End::Cancelled(why) => (FiberState::Cancelled, Some(why), None),
    };
    let finished = tx
        .run(
            "UPDATE @fibers SET state = $2, reason = $3, result = $4, changed_ms = $5, finished_ms = $5 WHERE seq = $1 AND finished_ms IS NULL",
            args![seq, state.as_str(), reason, result, now_ms],
        )
        .await?;
    if finished == 0 {
        return Ok(None);
    }
    tx.announce(CHANGED);
    ops::settle(tx, seq, settled, now_ms).await?;
    if look.flag("leaves")? {
        leave(tx, &[seq], state).await?;
    }
    if state == FiberState::Completed {
        tx.run("DELETE FROM @snapshots WHERE fiber = $1", args![seq]).await?;
        if look.flag("has_rows")? {
            snapshot_rows::delete(tx, &[seq]).await?;
        }
    } else {
        claims::release(tx, &[seq]).await?;
    }
    if look.flag("waited_for")? {
        waits::wake_parents(tx, &[seq], now_ms).await?;
    }
    Ok(Some(end))
}

/// Ends cancelled fibers whose rows are locked, as [`finish`] does each, by a number of statements
/// that does not depend on theirs.
pub(crate) async fn finish_cancelled(tx: &Tx, fibers: &[Seq], now_ms: i64) -> Done<()> {
    if fibers.is_empty() {
        return Ok(());
    }
    tx.run(
        "UPDATE @fibers SET state = 'cancelled', reason = cancel, result = NULL, changed_ms = $2, finished_ms = $2 WHERE seq = ANY ($1)",
        args![fibers, now_ms],
    )
    .await?;
    tx.announce(CHANGED);
    leave(tx, fibers, FiberState::Cancelled).await?;
    claims::release(tx, fibers).await?;
    waits::wake_parents(tx, fibers, now_ms).await
}

/// Deletes what fibers that have ended need no longer in other tables, and reports their unread
/// messages.
async fn leave(tx: &Tx, fibers: &[Seq], state: FiberState) -> Done<()> {
    tx.run("DELETE FROM @waits WHERE fiber = ANY ($1)", args![fibers]).await?;
    tx.run("DELETE FROM @joins WHERE fiber = ANY ($1)", args![fibers]).await?;
    // A failed fiber may be resumed, and then needs its branch results and temporary operations.
    if state != FiberState::Failed {
        ops::forget_latest_temporary(tx, fibers).await?;
        tx.run("DELETE FROM @branch_results WHERE fiber = ANY ($1)", args![fibers]).await?;
    }
    let unread = topics::unread(tx, fibers, state).await?;
    tx.unread().extend(unread);
    Ok(())
}

pub(crate) async fn is_cancelled(tx: &Tx, seq: Seq) -> Done<bool> {
    tx.one("SELECT cancel IS NOT NULL AS cancelled FROM @fibers WHERE seq = $1", args![seq]).await?.flag("cancelled")
}

/// Suspends a claimed fiber; one that was cancelled ends instead.
pub(crate) async fn suspend(tx: &Tx, claim: Claim, how: &Suspension, now_ms: i64) -> Done<Option<End>> {
    claims::hold(tx, claim).await?;
    if is_cancelled(tx, claim.fiber).await? {
        let end = finish(tx, claim.fiber, &End::Cancelled(String::new()), &[], now_ms).await?;
        return end.ok_or_else(|| claims::lost(claim)).map(Some);
    }
    tx.announce(CHANGED);
    let (state, reason, hook_worker) = match how {
        Suspension::Interrupted(why) => ("interrupted", why, None),
        Suspension::HookFailed { reason, worker } => ("interrupted", reason, Some(*worker)),
        Suspension::Parked(why) => ("parked", why, None),
    };
    // A fiber that is parked at every open for the same reason costs no write.
    tx.run(
        "UPDATE @fibers SET state = $2, reason = $3, hook_worker = $5, changed_ms = $4
         WHERE seq = $1 AND (state <> $2 OR reason IS DISTINCT FROM $3 OR hook_worker IS DISTINCT FROM $5) AND finished_ms IS NULL",
        args![claim.fiber, state, reason, now_ms, hook_worker],
    )
    .await?;
    claims::release(tx, &[claim.fiber]).await?;
    Ok(None)
}

pub(crate) async fn restart_claimed(tx: &Tx, claim: Claim, now_ms: i64) -> Done<RestartResult> {
    claims::hold(tx, claim).await?;
    if let Some(op) = forget_progress(tx, claim.fiber).await? {
        return Ok(RestartResult::InDoubt(op));
    }
    topics::forget_ids(tx, claim.fiber).await?;
    make_ready(tx, claim.fiber, now_ms).await?;
    Ok(RestartResult::Ready)
}

/// Resets a fiber to its start. If an operation is in doubt, returns its id and changes nothing.
pub(crate) async fn forget_progress(tx: &Tx, seq: Seq) -> Done<Option<String>> {
    if let Some(op) = ops::in_doubt(tx, seq).await? {
        return Ok(Some(op));
    }
    ops::forget_latest_temporary(tx, &[seq]).await?;
    // Both counts continue. They are part of operation ids, so the restarted fiber gets new ids.
    tx.run("UPDATE @fibers SET restarts = restarts + 1 WHERE seq = $1", args![seq]).await?;
    tx.run("UPDATE @snapshots SET data = NULL, at = NULL, layout = NULL, callees = NULL, number = number + 1 WHERE fiber = $1", args![seq])
        .await?;
    tx.run("DELETE FROM @branch_results WHERE fiber = $1", args![seq]).await?;
    tx.run("DELETE FROM @closed_topics WHERE fiber = $1", args![seq]).await?;
    snapshot_rows::delete(tx, &[seq]).await?;
    Ok(None)
}

/// Makes a stopped fiber ready, and voids its claims. A fiber that ended as cancelled is no longer
/// cancelled; one that was parked before it could end stays cancelled.
pub(crate) async fn make_ready(tx: &Tx, seq: Seq, now_ms: i64) -> Done<()> {
    tx.run(
        "UPDATE @fibers SET cancel = CASE state WHEN 'cancelled' THEN NULL ELSE cancel END,
                state = 'pending', reason = NULL, changed_ms = $2, finished_ms = NULL WHERE seq = $1",
        args![seq, now_ms],
    )
    .await?;
    tx.run("UPDATE @snapshots SET deaths = 0, worker = NULL, epoch = least(epoch, 9223372036854775806) + 1 WHERE fiber = $1", args![seq])
        .await?;
    // Every worker looks at it again.
    tx.run("DELETE FROM @declined WHERE fiber = $1", args![seq]).await?;
    let ready = runnable(tx, &[seq]).await?;
    tx.ready().extend(ready);
    Ok(())
}
