use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    let paid = step!("pay", pay(order).await?);
    let fee = step!("pay", pay(1).await?);
    Ok(paid + fee)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
