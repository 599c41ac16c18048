use forever::prelude::*;

#[fiber]
async fn checkout(order: u32, ctx: &FiberContext) -> anyhow::Result<u32> {
    let _ = ctx;
    Ok(order)
}

fn main() {
    let _ = checkout(1);
}
