#![deny(warnings)]
use forever::prelude::*;

/// Takes the money for an order.
#[fiber]
pub async fn checkout(_ctx: &FiberContext, order: u32) -> anyhow::Result<u32> {
    let paid = step!(pay(order).await?);
    step!("fee", pay(1).await?);
    let fee = step!({
        let half = paid / 2;
        pay(half).await?
    });
    Ok(paid + fee)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

pub(crate) fn main() {
    let _ = checkout(1);
}
