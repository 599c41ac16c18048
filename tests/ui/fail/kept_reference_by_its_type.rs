use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<String> {
    let name = order.to_string();
    let short: &str = name.trim();
    let paid = step!(pay(order).await?);
    Ok(format!("{short} {paid}"))
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
