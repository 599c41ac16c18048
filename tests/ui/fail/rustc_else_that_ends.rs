use forever::prelude::*;

#[fiber]
async fn checkout(order: Option<u32>) -> anyhow::Result<u32> {
    let Some(order) = order else {
        step!(pay(0).await?);
    };
    let Some(part) = order.checked_sub(1) else {
        if step!("sure", pay(order).await?) > 0 {
            anyhow::bail!("no part");
        }
    };
    step!("rest", pay(part).await?);
    Ok(part)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
