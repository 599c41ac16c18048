use forever::prelude::*;

macro_rules! paid {
    ($order:expr) => {
        step!(pay($order).await?)
    };
}

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    Ok(paid!(order))
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
