use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    let paid = step!("charge", on_unknown = OnUnknown::Retry, charge(order).await?);
    let mailed = step!("mail", key = order, |op| charge(op.attempt() + paid).await?);
    Ok(mailed)
}

async fn charge(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
