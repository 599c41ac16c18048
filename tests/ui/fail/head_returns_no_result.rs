use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> u32 {
    order
}

fn main() {}
