use std::collections::{HashMap, HashSet};

use forever::prelude::*;

#[fiber]
async fn checkout(orders: HashMap<u32, u32>, seen: HashSet<u32>) -> anyhow::Result<u32> {
    let mut total = 0;
    for (order, price) in &orders {
        total += step!(pay(*order + *price).await?);
    }
    for order in seen.iter() {
        total += step!(pay(*order).await?);
    }
    Ok(total)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
