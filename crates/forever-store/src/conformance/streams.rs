//! Streams of fibers.
use super::claims::is_lost;
use super::{accept, branch_result, snapshot};
use crate::{Claim, Deletion, End, FiberQuery, FiberState, HISTORY, NewSnapshot, PROGRESS, Store, StreamAppend, StreamsDelta, Wait};

fn appended(name: &'static str, lines: &[String], keep: Option<u64>) -> StreamsDelta {
    let append = StreamAppend { name: name.into(), first: None, count: lines.len() as u64, data: lines.join("\n"), keep };
    StreamsDelta { appended: vec![append], ..StreamsDelta::default() }
}

async fn told(store: &impl Store, fiber: i64, name: &str, from: u64) -> Vec<(u64, String)> {
    let mut all: Vec<(u64, String)> = Vec::new();
    loop {
        let next = all.last().map_or(from, |(n, _)| n + 1);
        let batches = store.stream(fiber, name.to_owned(), next, 3).await.unwrap();
        let items = batches.iter().flat_map(|batch| {
            assert_eq!(batch.data.lines().count() as u64, batch.count);
            (batch.first..).zip(batch.data.lines().map(str::to_owned))
        });
        let new: Vec<_> = items.filter(|(n, _)| *n >= next).collect();
        if new.is_empty() {
            return all;
        }
        all.extend(new);
    }
}

pub(super) async fn keep_their_items_with_the_checkpoints_that_append_them(store: &impl Store) {
    for name in ["log", HISTORY] {
        keeps_its_items(store, name).await;
    }
}

