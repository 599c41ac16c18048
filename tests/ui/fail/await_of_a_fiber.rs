use forever::prelude::*;

#[fiber]
async fn parent(order: u32) -> anyhow::Result<u32> {
    let paid = pay(order).await?;
    Ok(paid)
}

#[fiber]
async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
