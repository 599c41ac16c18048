use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    let paid = step!("charge", effect = true, charge(order).await?);
    Ok(step!("mail", effect, effect, charge(paid).await?))
}

async fn charge(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
