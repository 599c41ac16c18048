use forever::prelude::*;

async fn plain(n: u32) -> anyhow::Result<u32> {
    Ok(n)
}

#[fiber]
async fn late(n: u32) -> anyhow::Result<u32> {
    sleep!(n);
    let answer: u32 = recv!("answer", timeout = 5);
    let handle = spawn!(plain(n));
    let value = wait!(n)?;
    let all = steps!(for i in n, i);
    Ok(answer)
}

fn main() {}
