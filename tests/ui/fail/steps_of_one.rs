use forever::prelude::*;

#[fiber]
async fn side(n: u32) -> anyhow::Result<u32> {
    steps!();
    let (a,) = steps!(work(n).await?);
    Ok(a)
}

async fn work(n: u32) -> anyhow::Result<u32> {
    Ok(n)
}

fn main() {}
