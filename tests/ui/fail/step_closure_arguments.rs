use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    let a = step!(|| pay(order).await?);
    let b = step!(|op, attempt| pay(a).await?);
    let c = step!(async |op| pay(b).await?);
    Ok(c)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
