use forever::prelude::*;

#[fiber(name = checkout)]
async fn checkout() -> anyhow::Result<()> {
    Ok(())
}

fn main() {}
