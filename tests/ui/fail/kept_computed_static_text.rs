use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<String> {
    let kind = kind_of(order);
    let charge = step!(pay(order).await?);
    Ok(format!("{kind} {charge}"))
}

fn kind_of(order: u32) -> &'static str {
    if order > 10 { "large" } else { "small" }
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
