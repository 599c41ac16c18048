use forever::prelude::*;

#[fiber]
async fn checkout(orders: Vec<u32>) -> anyhow::Result<u32> {
    let mut at = 0;
    let order = &orders[at];
    at += step!(pay(1).await?);
    Ok(*order + at as u32)
}

async fn pay(order: usize) -> anyhow::Result<usize> {
    Ok(order)
}

fn main() {}
