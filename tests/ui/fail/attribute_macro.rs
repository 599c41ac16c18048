use forever::prelude::*;

#[tracing::instrument]
#[fiber]
async fn above(order: u32) -> anyhow::Result<u32> {
    let paid = step!(pay(order).await?);
    step!("again", pay(paid).await?);
    Ok(paid)
}

#[fiber]
#[tracing::instrument(skip_all)]
async fn below(order: u32) -> anyhow::Result<u32> {
    let paid = step!(pay(order).await?);
    Ok(paid)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {
    let _ = (above(1), below(2));
}
