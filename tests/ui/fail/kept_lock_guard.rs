use std::sync::Mutex;

use forever::prelude::*;

#[fiber]
async fn checkout(totals: Res<Mutex<u32>>, order: u32) -> anyhow::Result<u32> {
    let mut total = totals.lock().unwrap();
    let charge = step!(pay(order).await?);
    *total += charge;
    Ok(*total)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
