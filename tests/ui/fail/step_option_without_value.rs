use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    let paid = step!("charge", effect, key, charge(order).await?);
    let seen = step!("see", retry, charge(paid).await?);
    Ok(step!("mail", effect, on_unknown, charge(seen).await?))
}

async fn charge(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
