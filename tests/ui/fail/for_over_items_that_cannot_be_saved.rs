use forever::prelude::*;

struct Order(u32);

#[fiber]
async fn checkout(count: u32) -> anyhow::Result<u32> {
    let mut total = 0;
    for order in orders(count) {
        total += step!(pay(order.0).await?);
    }
    Ok(total)
}

fn orders(count: u32) -> Vec<Order> {
    (0..count).map(Order).collect()
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
