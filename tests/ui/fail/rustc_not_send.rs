use std::rc::Rc;

use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    let shared = Rc::new(order);
    pay(*shared).await?;
    let paid = step!(pay(order).await?);
    Ok(paid + order)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
