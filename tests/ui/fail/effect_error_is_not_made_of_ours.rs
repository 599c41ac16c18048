use std::time::Duration;

use forever::prelude::*;

#[derive(Debug)]
struct Declined;

impl std::fmt::Display for Declined {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("card declined")
    }
}

impl std::error::Error for Declined {}

#[fiber]
async fn failing(order: u32) -> Result<u32, Declined> {
    Ok(step!("charge", effect, on_unknown = OnUnknown::Fail, charge(order).await?))
}

#[fiber]
async fn timed(order: u32) -> Result<u32, Declined> {
    Ok(step!("charge", effect, timeout = Duration::from_secs(1), charge(order).await?))
}

#[fiber]
async fn plainly_timed(order: u32) -> Result<u32, Declined> {
    Ok(step!("charge", timeout = Duration::from_secs(1), charge(order).await?))
}

async fn charge(order: u32) -> Result<u32, Declined> {
    Ok(order)
}

fn main() {}
