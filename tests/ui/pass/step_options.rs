#![deny(warnings)]
use std::time::Duration;

use forever::fiber::Retry;
use forever::prelude::*;

#[fiber(name = "shop.checkout", version = 2, max_recoveries = 3)]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    let paid = step!("pay", retry = Retry::times(3), timeout = Duration::from_secs(5), pay(order).await?);
    let fee = step!("fee", retry = Retry::times(2), |op| {
        println!("{}", op.id());
        pay(paid).await?
    });
    let tip = step!(|op| pay(op.attempt()).await?);
    Ok(step!("bill", was = "invoice", timeout = Duration::from_secs(1), pay(fee + tip).await?))
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

pub(crate) fn main() {
    let _ = checkout(1);
}
