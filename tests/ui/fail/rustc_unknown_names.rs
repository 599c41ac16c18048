use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    let paid = step!(pai(order).await?);
    let fee = step!("fee", pay(ordr).await?);
    for part in parts {
        step!("part", pay(part).await?);
    }
    Ok(paid + fee.total())
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
