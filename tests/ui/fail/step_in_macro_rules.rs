use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    macro_rules! paid {
        ($order:expr) => {
            step!(pay($order).await?)
        };
    }
    Ok(paid!(order))
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
