use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    let mut most = order;
    most += 1;
    let policy = OnUnknown::check(async |op| Some(op.attempt().min(most)));
    let price = step!("price", charge(order).await?);
    Ok(step!("charge", effect, on_unknown = policy, charge(price).await?))
}

async fn charge(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
