use forever::prelude::*;

#[fiber]
async fn checkout(orders: Vec<u32>) -> anyhow::Result<usize> {
    let all = &orders;
    let paid = step!(pay(all.len()).await?);
    drop(orders);
    Ok(paid + all.len())
}

async fn pay(orders: usize) -> anyhow::Result<usize> {
    Ok(orders)
}

fn main() {}
