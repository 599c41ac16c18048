use forever::prelude::*;

#[fiber]
async fn side(n: u32) -> anyhow::Result<u32> {
    let all = steps!(n, n, n, n, n, n, n, n, n, n, n, n, n + 1);
    Ok(all.0)
}

fn main() {}
