use forever::prelude::*;

#[fiber]
async fn checkout(mut totals: Vec<u32>) -> anyhow::Result<Vec<u32>> {
    totals[step!(place().await?)] = 1;
    totals[step!(place().await?)] += 1;
    *totals.last_mut().unwrap() += step!(price().await?);
    Ok(totals)
}

async fn place() -> anyhow::Result<usize> {
    Ok(0)
}

async fn price() -> anyhow::Result<u32> {
    Ok(2)
}

fn main() {}
