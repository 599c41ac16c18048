use forever::prelude::*;

#[fiber]
const async fn checkout(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
