use forever::prelude::*;

#[fiber]
async fn items(list: Vec<u32>) -> anyhow::Result<u32> {
    let a = steps!(for n in &list, retries = 3, work(*n).await?);
    let b = steps!(for n in list, catch, catch, work(n).await?);
    let c = steps!(for n in a, key = n, work(n).await?);
    let d = steps!(was = "older", for n in b, step!(was = "old", work(n).await?));
    let e = steps!(for n in c, effect, |op, n| work(n).await?);
    let f = steps!(for n in d, retry, work(n).await?);
    Ok(e[0] + f[0])
}

#[fiber]
async fn branches(n: u32) -> anyhow::Result<u32> {
    let (a, b) = steps!(step!("law", work(n).await?), step!("law", work(n).await?));
    let (c, d) = steps!(step!(effects, work(n).await?), step!(on_unknown = OnUnknown::Retry, work(n).await?));
    Ok(a + b + c + d)
}

#[fiber]
async fn of_no_branch(n: u32) -> anyhow::Result<u32> {
    let (a, b) = steps!(retry = Retry::times(3), work(n).await?, work(n).await?);
    Ok(a + b)
}

#[fiber]
async fn without_body(list: Vec<u32>) -> anyhow::Result<u32> {
    let a = steps!(for n in list, retry = Retry::times(3));
    Ok(a)
}

async fn work(n: u32) -> anyhow::Result<u32> {
    Ok(n)
}

fn main() {}
