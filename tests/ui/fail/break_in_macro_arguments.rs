use forever::prelude::*;

macro_rules! or_else {
    ($value:expr, $otherwise:expr) => {
        match $value {
            Some(value) => value,
            None => $otherwise,
        }
    };
}

#[fiber]
async fn checkout(orders: Vec<u32>) -> anyhow::Result<Vec<u32>> {
    let mut paid = Vec::new();
    let mut at = 0;
    loop {
        paid.push(at);
        let order = or_else!(orders.get(at as usize).copied(), break);
        at = step!(pay(order).await?);
        paid.push(order);
    }
    Ok(paid)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
