//! Query plans of lists, counts, groups and what is wrong over 200 000 fibers that wait.
use forever_store::{FiberQuery, FiberState, Seq};
use forever_testkit::postgres as cluster;

use crate::PostgresStore;
use crate::call::{Kind, Work};
use crate::sql::{Arg, Done, Tx, args};
use crate::{admin, fibers, troubles};

/// Fibers that wait at seven places, and one that has failed.
const FIBERS: u32 = 200_000;

/// How many of them one call fills in, so that a server of a busy machine answers it in time.
const AT_A_TIME: u32 = 10_000;

/// Statements that fill some in.
fn filled(first: u32, last: u32) -> String {
    format!(
        "INSERT INTO @fibers (id, name, state, args, created_ms, changed_ms)
         SELECT 'f-' || n, 'work' || n % 7, CASE n WHEN 1 THEN 'failed' ELSE 'waiting' END, repeat('a', 300), 0, 0
         FROM generate_series({first}, {last}) n;
         INSERT INTO @snapshots (fiber, epoch, number, at, layout, data)
         SELECT seq, 1, 1, 'answer', name, repeat('a', 300) FROM @fibers WHERE seq BETWEEN {first} AND {last};
         INSERT INTO @waits (fiber, any_join, place)
         SELECT seq, FALSE, substr(sha256(convert_to(json_build_array(name, 'answer', name, NULL::text)::text, 'UTF8')), 1, 16)
         FROM @fibers WHERE state = 'waiting' AND seq BETWEEN {first} AND {last};
         INSERT INTO @ops (fiber, number, id, kind, function, step, state, error, next_ms, started_ms, changed_ms)
         SELECT seq, 1, 'op-' || seq, 'effect', name, 'charge', 'started', CASE seq % 1000 WHEN 0 THEN 'no' END,
                CASE seq % 1000 WHEN 0 THEN seq END, 0, 0 FROM @fibers WHERE seq BETWEEN {first} AND {last};
         INSERT INTO @messages (fiber, topic, data, sent_ms) SELECT seq, 'go', '1', 0 FROM @fibers WHERE seq BETWEEN {first} AND {last};"
    )
}

/// The plan of a statement, a line for each step, without costs.
async fn plan(tx: &Tx, sql: &str, values: &[Arg<'_>]) -> Done<String> {
    let lines = tx.rows(&format!("EXPLAIN (COSTS OFF) {sql}"), values).await?;
    let lines = lines.iter().map(|line| line.text("QUERY PLAN")).collect::<Done<Vec<_>>>()?;
    Ok(lines.join("\n"))
}

/// Each plan, and what it is of.
async fn plans(tx: &Tx) -> Done<Vec<(String, String)>> {
    let group = args![9_i64, 500_i64, "work1", "answer", "work1", None::<&str>, false];
    let mut plans = vec![
        ("groups".to_owned(), plan(tx, &fibers::groups(), args![]).await?),
        ("group".to_owned(), plan(tx, &fibers::of_group(true), group).await?),
        ("descendants".to_owned(), plan(tx, admin::BELOW, args![9_i64]).await?),
        ("counts".to_owned(), plan(tx, &admin::of_counts(&[]), args![]).await?),
    ];
    plans.push(("stops".to_owned(), plan(tx, &troubles::of_stops(FiberState::Failed), args!["work1", 100_i64]).await?));
    plans.push(("retries".to_owned(), plan(tx, &troubles::of_retries(), args![100_i64]).await?));
    plans.push(("queues".to_owned(), plan(tx, &troubles::of_queues(), args![100_i64, 2_i64, 5_i64]).await?));
    for newest_first in [true, false] {
        let after = if newest_first { Seq::MAX } else { Seq::MIN };
        let all = FiberQuery { newest_first, ..FiberQuery::default() };
        let searched = FiberQuery { text: Some("none".to_owned()), from_seq: Some(100_000), to_seq: Some(100_500), ..all.clone() };
        let states = FiberQuery { states: vec![FiberState::Failed, FiberState::Waiting], ..all.clone() };
        let name = FiberQuery { name: Some("work1".to_owned()), ..all.clone() };
        for (what, query) in [("all", all), ("searched", searched), ("states", states), ("name", name)] {
            let (sql, values) = admin::of_page(&query, after, 50);
            plans.push((format!("{what}, newest first: {newest_first}"), plan(tx, &sql, &values).await?));
        }
    }
    Ok(plans)
}

#[tokio::test]
async fn two_hundred_thousand_waiting_fibers_are_counted_and_listed_from_indexes() {
    let Some(url) = cluster::url() else { return };
    let store = PostgresStore::builder(url).schema(cluster::schema()).connect().await.unwrap();
    let run: Work<String, ()> = |tx, sql| Box::pin(async move { tx.batch(sql).await });
    for first in (1..=FIBERS).step_by(AT_A_TIME as usize) {
        store.shared.carry_out("fill", Kind::Write, &filled(first, first + AT_A_TIME - 1), run).await.unwrap();
    }
    let count: Work<(), i64> = |tx, ()| Box::pin(async move { tx.rows("SELECT count(*) AS n FROM @ops", args![]).await?[0].int("n") });
    assert_eq!(store.shared.carry_out("count", Kind::Read, &(), count).await.unwrap(), i64::from(FIBERS));
    for table in ["fibers", "snapshots", "waits", "ops", "messages"] {
        store.shared.carry_out("vacuum", Kind::Single, &format!("VACUUM (ANALYZE) @{table}"), run).await.unwrap();
    }
    let explain: Work<(), Vec<(String, String)>> = |tx, ()| Box::pin(plans(tx));
    for (what, plan) in store.shared.carry_out("explain", Kind::Read, &(), explain).await.unwrap() {
        // All of `waits` is of fibers that wait, and narrower than their other rows.
        for table in ["fibers", "snapshots", "ops", "messages"] {
            assert!(!plan.contains(&format!("Seq Scan on {table}")), "{what}: {plan}");
        }
    }
}
