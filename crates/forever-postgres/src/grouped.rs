//! Statements that write many rows, each on the condition of its claim. They say which rows they
//! wrote.
use std::collections::{HashMap, HashSet};

use forever_store::{Claim, End, LayoutRow, NewFiber, NewSnapshot, OpRecord, OpsDelta, Seq, StreamBatch, TurnSeq};

use crate::notify::{CHANGED, READY};
use crate::sql::{Arg, Done, Tx, args};
use crate::{fibers, ops, streams};

pub(crate) type Started = (Claim, Box<OpRecord>, i64);
pub(crate) type Chunks = (Claim, TurnSeq, StreamBatch);
pub(crate) type Ended = (Claim, End, i64);

/// A checkpoint, and the place of the row that it replaces, where it is known.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    pub(crate) claim: Claim,
    pub(crate) new: Box<NewSnapshot>,
    pub(crate) place: Option<String>,
}

impl Checkpoint {
    pub(crate) fn changes_ops(&self) -> bool {
        self.new.ops != OpsDelta::default()
    }
}

fn column<'a, J, T>(jobs: &'a [J], of: impl Fn(&'a J) -> T) -> Vec<T> {
    jobs.iter().map(of).collect()
}

fn number(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Runs a statement that returns the fibers of the rows that it wrote; says of each job whether its
/// row is among them.
async fn written<J>(tx: &Tx, sql: &str, args: &[Arg<'_>], jobs: &[J], fiber: impl Fn(&J) -> Seq) -> Done<Vec<Option<()>>> {
    let fibers: HashSet<Seq> = tx.rows(sql, args).await?.iter().map(|row| row.int("fiber")).collect::<Done<_>>()?;
    Ok(jobs.iter().map(|job| fibers.contains(&fiber(job)).then_some(())).collect())
}

/// Arguments of a statement, with the columns of its table of arguments `u`.
struct Table<'a> {
    has_one_row: bool,
    args: Vec<Arg<'a>>,
    /// Name and type of each.
    columns: Vec<(&'static str, &'static str)>,
}

impl<'a> Table<'a> {
    /// A table with a row for each job.
    fn of<J>(jobs: &[J]) -> Self {
        Table { has_one_row: jobs.len() == 1, args: Vec::new(), columns: Vec::new() }
    }

    /// Adds a column of numbers, texts or flags.
    fn add(&mut self, name: &'static str, of: &'static str, values: impl Into<Arg<'a>>) {
        self.args.push(values.into());
        self.columns.push((name, of));
    }

    /// The table, and its arguments. One row is no array: the server plans and runs that in less
    /// time.
    fn into_sql(self) -> (String, Vec<Arg<'a>>) {
        let columns = self.columns.into_iter().enumerate().map(|(n, (name, of))| (n + 1, name, of));
        if self.has_one_row {
            let values: Vec<_> = columns.map(|(n, name, of)| format!("${n}::{of} AS {name}")).collect();
            return (format!("(SELECT {}) u", values.join(", ")), self.args.into_iter().map(Arg::of_one).collect());
        }
        let (arrays, names): (Vec<_>, Vec<_>) = columns.map(|(n, name, of)| (format!("${n}::{of}[]"), name)).unzip();
        (format!("unnest({}) u ({})", arrays.join(", "), names.join(", ")), self.args)
    }
}

/// Stores checkpoints that all change operations or all do not, and of which the places of all are
/// known or of none; returns the new places.
pub(crate) async fn checkpoints(tx: &Tx, jobs: &[Checkpoint]) -> Done<Vec<Option<String>>> {
    let changes_ops = jobs.iter().any(Checkpoint::changes_ops);
    let appends: Vec<_> =
        jobs.iter().flat_map(|job| job.new.streams.appended.iter().map(|append| (job.claim.fiber, job.new.now_ms, append))).collect();
    let callees = column(jobs, |job| {
        let called = job.new.layouts.iter().flat_map(|layouts| layouts.iter().skip(1));
        LayoutRow::hashes(called.map(|layout| &**layout)).unwrap_or_default()
    });
    let mut table = Table::of(jobs);
    table.add("fiber", "bigint", column(jobs, |job| job.claim.fiber));
    table.add("epoch", "bigint", column(jobs, |job| job.claim.epoch));
    table.add("number", "bigint", column(jobs, |job| number(job.new.number)));
    table.add("saved_ms", "bigint", column(jobs, |job| job.new.now_ms));
    table.add("at", "text", column(jobs, |job| job.new.at));
    table.add("data", "text", column(jobs, |job| job.new.data.as_str()));
    let mut set = String::new();
    if jobs.iter().any(|job| job.new.layouts.is_some()) {
        table.add("lays_out", "bool", column(jobs, |job| job.new.layouts.is_some()));
        table.add(
            "layout",
            "text",
            column(jobs, |job| job.new.layouts.iter().filter_map(|all| all.first()).map(|l| l.hash.as_str()).next()),
        );
        table.add("callees", "text", callees.iter().map(|called| (!called.is_empty()).then_some(called.as_str())).collect::<Vec<_>>());
        set.push_str(
            ", layout = CASE WHEN u.lays_out THEN u.layout ELSE s.layout END, callees = CASE WHEN u.lays_out THEN u.callees ELSE s.callees END",
        );
    }
    if changes_ops {
        table.add("temporary", "bool", column(jobs, |job| job.new.ops.temporary));
    }
    let (u, mut args) = table.into_sql();
    let mut at_places = String::new();
    if jobs.iter().all(|job| job.place.is_some()) {
        args.push(Arg::from(column(jobs, |job| job.place.as_deref())));
        // An array, so that any plan reads these rows alone.
        at_places = format!("s.ctid = ANY (${}::text[]::tid[]) AND", args.len());
    }
    // The number follows the stored one, unless the row was changed by hand.
    let update = |u: &str| {
        format!(
            "UPDATE @snapshots s SET number = u.number, deaths = 0, saved_ms = u.saved_ms, at = u.at, data = u.data{set} FROM {u}
             WHERE {at_places} s.fiber = u.fiber AND s.epoch = u.epoch AND s.number = u.number - 1 RETURNING s.fiber, s.ctid::text AS place"
        )
    };
    let sql = if !changes_ops && appends.is_empty() {
        update(&u)
    } else {
        let mut parts = vec![format!("u AS MATERIALIZED (SELECT * FROM {u})"), format!("done AS ({})", update("u"))];
        if changes_ops {
            parts.push(settling(args.len() + 1));
            let settled: Vec<_> =
                jobs.iter().flat_map(|job| job.new.ops.settled.iter().map(|op| (&job.claim, job.new.now_ms, op))).collect();
            args.extend([
                Arg::from(column(&settled, |op| op.0.fiber)),
                Arg::from(column(&settled, |op| op.1)),
                Arg::from(column(&settled, |op| ops::at(op.2.number))),
                Arg::from(column(&settled, |op| op.2.id.as_str())),
                Arg::from(column(&settled, |op| op.2.state.as_str())),
                Arg::from(column(&settled, |op| op.2.outcome.as_deref())),
            ]);
        }
        parts.push(streams::parts(args.len() + 1));
        args.extend(streams::arguments(&appends));
        format!("WITH {} SELECT fiber, place FROM done", parts.join(", "))
    };
    let rows = tx.rows(&sql, &args).await?;
    let mut places: HashMap<Seq, String> = rows.iter().map(|row| Ok((row.int("fiber")?, row.text("place")?))).collect::<Done<_>>()?;
    Ok(jobs.iter().map(|job| places.remove(&job.claim.fiber)).collect())
}

/// Parts of a `WITH` that store what the checkpoints of its part `done` change of operations. Their
/// parameters begin at `at`.
fn settling(at: usize) -> String {
    let parameter = |n: usize, of: &str| format!("${}::{of}[]", at + n);
    let types = ["bigint", "bigint", "bigint", "text", "text", "text"];
    let parameters = types.iter().enumerate().map(|(n, of)| parameter(n, of)).collect::<Vec<_>>().join(", ");
    format!(
        "v AS MATERIALIZED (SELECT v.* FROM unnest({parameters}) v (fiber, now_ms, number, id, state, outcome) JOIN done USING (fiber)),
         settled AS (
             UPDATE @ops o SET state = v.state, outcome = v.outcome, failed = 0, error = NULL, next_ms = NULL, stash = NULL, changed_ms = v.now_ms
             FROM v WHERE o.fiber = v.fiber AND o.number = v.number AND o.id = v.id AND o.kind IN ('effect', 'op')),
         temporary AS (
             DELETE FROM @ops o USING u JOIN done USING (fiber)
             WHERE u.temporary AND o.fiber = u.fiber AND o.number = u.number - 1 AND o.kind IN ('step', 'transaction')
             RETURNING o.fiber, o.number, o.id),
         items AS (
             DELETE FROM @stream_items i USING (SELECT fiber, number, id FROM v UNION ALL SELECT fiber, number, id FROM temporary) g
             WHERE i.fiber = g.fiber AND i.name = {})",
        ops::STREAM
    )
}

/// Stores fibers; returns their claims. One whose id is taken is left out.
pub(crate) async fn accept(tx: &Tx, jobs: &[Box<NewFiber>]) -> Done<Vec<Option<Claim>>> {
    let mut table = Table::of(jobs);
    table.add("id", "text", column(jobs, |new| new.id.as_str()));
    table.add("name", "text", column(jobs, |new| new.name.as_str()));
    table.add("state", "text", column(jobs, |new| if new.worker.is_some() { "running" } else { "pending" }));
    table.add("closure", "bool", column(jobs, |new| new.closure));
    table.add("class", "text", column(jobs, |new| new.agent.as_ref().map(|agent| agent.class.as_str())));
    table.add("agent", "text", column(jobs, |new| new.agent.as_ref().map(|agent| agent.name.as_str())));
    table.add("parent", "bigint", column(jobs, |new| new.parent));
    table.add("args", "text", column(jobs, |new| new.args.as_str()));
    table.add("metadata", "text", column(jobs, |new| new.metadata.as_deref()));
    table.add("now_ms", "bigint", column(jobs, |new| new.now_ms));
    table.add("worker", "bigint", column(jobs, |new| new.worker));
    if jobs.iter().any(|new| new.worker.is_none()) {
        tx.announce(READY);
    }
    let (table, args) = table.into_sql();
    let sql = format!(
        "WITH u AS MATERIALIZED (SELECT * FROM {table}),
         made AS (
             INSERT INTO @fibers (id, name, state, closure, id_given, class, agent, parent, args, metadata, created_ms, changed_ms)
             SELECT id, name, state, closure, FALSE, class, agent, parent, args, metadata, now_ms, now_ms FROM u
             ON CONFLICT DO NOTHING RETURNING seq, id),
         claimed AS (
             INSERT INTO @snapshots (fiber, epoch, worker)
             SELECT made.seq, CASE WHEN u.worker IS NULL THEN 0 ELSE 1 END, u.worker FROM made JOIN u USING (id))
         SELECT seq, id FROM made"
    );
    let rows = tx.rows(&sql, &args).await?;
    let made: HashMap<String, Seq> = rows.iter().map(|row| Ok((row.text("id")?, row.int("seq")?))).collect::<Done<_>>()?;
    let claim = |new: &NewFiber| made.get(&new.id).map(|seq| Claim { fiber: *seq, epoch: i64::from(new.worker.is_some()) });
    Ok(jobs.iter().map(|new| claim(new)).collect())
}

/// Completes claimed fibers that leave nothing but a snapshot and for which none waits. The others
/// are left out.
pub(crate) async fn end(tx: &Tx, jobs: &[Ended]) -> Done<Vec<Option<()>>> {
    let (fibers, epochs) = (column(jobs, |job| job.0.fiber), column(jobs, |job| job.0.epoch));
    // A statement of its own: what the next one reads is as it is once these rows are locked.
    let locked = tx
        .rows(
            "SELECT f.seq FROM unnest($1::bigint[], $2::bigint[]) u (fiber, epoch)
             JOIN @fibers f ON f.seq = u.fiber JOIN @snapshots s ON s.fiber = u.fiber AND s.epoch = u.epoch
             WHERE f.finished_ms IS NULL AND f.cancel IS NULL ORDER BY f.seq FOR NO KEY UPDATE OF f, s",
            args![fibers, epochs],
        )
        .await?;
    let locked: HashSet<Seq> = locked.iter().map(|row| row.int("seq")).collect::<Done<_>>()?;
    let held: Vec<&Ended> = jobs.iter().filter(|job| locked.contains(&job.0.fiber)).collect();
    let results = held.iter().map(|job| match &job.1 {
        End::Completed(result) => Some(result.as_str()),
        End::Failed(_) | End::Cancelled(_) => None,
    });
    let results: Vec<Option<&str>> = results.collect();
    let sql = format!(
        "WITH ended AS (
             UPDATE @fibers f SET state = 'completed', reason = NULL, result = u.result, changed_ms = u.now_ms, finished_ms = u.now_ms
             FROM unnest($1::bigint[], $2::text[], $3::bigint[]) u (fiber, result, now_ms)
             WHERE f.seq = u.fiber AND u.result IS NOT NULL AND f.finished_ms IS NULL AND f.cancel IS NULL
                   AND NOT ({} OR {} OR EXISTS (SELECT 1 FROM @joins WHERE child = f.seq)) RETURNING f.seq),
         gone AS (DELETE FROM @snapshots s USING ended WHERE s.fiber = ended.seq)
         SELECT seq AS fiber FROM ended",
        fibers::LEAVES,
        fibers::HAS_ROWS
    );
    let args = args![column(&held, |job| job.0.fiber), results, column(&held, |job| job.2)];
    tx.announce(CHANGED);
    written(tx, &sql, args, jobs, |job| job.0.fiber).await
}

