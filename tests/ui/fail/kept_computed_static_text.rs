use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<String> {
    let kind = if order > 10 { "large" } else { "small" };
    let charge = step!(pay(order).await?);
    Ok(format!("{kind} {charge}"))
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
