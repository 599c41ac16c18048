use forever::prelude::*;

struct Receipt {
    id: u32,
}

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    let receipt = step!(pay(order).await?);
    Ok(receipt.id)
}

async fn pay(id: u32) -> anyhow::Result<Receipt> {
    Ok(Receipt { id })
}

fn main() {}
