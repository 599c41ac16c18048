//! Fibers and snapshots for tests and benchmarks of the store.
use forever_store::{AcceptResult, Claim, FiberStore, NewFiber, NewSnapshot, OpsDelta, SnapshotDelta, StreamsDelta, WorkerId};

pub(crate) fn fiber(id: &str, worker: Option<WorkerId>) -> NewFiber {
    NewFiber {
        id: id.to_owned(),
        name: "work".to_owned(),
        key: None,
        id_given: false,
        closure: false,
        args: "{}".to_owned(),
        metadata: None,
        agent: None,
        parent: None,
        worker,
        now_ms: 1,
    }
}

pub(crate) fn snapshot(number: u64) -> NewSnapshot {
    NewSnapshot {
        replaces: false,
        number,
        at: "step",
        data: format!("{{\"n\":{number}}}"),
        now_ms: 2,
        layouts: None,
        ops: OpsDelta::default(),
        delta: SnapshotDelta::default(),
        streams: StreamsDelta::default(),
        received: Vec::new(),
        closed: None,
        joined: false,
        children: Vec::new(),
    }
}

pub(crate) async fn accept(store: &impl FiberStore, id: &str, worker: WorkerId) -> Claim {
    match store.accept(fiber(id, Some(worker))).await.unwrap() {
        AcceptResult::Created(claim) => claim,
        other => panic!("{other:?}"),
    }
}
