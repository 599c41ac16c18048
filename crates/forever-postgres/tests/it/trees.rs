//! Cancels of fibers with thousands of descendants: what they do, and by how many statements.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forever_postgres::PostgresStore;
use forever_store::{AdminStore, CommandResult, FiberStore, UnreadMessages, UnreadSender};
use forever_testkit::waiting::soon;
use tokio::sync::mpsc::unbounded_channel;

use crate::proxy::{Fate, Proxy};
use crate::schemas::client;
use crate::{cluster, ready_of, row};

/// Fiber 1 waits for `$wide` children, 2 and up. From the last of these on each is the parent of the next one, down to the
/// fiber `$last`, and waits for it. Fiber 3 runs, 4 has ended, 5 was cancelled before and is parked, and 6 has what an end leaves or deletes.
/// The fiber `outside` waits for the deepest one, `both` for that and for one that is not below.
fn tree(schema: &str, wide: usize, last: usize) -> String {
    format!(
        "SET search_path TO \"{schema}\";
         INSERT INTO workers (id, joined_ms, seen, lease_ms) VALUES (77, 0, now(), 3600000);
         INSERT INTO fibers (seq, id, name, state, cancel, parent, args, created_ms, changed_ms, finished_ms)
         SELECT n, 'f' || n, 'work', CASE n WHEN 3 THEN 'running' WHEN 4 THEN 'failed' WHEN 5 THEN 'parked' ELSE 'waiting' END,
                CASE n WHEN 5 THEN 'earlier' END, CASE WHEN n = 1 THEN NULL WHEN n <= {wide} + 1 THEN 1 ELSE n - 1 END,
                '{{}}', 1, 1, CASE n WHEN 4 THEN 1 END
         FROM generate_series(1, {last}) n;
         INSERT INTO fibers (seq, id, name, state, args, created_ms, changed_ms)
         VALUES (100001, 'outside', 'work', 'waiting', '{{}}', 1, 1), (100002, 'both', 'work', 'waiting', '{{}}', 1, 1);
         INSERT INTO snapshots (fiber, epoch, number, worker) SELECT seq, 1, 2, CASE seq WHEN 3 THEN 77 END FROM fibers;
         INSERT INTO waits (fiber) SELECT seq FROM fibers WHERE state = 'waiting';
         INSERT INTO wait_topics (fiber, topic) SELECT fiber, 'word' FROM waits WHERE fiber % 2 = 0;
         INSERT INTO joins (child, fiber) SELECT seq, parent FROM fibers WHERE parent IS NOT NULL AND state <> 'failed';
         INSERT INTO joins (child, fiber) VALUES ({last}, 100001), ({last}, 100002), (100001, 100002);
         INSERT INTO messages (fiber, topic, data, sent_ms) SELECT 6, topic, '1', 1 FROM unnest(ARRAY['b', 'a', 'b']) topic;
         INSERT INTO messages (fiber, topic, data, sent_ms) VALUES (7, 'a', '1', 1), (3, 'a', '1', 1);
         INSERT INTO closed_topics (fiber, topic, number) VALUES (6, 'b', 1), (6, 'c', 2);
         INSERT INTO branch_results (fiber, number, branch, data) VALUES (6, 2, 'left', '1');
         INSERT INTO ops (fiber, number, id, kind, function, step, state, started_ms, changed_ms)
         SELECT 6, number, kind, kind, 'work', 'step', 'started', 1, 1
         FROM unnest(ARRAY['step', 'effect', 'transaction']) kind, generate_series(1, 2) number;
         INSERT INTO stream_items (fiber, name, first, count, data, stored_ms)
         SELECT 6, 'op/' || number || '/' || id, 0, 1, '1', 1 FROM ops"
    )
}

