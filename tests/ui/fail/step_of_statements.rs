use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    let a = step!(let price = order; pay(price).await?);
    let b = step!(pay(a).await?; pay(order).await?);
    Ok(b)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
