#![deny(warnings)]
use forever::prelude::*;

#[fiber]
async fn pay(order: u32) -> anyhow::Result<u32> {
    let done = step!(work(order).await?);
    Ok(done)
}

#[fiber]
async fn checkout(orders: Vec<u32>) -> anyhow::Result<u32> {
    let mut total = call!(pay(1))?;
    for order in orders {
        total += call!(pay(order))?;
    }
    call!(pay(total))?;
    let kept = call!(pay(2));
    total += kept.unwrap_or_default();
    match call!(pay(3)) {
        Ok(paid) => total += paid,
        Err(error) => return Err(anyhow::anyhow!("{error}")),
    }
    Ok(total)
}

async fn work(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

pub(crate) fn main() {
    let _ = checkout(vec![]);
}
