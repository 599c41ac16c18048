use forever::prelude::*;

struct Order {
    id: u32,
}

#[fiber]
async fn checkout(order: Order) -> anyhow::Result<u32> {
    let paid = step!(pay(order.id).await?);
    Ok(paid)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
