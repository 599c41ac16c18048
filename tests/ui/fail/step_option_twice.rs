use std::time::Duration;

use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    let limit = Duration::from_secs(1);
    Ok(step!("pay", timeout = limit, timeout = limit, pay(order).await?))
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
