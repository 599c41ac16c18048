//! Texts come back to the byte.
use std::time::Duration;

use forever_postgres::PostgresStore;
use forever_store::{AcceptResult, AdminStore, ErrorKind, FiberRef, FiberStore, NewFiber, NewSnapshot, SnapshotDelta};

use forever_testkit::prng::Prng;

use crate::{accept, cluster, fiber, snapshot};

#[tokio::test]
async fn texts_come_back_to_the_byte() {
    let Some(url) = cluster::url() else { return };
    let store = PostgresStore::builder(url).schema(cluster::schema()).lease(Duration::ZERO).connect().await.unwrap();
    let worker = store.join(0).await.unwrap();
    for (n, text) in
        ["\0", "a\0\u{1a}b", "\u{1a}0", "{ \"b\":1,\"a\": 1.0e2 , \"a\":2}", "é\u{10ffff}\r\n\\", "\"\\u0000\""].iter().enumerate()
    {
        let id = format!("{text}{n}");
        let new = NewFiber {
            key: Some(id.clone()),
            args: (*text).to_owned(),
            metadata: Some((*text).to_owned()),
            name: (*text).to_owned(),
            ..fiber(&id, Some(worker))
        };
        let AcceptResult::Created(claim) = store.accept(new).await.unwrap() else { panic!() };
        let delta = SnapshotDelta { parts: vec![((*text).to_owned(), (*text).into())], ..SnapshotDelta::default() };
        store.checkpoint(claim, NewSnapshot { data: (*text).to_owned(), delta, ..snapshot(1) }).await.unwrap();
        let row = store.find(FiberRef::Key(id.clone())).await.unwrap().unwrap();
        assert_eq!((row.id, row.name.as_str(), row.args.as_str(), row.metadata.as_deref()), (id, *text, *text, Some(*text)));
        let loaded = store.load(claim.fiber).await.unwrap();
        assert_eq!(loaded.snapshot.as_deref(), Some(*text));
        assert_eq!(loaded.rows.parts[*text].as_ref(), *text);
    }
}

#[tokio::test]
async fn key_that_no_index_can_hold_is_refused_for_good() {
    let Some(url) = cluster::url() else { return };
    let store = PostgresStore::builder(url).schema(cluster::schema()).lease(Duration::ZERO).connect().await.unwrap();
    let worker = store.join(0).await.unwrap();
    // Long texts that repeat themselves are made short by the server.
    let mut prng = Prng::new(1);
    let mut digits = || format!("{:x}", prng.number());
    let long: String = std::iter::repeat_with(&mut digits).take(1000).collect();
    let error = store.accept(NewFiber { key: Some(long), ..fiber("a", Some(worker)) }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Value, "{error}");
    accept(&store, "a", worker).await;
}
