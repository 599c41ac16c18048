use forever::prelude::*;

#[fiber]
async fn checkout(orders: Vec<u32>) -> anyhow::Result<u32> {
    let mut total = 0;
    for order in orders.iter().filter(|order| **order > 1) {
        total += step!(pay(*order).await?);
    }
    Ok(total)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
