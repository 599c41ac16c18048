use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    let paid = step!({
        let price = step!(price(order).await?);
        pay(price).await?
    });
    let again = step!(retry = twice(step!(price(order).await?)), pay(paid).await?);
    Ok(call!(checkout(step!(price(again).await?)))?)
}

fn twice(_: u32) -> forever::fiber::Retry<anyhow::Error> {
    forever::fiber::Retry::times(2)
}

async fn price(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
