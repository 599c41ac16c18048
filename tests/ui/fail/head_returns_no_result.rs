use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> u32 {
    order
}

#[fiber]
async fn named(order: u32) -> Order {
    order
}

type Order = u32;

fn main() {}
