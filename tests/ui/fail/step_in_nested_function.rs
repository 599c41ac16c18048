use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    async fn twice(order: u32) -> anyhow::Result<u32> {
        let first = step!(pay(order).await?);
        Ok(first + call!(checkout(order))?)
    }
    twice(order).await
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
