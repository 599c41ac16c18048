use forever::prelude::*;

#[fiber]
async fn totals(orders: Vec<u32>) -> anyhow::Result<u32> {
    let paid = orders.iter().map(|order| step!(pay(*order)));
    Ok(paid.sum())
}

fn pay(order: u32) -> u32 {
    order
}

fn main() {
    let _ = totals(vec![]);
}
