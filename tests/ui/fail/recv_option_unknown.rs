use std::time::Duration;

use forever::prelude::*;

#[fiber]
async fn ask(wait: Duration) -> anyhow::Result<Option<u32>> {
    let first: Option<u32> = recv!("answer", within = wait);
    let second: Option<u32> = recv!("answer", wait);
    let third: Option<u32> = recv!("answer", timeout = wait, timeout = wait);
    Ok(first.or(second).or(third))
}

fn main() {}
