use forever::prelude::*;

struct App;

impl App {
    #[fiber]
    async fn checkout(order: u32) -> anyhow::Result<u32> {
        Ok(step!(Self::pay(order).await?))
    }

    async fn pay(order: u32) -> anyhow::Result<u32> {
        Ok(order)
    }
}

fn main() {}
