use forever::prelude::*;

#[fiber]
async fn ask() -> anyhow::Result<u32> {
    let first: u32 = recv!();
    let second: (String, u32) = recv!([]);
    let third: u32 = recv!(3);
    let fourth: u32 = recv!(timeout = wait);
    Ok(first + second.1 + third + fourth)
}

fn main() {}
