use forever::prelude::*;

#[fiber]
async fn ask(topic: String) -> anyhow::Result<u32> {
    let first: u32 = recv!();
    let second: u32 = recv!(topic);
    Ok(first + second)
}

fn main() {}
