use std::sync::{Arc, Mutex};

use forever::prelude::*;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

struct Entered(u32);

impl Drop for Entered {
    fn drop(&mut self) {}
}

fn enter(order: u32) -> Entered {
    Entered(order)
}

async fn permit(slots: &Res<Arc<Semaphore>>) -> anyhow::Result<OwnedSemaphorePermit> {
    Ok(Arc::clone(slots).acquire_owned().await?)
}

#[fiber]
async fn checkout(slots: Res<Arc<Semaphore>>, order: u32) -> anyhow::Result<u32> {
    let _permit = permit(&slots).await?;
    let charge = step!(pay(order).await?);
    Ok(charge)
}

#[fiber]
async fn patterns(slots: Res<Arc<Semaphore>>, order: Option<u32>) -> anyhow::Result<u32> {
    let (_one, two) = (enter(1), enter(2));
    step!("first", pay(two.0).await?);
    if let Some(_three) = order.map(enter) {
        step!("second", pay(3).await?);
    }
    match permit(&slots).await {
        Ok(_four) => {
            step!("third", pay(4).await?);
        }
        Err(_) => {}
    }
    while let Some(_five) = order.map(enter) {
        step!("fourth", pay(5).await?);
    }
    Ok(1)
}

#[fiber]
async fn scopes(slots: Res<Arc<Semaphore>>, order: u32) -> anyhow::Result<u32> {
    {
        let _inner = enter(order);
        step!("inner", pay(1).await?);
    }
    let _later;
    if order > 1 {
        _later = enter(1);
        step!("later", pay(2).await?);
    }
    let _taken = step!("take", permit(&slots).await?);
    let _chosen = if order > 1 { enter(step!("choose", pay(1).await?)) } else { enter(2) };
    let Some(_else) = Some(order).map(enter) else { return Ok(2) };
    #[fresh]
    let _fresh = enter(4);
    for part in 0..order {
        let _round = enter(part);
        step!("round", pay(3).await?);
    }
    Ok(order)
}

#[fiber]
async fn used_before(total: Res<Mutex<u32>>, order: u32) -> anyhow::Result<u32> {
    let mut held = total.lock().unwrap();
    *held += order;
    let charge = step!(pay(order).await?);
    Ok(charge)
}

#[fiber]
async fn lent(order: u32) -> anyhow::Result<u32> {
    let (entered, count) = (&enter(order), order.count_ones());
    let lower = if count > 1 { &enter(1) } else { &Entered(2) };
    let sum = entered.0 + lower.0 + count;
    let charge = step!("lent", pay(sum).await?);
    Ok(charge)
}

#[fiber]
async fn set_again(order: u32) -> anyhow::Result<u32> {
    let mut entered = enter(order);
    let mut sum = entered.0;
    step!("first", pay(sum).await?);
    entered = enter(2);
    sum += entered.0;
    let charge = step!("second", pay(sum).await?);
    Ok(charge)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}

#[fiber]
async fn set_later(slots: Res<Arc<Semaphore>>, order: u32) -> anyhow::Result<u32> {
    let mut _permit = None;
    if order > 1 {
        _permit = Some(permit(&slots).await?);
    }
    let charge = step!(pay(order).await?);
    Ok(charge)
}

#[fiber]
async fn cannot_be_declared_earlier(order: u32) -> anyhow::Result<u32> {
    match Some(order).map(enter) {
        Some(guarded) if guarded.0 > 1 => {
            step!("guarded", pay(guarded.0).await?);
        }
        _ => {}
    }
    let given = enter(order);
    {
        if order > given.0 {
            drop(given);
        }
        step!("given", pay(order).await?);
    }
    Ok(order)
}
