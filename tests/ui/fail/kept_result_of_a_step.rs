use forever::prelude::*;

#[fiber]
async fn shop(order: u32) -> anyhow::Result<u32> {
    let paid = step!(pay(order).await);
    step!("note", println!("paid"));
    match step!(pay(order).await) {
        Ok(more) => Ok(more + paid?),
        Err(error) => Err(error),
    }
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
