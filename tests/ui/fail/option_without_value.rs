use forever::prelude::*;

#[fiber(version)]
async fn checkout() -> anyhow::Result<()> {
    Ok(())
}

fn main() {}
