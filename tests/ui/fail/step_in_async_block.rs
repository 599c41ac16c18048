use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    let paid = async move { anyhow::Ok(step!(pay(order).await?)) };
    Ok(paid.await?)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
