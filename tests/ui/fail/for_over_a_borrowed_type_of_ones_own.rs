use forever::prelude::*;

#[derive(serde::Serialize, serde::Deserialize)]
struct Basket {
    orders: Vec<u32>,
}

impl Basket {
    fn iter(&self) -> std::slice::Iter<'_, u32> {
        self.orders.iter()
    }
}

#[fiber]
async fn checkout(basket: Basket) -> anyhow::Result<u32> {
    let mut total = 0;
    for order in basket.iter() {
        total += step!(pay(*order).await?);
    }
    Ok(total)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
