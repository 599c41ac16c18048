use forever::prelude::*;

#[fiber(version = 1, name = "checkout", version = 2)]
async fn checkout() -> anyhow::Result<()> {
    Ok(())
}

fn main() {}
