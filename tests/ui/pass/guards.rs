//! What is held where no step is in sight, and what may be dropped at a step: none of it is a guard that a step releases.
#![deny(warnings)]
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use forever::prelude::*;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

struct Conn;

impl Conn {
    async fn ask(&self, n: u32) -> anyhow::Result<u32> {
        Ok(n)
    }
}

impl Drop for Conn {
    fn drop(&mut self) {}
}

/// A type of the user's whose `lock` gives a number.
struct Door(u32);

impl Door {
    fn lock(&self) -> u32 {
        self.0
    }
    fn try_lock(&self) -> String {
        self.0.to_string()
    }
}

async fn permit(slots: &Res<Arc<Semaphore>>) -> anyhow::Result<OwnedSemaphorePermit> {
    Ok(Arc::clone(slots).acquire_owned().await?)
}

#[fiber]
async fn checkout(slots: Res<Arc<Semaphore>>, totals: Res<Mutex<u32>>, door: Res<Door>, _unused: Vec<u32>) -> anyhow::Result<u32> {
    let _started = Instant::now();
    let _number = 5;
    let _text = String::from("a");
    let _words = vec!["a"];
    let _list: BTreeMap<u32, Option<f64>> = BTreeMap::new();
    let _unit = pay(1).await?;
    let _door = &door;
    let conn = Conn;
    let first = step!("asks", conn.ask(1).await?);
    {
        let _permit = permit(&slots).await?;
        let mut total = totals.lock().unwrap();
        *total += first;
    }
    let held = permit(&slots).await?;
    drop(held);
    let guard = totals.lock().unwrap();
    drop(guard);
    let _ = permit(&slots).await?;
    let n = door.lock();
    let _also = door.lock();
    let text = door.try_lock();
    step!("locked", {
        let _permit = permit(&slots).await?;
        pay(n).await?
    });
    for round in 0..2 {
        step!("round", pay(round).await?);
        let _permit = permit(&slots).await?;
    }
    let _late;
    if first > 100 {
        step!("more", pay(first).await?);
    }
    _late = permit(&slots).await?;
    let _cell = RefCell::new(1);
    Ok(n + u32::try_from(text.len())?)
}

/// Its last step is behind it.
#[fiber]
async fn behind(slots: Res<Arc<Semaphore>>) -> anyhow::Result<u32> {
    let paid = step!("paid", pay(1).await?);
    let _permit = permit(&slots).await?;
    let more = pay(paid).await?;
    Ok(more)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

pub(crate) fn main() {
    let _ = (checkout(vec![1]), behind(), Conn, Door(1));
}
