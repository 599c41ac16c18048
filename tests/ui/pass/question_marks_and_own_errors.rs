#![deny(warnings)]
use forever::prelude::*;

#[derive(Debug)]
enum Declined {
    Card(u32),
}

impl std::fmt::Display for Declined {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Declined::Card(code) = self;
        write!(f, "card declined: {code}")
    }
}

impl std::error::Error for Declined {}

async fn charge(order: u32) -> Result<u32, Declined> {
    if order == 0 { Err(Declined::Card(order)) } else { Ok(order) }
}

#[fiber]
async fn checkout(order: u32) -> Result<(), Declined> {
    let paid = step!(charge(order).await?);
    let tried = step!("tried", charge(order).await.ok());
    if let Some(tried) = tried {
        charge(tried).await?;
    }
    step!("unit", {
        charge(paid).await?;
    });
    Ok(())
}

pub(crate) fn main() {
    let _ = checkout(1);
}
