use forever::prelude::*;

#[fiber]
async fn side(n: u32, list: Vec<u32>) -> anyhow::Result<u32> {
    let (a, b) = steps!(work(n).await?, step!(work(n).await?) + 1);
    let all = steps!(for n in list, wait!(n)?);
    let limited = steps!(for n in all, limit = step!(limit().await), n);
    Ok(a + b + limited[0])
}

fn main() {}
