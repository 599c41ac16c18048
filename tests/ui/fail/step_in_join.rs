use forever::prelude::*;

#[fiber]
async fn joined(n: u32) -> anyhow::Result<u32> {
    let (a, b) = tokio::join!(step!(work(n).await?), step!(work(n).await?));
    let (c, d) = tokio::try_join!(async { step!(work(n).await) }, work(n))?;
    let (e, _) = futures_util::join!(steps!(work(n).await?, 1), work(n));
    let first = tokio::select! {
        f = step!(work(n).await?) => f,
        _ = tokio::time::sleep(std::time::Duration::ZERO) => 0,
    };
    Ok(a + b + c + d + e + first)
}

async fn work(n: u32) -> anyhow::Result<u32> {
    Ok(n)
}

fn main() {}
