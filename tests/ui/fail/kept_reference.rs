use forever::prelude::*;

#[fiber]
async fn checkout(orders: Vec<u32>) -> anyhow::Result<u32> {
    let first = orders.first();
    let charge = step!(pay(orders.len()).await?);
    Ok(charge + first.copied().unwrap_or(0))
}

async fn pay(orders: usize) -> anyhow::Result<u32> {
    Ok(orders as u32)
}

fn main() {}
