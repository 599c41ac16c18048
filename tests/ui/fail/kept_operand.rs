use forever::prelude::*;

struct Price(u32);

impl std::ops::Add<u32> for Price {
    type Output = u32;
    fn add(self, other: u32) -> u32 {
        self.0 + other
    }
}

fn price() -> Price {
    Price(1)
}

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    Ok(price() + step!("charge", pay(order).await?))
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
