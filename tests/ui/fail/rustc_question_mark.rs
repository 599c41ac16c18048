use forever::prelude::*;

#[derive(Debug)]
enum Declined {}

impl std::fmt::Display for Declined {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("declined")
    }
}

impl std::error::Error for Declined {}

#[fiber]
async fn checkout(order: u32) -> Result<u32, Declined> {
    let paid = step!(pay(order).await?);
    let fee = pay(paid).await?;
    Ok(fee)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
