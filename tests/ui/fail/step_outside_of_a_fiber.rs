use forever::prelude::*;

async fn checkout(order: u32) -> anyhow::Result<u32> {
    let paid = step!(pay(order).await?);
    Ok(paid)
}

async fn twice(order: u32) -> anyhow::Result<u32> {
    Ok(forever::call!(again(order))?)
}

#[fiber]
async fn again(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