/// Selects the fibers of `u` whose claims are in force. A lock behind it has this condition, so the
/// claims stay in force until the commit.
const RUNNING: &str = "SELECT s.fiber FROM u JOIN @snapshots s ON s.fiber = u.fiber AND s.epoch = u.epoch AND s.worker IS NOT NULL";

pub(crate) async fn start_ops(tx: &Tx, jobs: &[Started]) -> Done<Vec<Option<()>>> {
    written(
        tx,
        &format!(
            "WITH u AS MATERIALIZED (
                 SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
                                      $9::text[], $10::bool[], $11::bigint[], $12::bigint[], $13::text[], $14::text[], $15::bigint[])
                          u (fiber, epoch, number, id, kind, function, step, key, outcome, resolved, failed, now_ms, layout, error, next_ms)),
             running AS MATERIALIZED ({RUNNING} FOR NO KEY UPDATE OF s)
             INSERT INTO @ops AS o (fiber, number, id, kind, function, step, key, state, outcome, resolved, failed, started_ms,
                                    changed_ms, layout, error, next_ms)
             SELECT fiber, number, id, kind, function, step, key, 'started', outcome, resolved, failed, now_ms, now_ms, layout, error, next_ms
             FROM u JOIN running USING (fiber)
             ON CONFLICT (fiber, number, id) DO UPDATE SET state = 'started', outcome = excluded.outcome, resolved = excluded.resolved,
                    failed = excluded.failed, stash = NULL, changed_ms = excluded.changed_ms, error = excluded.error, next_ms = excluded.next_ms
             WHERE {}
             RETURNING fiber",
            ops::MAY_BEGIN
        ),
        args![
            column(jobs, |job| job.0.fiber),
            column(jobs, |job| job.0.epoch),
            column(jobs, |job| ops::at(job.1.number)),
            column(jobs, |job| job.1.id.as_str()),
            column(jobs, |job| job.1.kind.as_str()),
            column(jobs, |job| job.1.function.as_str()),
            column(jobs, |job| job.1.step.as_str()),
            column(jobs, |job| job.1.key.as_deref()),
            column(jobs, |job| job.1.outcome.as_deref()),
            column(jobs, |job| job.1.resolved),
            column(jobs, |job| i64::from(job.1.failed)),
            column(jobs, |job| job.2),
            column(jobs, |job| job.1.layout.as_ref().map(|layout| layout.hash.as_str())),
            column(jobs, |job| job.1.retry.as_ref().map(|retry| retry.error.as_str())),
            column(jobs, |job| job.1.retry.as_ref().map(|retry| retry.next_ms)),
        ],
        jobs,
        |job| job.0.fiber,
    )
    .await
}

