use forever::prelude::*;

#[fiber]
fn checkout(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {
    let _ = checkout(1);
}