/// Cancels fiber 1, and returns how many statements that took.
async fn statements_of_cancel(proxy: &Proxy, store: &PostgresStore, expected: usize) -> usize {
    let statements = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&statements);
    // A statement ends with `Sync`, or is a simple query.
    proxy.on_sent(move |bytes| {
        counted.fetch_add(usize::from(bytes.ends_with(b"S\0\0\0\x04") || bytes.starts_with(b"Q")), Ordering::Relaxed);
        Fate::Forward
    });
    let cancelled = soon("it is cancelled", store.cancel("f1".into(), "enough".into(), 9)).await.unwrap();
    proxy.on_sent(|_| Fate::Forward);
    let CommandResult::Done(below) = cancelled else { panic!("{cancelled:?}") };
    assert_eq!(below.len(), expected);
    statements.load(Ordering::Relaxed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancel_takes_as_many_statements_for_thousands_as_for_ten() {
    let Some(server) = cluster::own() else { return };
    let (proxy, admin) = (Proxy::start(server.socket()).await, client(&server.url()).await);
    let mut counts = Vec::new();
    for (wide, last) in [(8, 10), (2_000, 3_000)] {
        let schema = cluster::schema();
        let builder = PostgresStore::builder(proxy.url()).schema(&schema).pooler(true).lease(Duration::ZERO);
        let store = builder.call_limit(Duration::from_secs(600)).connect().await.unwrap();
        admin.batch_execute(&tree(&schema, wide, last)).await.unwrap();
        let mut ready = ready_of(&store);
        let (report, mut unread) = unbounded_channel::<UnreadMessages>();
        store.on_unread(UnreadSender::new(move |left| drop(report.send(left))));
        // All but the one that had ended.
        counts.push(statements_of_cancel(&proxy, &store, last - 1).await);

        let number = async |sql: &str| -> i64 { admin.query_one(sql, &[]).await.unwrap().get(0) };
        let cancelled = "state = 'cancelled' AND cancel = reason AND result IS NULL AND changed_ms = 9 AND finished_ms = 9";
        let ended = number(&format!("SELECT count(*) FROM fibers WHERE {cancelled} AND reason = 'enough'")).await;
        assert_eq!(ended, i64::try_from(last).unwrap() - 3);
        assert_eq!(number(&format!("SELECT count(*) FROM fibers WHERE {cancelled} AND reason = 'earlier'")).await, 1);
        assert_eq!(number("SELECT count(*) FROM snapshots JOIN fibers ON seq = fiber WHERE state = 'cancelled' AND epoch = 1").await, 0);
        let running = row(&store, "f3").await.unwrap();
        assert_eq!((running.state.as_str(), running.finished_ms), ("running", None));
        assert_eq!(number("SELECT count(*) FROM fibers WHERE seq = 3 AND cancel = 'enough'").await, 1);
        assert_eq!(number("SELECT epoch FROM snapshots WHERE fiber = 3 AND worker = 77").await, 1);
        assert_eq!(row(&store, "f4").await.unwrap().state.as_str(), "failed");

        // Its one unfinished wait is for `outside`.
        assert_eq!(soon("it is ready", ready.recv()).await.unwrap().id, "outside");
        assert!(ready.try_recv().is_err());
        assert_eq!(number("SELECT count(*) FROM waits").await, 1);
        assert_eq!(number("SELECT count(*) FROM joins WHERE (child, fiber) <> (100001, 100002)").await, 0);
        assert_eq!(row(&store, "both").await.unwrap().state.as_str(), "waiting");

        let topics = |left: &UnreadMessages| left.topics.iter().map(|t| (t.topic.clone(), t.unread, t.closed)).collect::<Vec<_>>();
        let mut reports = [unread.recv().await.unwrap(), unread.recv().await.unwrap()];
        assert!(unread.try_recv().is_err(), "the one that runs has not ended");
        reports.sort_by(|a, b| a.id.cmp(&b.id));
        assert_eq!((&*reports[0].id, &*reports[0].name, reports[0].state.as_str()), ("f6", "work", "cancelled"));
        assert_eq!(topics(&reports[0]), [("a".to_owned(), 1, None), ("b".to_owned(), 2, Some(1))]);
        assert_eq!((&*reports[1].id, topics(&reports[1])), ("f7", vec![("a".to_owned(), 1, None)]));
        assert_eq!(number("SELECT count(*) FROM branch_results").await, 0);
        let left: String =
            admin.query_one("SELECT string_agg(number || kind, ' ' ORDER BY number, kind) FROM ops", &[]).await.unwrap().get(0);
        assert_eq!(left, "1effect 1step 1transaction 2effect");
        assert_eq!(number("SELECT count(*) FROM stream_items").await, 4);
    }
    assert_eq!(counts[0], counts[1], "statements");
    assert!(counts[1] < 25, "{counts:?}");
}
