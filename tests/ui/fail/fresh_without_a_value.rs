use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    #[fresh]
    let client: u32;
    client = order;
    #[fresh]
    let (a, b) = (1, 2);
    let paid = step!(pay(order).await?);
    Ok(paid + client + a + b)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
