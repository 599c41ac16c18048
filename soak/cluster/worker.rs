//! One worker: starts orders, pays for them, waits for those of other workers, and runs whatever
//! it claims.
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use forever::ErrorKind;
use forever::fiber::FiberState;
use forever::prelude::*;
use forever::store::PostgresStore;
use forever_testkit::process::end_with_parent;
use tokio::signal::unix::{SignalKind, signal};

use crate::journal::Reader;
use crate::orders::{Desk, ITEMS, PAID, PRICE, order, parcel};
use crate::till::{self, Till};

/// Arguments of a worker.
pub(crate) struct Orders {
    /// Its place among the workers.
    pub(crate) worker: u32,
    /// How many there were in its place before.
    pub(crate) life: u32,
    pub(crate) dir: PathBuf,
    pub(crate) url: String,
    pub(crate) schema: String,
    pub(crate) lease: Duration,
}

/// File whose presence says that no more orders are to be started.
pub(crate) fn last_call(dir: &std::path::Path) -> PathBuf {
    dir.join("last-call")
}

/// Most orders of a life that are under way at a time.
const OPEN: usize = 12;

/// How long a till stays in memory without a call.
const TILL_IDLE: Duration = Duration::from_millis(300);

/// Time between two orders.
const PACE: Duration = Duration::from_millis(60);

pub(crate) fn run(orders: Orders) -> anyhow::Result<()> {
    end_with_parent();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(work(orders))
}

async fn work(orders: Orders) -> anyhow::Result<()> {
    let mut closes = signal(SignalKind::terminate())?;
    let desk = Desk::new(&orders.dir, &orders.schema)?;
    desk.journal.write("up", &format!("worker-{}", orders.worker), orders.life);
    let forever = open(&orders).await?;
    let shop = Arc::new(Shop { forever: forever.clone(), desk, orders });
    tokio::select! {
        done = shop.clone().trade() => done?,
        _ = closes.recv() => {}
    }
    shop.desk.journal.write("closes", &format!("worker-{}", shop.orders.worker), "");
    forever.close().await?;
    Ok(())
}

/// Opens the runtime, as soon as the server is there.
async fn open(orders: &Orders) -> anyhow::Result<Forever> {
    loop {
        let opened = async {
            let store = PostgresStore::builder(&orders.url).schema(&orders.schema).lease(orders.lease).connect().await?;
            let dir = orders.dir.clone();
            let builder = Forever::builder().store(store).fiber::<order>().fiber::<parcel>();
            let builder = builder.agent(move |_| Till::new(&dir)).callable("ring", Till::ring).idle_timeout(TILL_IDLE);
            builder
                .resource(Desk::new(&orders.dir, &orders.schema).map_err(|why| forever::Error::new(ErrorKind::Setup, format!("{why:#}")))?)
                .open()
                .await
        };
        match opened.await {
            Ok(forever) => return Ok(forever),
            Err(error) if error.kind() == ErrorKind::Store || error.is_outcome_unknown() => tokio::time::sleep(PACE).await,
            Err(error) => return Err(error.into()),
        }
    }
}

struct Shop {
    forever: Forever,
    desk: Desk,
    orders: Orders,
}

impl Shop {
    async fn trade(self: Arc<Self>) -> anyhow::Result<()> {
        let mut reader = Reader::open(&self.orders.dir)?;
        let (mut unpaid, mut accepted, mut made, mut rung) = (Vec::new(), BTreeMap::new(), 0_u32, 0_u32);
        while !last_call(&self.orders.dir).exists() {
            for line in reader.next()? {
                if line.what == "accepted" {
                    accepted.insert(line.about, line.process);
                }
            }
            // A till that is called without a pause stays where it is.
            if made % 32 < 28 {
                let call = format!("c{}-{}-{rung}", self.orders.worker, self.orders.life);
                tokio::spawn(till::ring(self.forever.clone(), self.orders.dir.clone(), call, rung));
                rung += 1;
            }
            if unpaid.len() < OPEN {
                let id = format!("o{}-{}-{made}", self.orders.worker, self.orders.life);
                made += 1;
                // An order that may or may not be stored is not promised.
                if self.forever.spawn(order(ITEMS)).id(id.as_str()).await.is_ok() {
                    self.desk.journal.write("accepted", &id, "");
                    unpaid.push(id);
                }
            }
            if unpaid.len() > OPEN / 2 {
                let id = unpaid.remove(0);
                if self.pay(&id).await.is_err() {
                    unpaid.push(id);
                }
            }
            // The newest order that is another worker's.
            if let Some(id) = accepted.iter().rev().find(|(_, process)| **process != std::process::id()).map(|(id, _)| id.clone()) {
                accepted.remove(&id);
                tokio::spawn(Arc::clone(&self).hear(id));
            }
            tokio::time::sleep(PACE).await;
        }
        self.finish().await
    }

    async fn pay(&self, id: &str) -> forever::Result<()> {
        match self.forever.send(id, PAID, &PRICE).message_id(format!("{id}-paid")).await {
            Err(error) if !error.is_invalid_state() => Err(error),
            _ => Ok(()),
        }
    }

    /// Waits for an order of another worker.
    async fn hear(self: Arc<Self>, id: String) {
        if let Ok(result) = self.forever.fiber::<order>(&id).wait().await {
            self.desk.journal.write("heard", &id, result);
        }
    }

    /// Pays for every order that is left, and waits until all have ended. One worker writes down
    /// how.
    async fn finish(&self) -> anyhow::Result<()> {
        loop {
            let mut open = 0;
            for state in [FiberState::Pending, FiberState::Running, FiberState::Waiting, FiberState::Interrupted, FiberState::Parked] {
                let page = self.forever.fibers().name("order").state(state).limit(1000).await;
                let Ok(page) = page else {
                    open += 1;
                    continue;
                };
                for fiber in page.fibers {
                    open += 1;
                    // Another worker may have paid for it, or it has just ended.
                    let _ = self.pay(&fiber.id).await;
                }
            }
            if open == 0 {
                break;
            }
            tokio::time::sleep(PACE * 4).await;
        }
        if self.orders.worker == 1 {
            let mut after = None;
            loop {
                let mut fibers = self.forever.fibers().name("order").limit(500);
                if let Some(after) = after {
                    fibers = fibers.after(after);
                }
                let page = fibers.await?;
                for fiber in page.fibers {
                    let result = self.forever.fiber::<order>(&fiber.id).wait().await;
                    let text = result.map_or_else(|why| why.to_string(), |result| result.to_string());
                    self.desk.journal.write("ended", &fiber.id, text);
                }
                let Some(next) = page.next else { break };
                after = Some(next);
            }
            let workers = self.forever.workers().await.context("the workers can be listed")?;
            self.desk.journal.write("all-ended", "orders", workers.len());
        }
        // It stays open until it is closed.
        std::future::pending().await
    }
}
