#![deny(unused)]
use forever::prelude::*;

#[fiber]
async fn checkout(order: u32, coupon: u32) -> anyhow::Result<u32> {
    let unused = step!(pay(order).await?);
    let mut never = step!("never", pay(order).await?);
    let seldom;
    seldom = step!("seldom", pay(order).await?);
    match order {
        1 => {
            let inner = step!("inner", pay(order).await?);
        }
        other => {}
    }
    step!("must", must());
    Ok(never)
}

#[must_use]
fn must() -> u32 {
    1
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
