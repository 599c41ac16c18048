use forever::prelude::*;

#[derive(Clone)]
struct Order(u32);

#[fiber]
async fn of_a_call(count: u32) -> anyhow::Result<u32> {
    let mut total = 0;
    for order in &orders(count) {
        total += step!(pay(order.0).await?);
    }
    Ok(total)
}

#[fiber]
async fn numbered(count: u32) -> anyhow::Result<u32> {
    let mut total = 0;
    for (i, order) in orders(count).iter().enumerate() {
        total += step!(pay(order.0).await?) * i as u32;
    }
    Ok(total)
}

#[fiber]
async fn of_a_literal(count: u32) -> anyhow::Result<u32> {
    let mut total = 0;
    for order in &[Order(1), Order(count)] {
        total += step!(pay(order.0).await?);
    }
    Ok(total)
}

#[fiber]
async fn in_an_array(first: u32, second: u32) -> anyhow::Result<u32> {
    let mut total = 0;
    for n in [&first, &second] {
        total += step!(pay(*n).await?);
    }
    Ok(total)
}

#[fiber]
async fn in_a_list(orders: Vec<u32>) -> anyhow::Result<u32> {
    let large: Vec<&u32> = orders.iter().filter(|order| **order > 9).collect();
    let mut total = 0;
    for n in large {
        total += step!(pay(*n).await?);
    }
    Ok(total)
}

#[fiber]
async fn given_by_a_function(orders: Vec<u32>) -> anyhow::Result<u32> {
    let mut total = 0;
    for n in large(&orders) {
        total += step!(pay(*n).await?);
    }
    Ok(total)
}

#[fiber]
async fn joined(count: u32, names: Vec<String>) -> anyhow::Result<u32> {
    let mut total = 0;
    for (order, name) in orders(count).iter().zip(&names) {
        total += step!(pay(order.0).await?) + name.len() as u32;
    }
    Ok(total)
}

#[fiber]
async fn with_a_closure(count: u32) -> anyhow::Result<u32> {
    let mut total = 0;
    for order in orders(count).iter().filter(|order| order.0 > 1) {
        total += step!(pay(order.0).await?);
    }
    Ok(total)
}

#[fiber]
async fn in_parts(count: u32) -> anyhow::Result<u32> {
    let mut total = 0;
    for part in orders(count).chunks(2) {
        total += step!(pay(part.len() as u32).await?);
    }
    Ok(total)
}

fn orders(count: u32) -> Vec<Order> {
    (0..count).map(Order).collect()
}

fn large(orders: &[u32]) -> Vec<&u32> {
    orders.iter().filter(|order| **order > 9).collect()
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
