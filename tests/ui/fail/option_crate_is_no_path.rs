use forever::prelude::*;

#[fiber(crate = "forever")]
async fn checkout() -> anyhow::Result<()> {
    Ok(())
}

fn main() {}
