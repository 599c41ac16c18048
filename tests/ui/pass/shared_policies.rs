#![deny(warnings)]
// A `Retry` or a `Backoff` in a variable, shared by several steps.
use std::time::Duration;

use forever::prelude::*;

const TIMES: u32 = 3;

pub struct Settings {
    pub retries: u32,
}

#[fiber]
pub async fn shared(settings: Res<Settings>, n: u32) -> anyhow::Result<u32> {
    let backoff = Backoff::exponential(Duration::from_secs(1), Duration::from_secs(60) * 2).no_jitter();
    let retry = Retry::times(TIMES - 1).backoff(backoff);
    let own = forever::fiber::Retry::times(n + settings.retries).when(|e: &anyhow::Error| e.to_string() != "fatal");
    let a = step!("a", retry = retry, get(n).await?);
    let b = step!("b", retry = retry, get(a).await?);
    let mut sum = 0;
    for i in 0..b {
        let once: Retry<anyhow::Error> = Retry::times(1);
        sum += step!("c", retry = own, get(i).await?);
        sum += step!("d", retry = once, effect, get(i).await?);
        sum += if i > 3 { step!("e", retry = once, get(i).await?) } else { step!("f", retry = own, get(i).await?) };
    }
    let all = steps!(for i in 0..sum, retry = retry, get(i).await?);
    Ok(all.len() as u32)
}
pub 
async fn get(n: u32) -> anyhow::Result<u32> {
    Ok(n)
}

pub(crate) fn main() {}
