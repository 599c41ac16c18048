use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<String> {
    let paid: String = step!(pay(order).await?);
    if step!("rich", pay(1).await?) {
        return Ok(paid);
    }
    let fee = step!("fee", pay(order)?);
    Ok(order)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
