use std::time::Duration;

use forever::prelude::*;

#[fiber]
async fn late(seconds: u64) -> anyhow::Result<()> {
    sleep!();
    sleep!(Duration::from_secs(seconds), "pause");
    sleep_until!();
    wait!();
    wait_all!();
    Ok(())
}

fn main() {}
