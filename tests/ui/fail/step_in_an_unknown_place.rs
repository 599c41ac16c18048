use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<bool> {
    let place = &raw const step!(pay(order).await?);
    Ok(place.is_null())
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
