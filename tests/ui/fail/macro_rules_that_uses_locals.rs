use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    let fee = order / 10;
    macro_rules! with_fee {
        ($price:expr) => {
            $price + fee
        };
    }
    let paid = step!(pay(order).await?);
    Ok(with_fee!(paid))
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
