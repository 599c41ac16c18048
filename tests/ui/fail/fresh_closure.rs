use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<String> {
    let mut factor = 1;
    factor += order;
    #[fresh]
    let scaled = |n: u32| n * factor;
    #[fresh]
    let shown = |n: u32| format!("{order}: {n}");
    let charge = step!(pay(order).await?);
    Ok(shown(scaled(charge)))
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