pub(crate) async fn append_chunks(tx: &Tx, jobs: &[Chunks]) -> Done<Vec<Option<()>>> {
    written(
        tx,
        &format!(
            "WITH u AS MATERIALIZED (
             SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::bigint[])
                      u (fiber, epoch, turn, first, count, data, stored_ms)),
         running AS MATERIALIZED (
             {RUNNING}
             JOIN @turns t ON t.seq = u.turn AND t.fiber = u.fiber AND t.state = 'running' FOR NO KEY UPDATE OF s, t),
         stored AS (
             INSERT INTO @stream_items (turn, name, first, count, data, stored_ms)
             SELECT u.turn, 'log', u.first, u.count, u.data, u.stored_ms FROM u JOIN running USING (fiber)
             WHERE u.first = coalesce((SELECT c.first + c.count FROM @stream_items c WHERE c.turn = u.turn ORDER BY c.first DESC LIMIT 1), 0)
             RETURNING turn),
         fibers AS MATERIALIZED (SELECT u.fiber FROM u JOIN stored USING (turn)),
         progress AS (UPDATE @snapshots s SET deaths = 0 FROM fibers WHERE s.fiber = fibers.fiber AND s.deaths > 0)
         SELECT fiber FROM fibers"
        ),
        args![
            column(jobs, |job| job.0.fiber),
            column(jobs, |job| job.0.epoch),
            column(jobs, |job| job.1),
            column(jobs, |job| number(job.2.first)),
            column(jobs, |job| number(job.2.count)),
            column(jobs, |job| job.2.data.as_str()),
            column(jobs, |job| job.2.stored_ms),
        ],
        jobs,
        |job| job.0.fiber,
    )
    .await
}
