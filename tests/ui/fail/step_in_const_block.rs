use forever::prelude::*;

#[fiber]
async fn checkout() -> anyhow::Result<u32> {
    Ok(const { step!(3) })
}

fn main() {}
