use std::time::Duration;

use forever::prelude::*;

#[fiber]
async fn late(handle: FiberHandle<u32>, second: Duration) -> anyhow::Result<u32> {
    sleep!("pause", second);
    sleep!("pause", second * 2);
    step!("pause", 5);
    let value = wait!("pause", &handle)?;
    let more: u32 = recv!("more", name = "pause");
    step!("pause pending", 5);
    Ok(value + more)
}

fn main() {}
