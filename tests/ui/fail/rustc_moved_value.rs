use forever::prelude::*;

#[fiber]
async fn checkout(order: String) -> anyhow::Result<usize> {
    let paid = step!(pay(order).await?);
    Ok(paid + order.len())
}

async fn pay(order: String) -> anyhow::Result<usize> {
    Ok(order.len())
}

fn main() {}
