//! Tests of the store, each over a schema of its own in one server.
mod blocked;
mod conforms;
mod faults;
mod pooler;
mod proxy;
mod references;
mod rows;
mod schemas;
mod settings;
mod transactions;
mod trees;
mod values;
mod wake_ups;
mod workers;

use forever_store::{AdminStore, Claim, ClaimResult, End, FiberRef, FiberRow, FiberStore, ReadySender, Runnable, Seq, WorkerId};
use forever_testkit::postgres as cluster;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use rows::{accept, fiber, snapshot};

async fn claim(store: &impl FiberStore, fiber: Seq, worker: WorkerId) -> Claim {
    let seen = Claim { fiber, epoch: store.claim_of(fiber).await.unwrap().unwrap().epoch };
    match store.claim(seen, worker, 3).await.unwrap() {
        ClaimResult::Granted(claim, _) => claim,
        other => panic!("{other:?}"),
    }
}

async fn end(store: &impl FiberStore, claim: Claim) {
    store.end(claim, End::Completed("1".into()), Vec::new(), Vec::new(), 4).await.unwrap();
}

async fn row(store: &impl AdminStore, id: &str) -> Option<FiberRow> {
    store.find(FiberRef::Id(id.to_owned())).await.unwrap()
}

/// The fibers that a store tells of as ready.
fn ready_of(store: &impl FiberStore) -> UnboundedReceiver<Runnable> {
    let (tell, told) = unbounded_channel();
    store.on_ready(ReadySender::new(move |fiber| drop(tell.send(fiber))));
    told
}
