use forever::prelude::*;
use tokio::sync::Mutex;

#[fiber]
async fn checkout(totals: Res<Mutex<u32>>, order: u32) -> anyhow::Result<u32> {
    let mut total = totals.lock().await;
    let charge = step!(pay(order).await?);
    *total += charge;
    Ok(*total)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
