use forever::prelude::*;
use tokio::sync::mpsc;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    let (tell, mut told) = mpsc::channel::<u32>(1);
    let charge = step!(pay(order).await?);
    tell.send(charge).await?;
    Ok(told.recv().await.unwrap_or(0))
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