async fn keeps_its_items(store: &impl Store, name: &'static str) {
    let (claim, other) = (accept(store, &format!("{name} a")).await, accept(store, &format!("{name} b")).await);
    assert_eq!(store.stream(claim.fiber, name.into(), 0, 9).await.unwrap(), []);
    let lines = |of: &str, n: u64| -> Vec<String> { (0..=n % 3).map(|k| format!(r#"{{"{of}":"{n}.{k}"}}"#)).collect() };
    let mut expected = [Vec::new(), Vec::new()];
    for n in 1..=40 {
        for (of, claim) in [claim, other].into_iter().enumerate() {
            let lines = lines(&of.to_string(), n);
            store.checkpoint(claim, NewSnapshot { streams: appended(name, &lines, None), ..snapshot(n) }).await.unwrap();
            expected[of].extend(lines);
        }
    }
    let refused = NewSnapshot { streams: appended(name, &["0".to_owned()], None), ..snapshot(99) };
    store.checkpoint(claim, refused).await.unwrap_err();
    let lost = Claim { epoch: claim.epoch + 1, ..claim };
    let fenced = NewSnapshot { streams: appended(name, &["0".to_owned()], None), ..snapshot(41) };
    assert!(is_lost(store.checkpoint(lost, fenced).await));

    for (claim, expected) in [claim, other].into_iter().zip(&expected) {
        let all: Vec<_> = (0..).zip(expected.iter().cloned()).collect();
        for from in [0, 1, 30, all.len()] {
            assert_eq!(told(store, claim.fiber, name, from as u64).await, all[from..], "from {from}");
        }
    }
    assert_eq!(told(store, claim.fiber, "other", 0).await, []);

    let failed = accept(store, &format!("{name} failed")).await;
    store.checkpoint(failed, NewSnapshot { streams: appended(name, &["1".to_owned()], None), ..snapshot(1) }).await.unwrap();
    store.end(failed, End::Failed("why".into()), Vec::new(), Vec::new(), 9).await.unwrap();
    assert_eq!(told(store, failed.fiber, name, 0).await, [(0, "1".to_owned())]);

    store.end(claim, End::Completed("1".into()), Vec::new(), Vec::new(), 9).await.unwrap();
    assert_eq!(told(store, claim.fiber, name, 0).await.len(), expected[0].len(), "it stays with its fiber");
    let query = FiberQuery { states: vec![FiberState::Completed], ..FiberQuery::default() };
    store.delete(Deletion { query, limit: 9, ..Deletion::default() }).await.unwrap();
    assert_eq!(told(store, claim.fiber, name, 0).await, []);
    store.checkpoint(other, NewSnapshot { streams: appended(name, &["\"last\"".to_owned()], None), ..snapshot(41) }).await.unwrap();
    assert_eq!(told(store, other.fiber, name, 0).await.len(), expected[1].len() + 1);
}

pub(super) async fn take_items_between_checkpoints_and_with_branches_and_ends(store: &impl Store) {
    let claim = accept(store, "outputs").await;
    let items = |name: &'static str, lines: &[&str]| {
        appended(name, &lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>(), None).appended
    };
    assert_eq!(store.stream_names(claim.fiber).await.unwrap(), [""; 0]);
    store.append(claim, items("out/b", &["1", "2"]), 5).await.unwrap();
    store.checkpoint(claim, NewSnapshot { streams: appended("out/b", &["3".to_owned()], None), ..snapshot(1) }).await.unwrap();
    let both = [items("out/a", &["\"x\""]), items("out/b", &["4"])].concat();
    store.save_branch(claim, 1, branch_result("both[a]", None), both, 6).await.unwrap();
    store.append(claim, items("out/b", &["5"]), 7).await.unwrap();
    store.checkpoint(claim, NewSnapshot { streams: appended(HISTORY, &["{}".to_owned()], None), ..snapshot(2) }).await.unwrap();
    assert_eq!(store.stream_names(claim.fiber).await.unwrap(), [HISTORY, "out/a", "out/b"]);

    let lost = Claim { epoch: claim.epoch + 1, ..claim };
    assert!(is_lost(store.append(lost, items("out/b", &["0"]), 8).await));
    assert!(is_lost(store.save_branch(lost, 2, branch_result("both[b]", None), items("out/b", &["0"]), 8).await));
    assert!(is_lost(store.end(lost, End::Completed("1".into()), Vec::new(), items("out/b", &["0"]), 8).await));

    // One item that is replaced.
    for n in ["10", "20"] {
        let replaced = StreamAppend { first: Some(0), ..items(PROGRESS, &[n]).remove(0) };
        store.append(claim, vec![replaced], 8).await.unwrap();
    }
    assert_eq!(told(store, claim.fiber, PROGRESS, 0).await, [(0, "20".to_owned())]);

    store.end(claim, End::Completed("1".into()), Vec::new(), items("out/b", &["6"]), 9).await.unwrap();
    let all: Vec<_> = (0..).zip(["1", "2", "3", "4", "5", "6"].map(str::to_owned)).collect();
    for from in [0, 1, 3, 5, 6] {
        assert_eq!(told(store, claim.fiber, "out/b", from as u64).await, all[from..], "from {from}");
    }
    let newest = store.stream(claim.fiber, "out/b".into(), i64::MAX.unsigned_abs(), 9).await.unwrap();
    assert_eq!(newest.iter().map(|batch| batch.first + batch.count).collect::<Vec<_>>(), [6], "the last batch");
    assert_eq!(told(store, claim.fiber, "out/a", 0).await, [(0, "\"x\"".to_owned())]);
    assert!(is_lost(store.append(claim, items("out/b", &["7"]), 10).await), "it has ended");

    let waits = accept(store, "waits").await;
    store.checkpoint(waits, snapshot(1)).await.unwrap();
    store.wait(waits, Wait { topics: vec!["t".into()], ..Wait::default() }, 2).await.unwrap();
    assert!(is_lost(store.append(waits, items("out/b", &["1"]), 3).await), "it does not run");
    assert_eq!(told(store, waits.fiber, "out/b", 0).await, []);
}

pub(super) async fn keep_the_newest_items(store: &impl Store) {
    for name in ["log", HISTORY] {
        keeps_the_newest(store, name).await;
    }
}

async fn keeps_the_newest(store: &impl Store, name: &'static str) {
    let claim = accept(store, &format!("{name} kept")).await;
    let line = |n: u64| format!("{{\"n\":{n},\"text\":\"{}\"}}", "x".repeat(200));
    for n in 1..=500 {
        store.checkpoint(claim, NewSnapshot { streams: appended(name, &[line(n)], Some(100)), ..snapshot(n) }).await.unwrap();
    }
    let kept = told(store, claim.fiber, name, 0).await;
    assert!((100..=250).contains(&kept.len()), "{}", kept.len());
    let (first, _) = kept[0];
    assert_eq!(first + kept.len() as u64, 500, "the newest are there");
    for (n, text) in kept {
        assert_eq!(text, line(n + 1));
    }
}
