use forever::prelude::*;

#[fiber]
async fn checkout(order: u32, more: ...) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
