use forever::prelude::*;

struct App;

impl App {
    #[fiber]
    async fn checkout(&self, order: u32) -> anyhow::Result<u32> {
        let paid = step!(pay(order).await?);
        Ok(paid)
    }
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {
    let _ = App.checkout(1);
}
