use forever::prelude::*;

#[fiber(version = "2")]
async fn checkout() -> anyhow::Result<()> {
    Ok(())
}

fn main() {}
