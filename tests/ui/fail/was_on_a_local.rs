use forever::prelude::*;

#[fiber]
async fn shop(order: u32) -> anyhow::Result<u32> {
    #[was]
    let paid = step!(pay(order).await?);
    #[was = "pair"]
    let (a, b) = (paid, order);
    #[was = ""]
    let sum = a + b;
    step!("note", drop(sum));
    Ok(sum + a + b)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
