use forever::prelude::*;

#[fiber]
async fn checkout(orders: Vec<u32>, first: u32) -> anyhow::Result<u32> {
    let mut total = 0;
    for order in orders.clone().into_iter().map(|order| order + 1) {
        total += step!("mapped", pay(order).await?);
    }
    for order in std::iter::successors(Some(first), |order| Some(order * 2)) {
        total += step!("doubled", pay(order).await?);
    }
    for order in orders.clone().into_iter().cycle() {
        total += step!("again", pay(order).await?);
    }
    for order in open_orders(&orders) {
        total += step!("open", pay(order).await?);
    }
    let dear = orders.into_iter().filter(|order| *order > 100).enumerate();
    for (place, order) in dear {
        total += step!("dear", pay(order + place as u32).await?);
    }
    Ok(total)
}

#[fiber]
async fn checkout_side_by_side(orders: Vec<u32>) -> anyhow::Result<u32> {
    let paid: Vec<u32> = steps!(for order in orders.into_iter().map(|order| order + 1), pay(order).await?);
    let more: Vec<u32> = steps!(for order in 1.., pay(order).await?);
    Ok(paid[0] + more[0])
}

fn open_orders(orders: &[u32]) -> impl Iterator<Item = u32> {
    orders.iter().copied()
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
