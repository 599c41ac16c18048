use forever::prelude::*;

#[fiber]
async fn order(n: u32) -> anyhow::Result<u32> {
    let a = step!(catch = true, work(n).await?);
    let b = step!(catch, catch, work(n).await?);
    let c = step!("c", caught, work(n).await?);
    Ok(a? + b? + c)
}

async fn work(n: u32) -> anyhow::Result<u32> {
    Ok(n)
}

fn main() {}
