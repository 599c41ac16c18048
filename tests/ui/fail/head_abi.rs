use forever::prelude::*;

#[fiber]
async extern "C" fn checkout(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
