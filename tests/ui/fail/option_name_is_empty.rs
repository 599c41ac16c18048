use forever::prelude::*;

#[fiber(name = " ")]
async fn checkout() -> anyhow::Result<()> {
    Ok(())
}

fn main() {}
