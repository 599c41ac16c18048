use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    let mut factor = 1;
    factor += order;
    let scaled = |n: u32| n * factor;
    let charge = step!(pay(order).await?);
    Ok(scaled(charge))
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
