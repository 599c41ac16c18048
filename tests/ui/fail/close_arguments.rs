use std::time::Duration;

use forever::prelude::*;

#[fiber]
async fn ask(wait: Duration) -> anyhow::Result<usize> {
    let first: Vec<u32> = close!();
    let second: Vec<u32> = close!(["yes", "no"]);
    let third: Vec<u32> = close!("answer", timeout = wait);
    let fourth: Option<u32> = try_recv!("answer", timeout = wait);
    let fifth: Option<(String, u32)> = try_recv!([]);
    Ok(first.len() + second.len() + third.len() + usize::from(fourth.is_some() || fifth.is_some()))
}

fn main() {}
