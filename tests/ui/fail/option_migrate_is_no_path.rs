use forever::prelude::*;

#[fiber(migrate = |old| old)]
async fn checkout() -> anyhow::Result<()> {
    Ok(())
}

fn main() {}
