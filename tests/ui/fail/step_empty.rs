use forever::prelude::*;

#[fiber]
async fn checkout() -> anyhow::Result<()> {
    step!();
    step!("pay",);
    step!("pay");
    Ok(())
}

fn main() {}
