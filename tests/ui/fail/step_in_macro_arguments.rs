use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<Vec<u32>> {
    println!("paid: {}", step!(pay(order).await?));
    Ok(vec![call!(checkout(order))?[0]])
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
