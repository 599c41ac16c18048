use forever::prelude::*;

#[fiber]
async fn keep<T>(value: T) -> anyhow::Result<T> {
    let _done = step!(pause().await?);
    Ok(value)
}

async fn pause() -> anyhow::Result<()> {
    Ok(())
}

fn main() {}
