use forever::prelude::*;

#[fiber]
async fn checkout(mut orders: Vec<u32>) -> anyhow::Result<Vec<u32>> {
    for order in &mut orders {
        *order = step!(pay(*order).await?);
    }
    for order in orders.iter_mut() {
        *order = step!(pay(*order).await?);
    }
    Ok(orders)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
