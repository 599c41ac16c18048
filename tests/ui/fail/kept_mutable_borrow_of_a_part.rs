use forever::prelude::*;

#[fiber]
async fn checkout(mut order: Option<u32>) -> anyhow::Result<Option<u32>> {
    if let Some(price) = &mut order {
        let charge = step!(pay(1).await?);
        *price += charge;
    }
    Ok(order)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
