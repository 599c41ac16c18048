use forever::prelude::*;

struct Receipt {
    id: u32,
}

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    let receipt = step!("charge", effect, charge(order).await?);
    step!("refund", effect, on_unknown = OnUnknown::Retry, |op| charge(op.attempt()).await?);
    Ok(receipt.id)
}

async fn charge(id: u32) -> anyhow::Result<Receipt> {
    Ok(Receipt { id })
}

fn main() {}
