use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    let paid = async move { anyhow::Ok(step!(pay(order).await?)) };
    Ok(paid.await?)
}

#[fiber]
async fn aside(order: u32) -> anyhow::Result<u32> {
    let task = tokio::spawn(async move { anyhow::Ok(step!(pay(order).await?)) });
    Ok(task.await??)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
