use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    let a = step!(retries = 3, pay(order).await?);
    let b = step!("pay", effects, pay(a).await?);
    let c = step!(pay(b).await?, "pay");
    let d = step!(limits.time = 3, pay(c).await?);
    Ok(d)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
