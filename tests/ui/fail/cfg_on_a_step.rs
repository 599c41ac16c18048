use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    #[cfg(feature = "fees")]
    let fee = step!(pay(order).await?);
    #[cfg(debug_assertions)]
    step!(pay(1).await?);
    #[cfg(not(windows))]
    if order > 1 {
        step!(pay(2).await?);
    }
    let paid = match order {
        #[cfg(unix)]
        0 => step!(pay(0).await?),
        n => n,
    };
    Ok(paid)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
