use forever::prelude::*;

#[fiber]
async unsafe fn checkout(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
