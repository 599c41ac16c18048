use forever::prelude::*;

#[fiber(version = 5_000_000_000, max_recoveries = 4294967296)]
async fn checkout() -> anyhow::Result<()> {
    Ok(())
}

fn main() {}
