use forever::prelude::*;

#[fiber]
async fn order(n: u32) -> anyhow::Result<u32> {
    let mut times = 3;
    let retry = Retry::times(times);
    times += step!("a", retry = retry, work(n).await?);
    Ok(step!("b", retry = retry, work(times).await?))
}

async fn work(n: u32) -> anyhow::Result<u32> {
    Ok(n)
}

fn main() {}
