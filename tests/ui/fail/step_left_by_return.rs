use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    let paid = step!({
        if order == 0 {
            return Ok(0);
        }
        pay(order).await?
    });
    Ok(paid)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
