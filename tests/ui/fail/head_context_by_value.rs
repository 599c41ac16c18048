use forever::prelude::*;

#[fiber]
async fn checkout(ctx: FiberContext, order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
