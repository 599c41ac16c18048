use forever::prelude::*;

#[fiber]
async fn keep<T>(value: T) -> anyhow::Result<T> {
    let _done = step!(pause().await?);
    Ok(value)
}

#[fiber]
async fn show<T: std::fmt::Debug + Send>(value: T) -> anyhow::Result<()> {
    let _done = step!(pause().await?);
    println!("{value:?}");
    Ok(())
}

async fn pause() -> anyhow::Result<()> {
    Ok(())
}

fn main() {}
