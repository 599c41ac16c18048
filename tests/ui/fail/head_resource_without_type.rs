use forever::prelude::*;

#[fiber]
async fn checkout(model: Res, order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
