use forever::prelude::*;

#[fiber]
async fn checkout(orders: Vec<u32>) -> anyhow::Result<u32> {
    let mut total = 0;
    let mut left = orders.into_iter();
    for order in left.by_ref() {
        total += step!(pay(order).await?);
    }
    Ok(total)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
