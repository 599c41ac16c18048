use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    #[cfg(windows)]
    let fee = 1;
    #[cfg(not(windows))]
    let fee = 2;
    let paid = step!(pay(order).await?);
    Ok(paid + fee)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
