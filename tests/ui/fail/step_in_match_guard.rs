use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    match order {
        n if step!(allowed(n).await?) => Ok(n),
        _ => Ok(0),
    }
}

async fn allowed(order: u32) -> anyhow::Result<bool> {
    Ok(order > 1)
}

fn main() {}
