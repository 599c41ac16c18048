#![deny(warnings)]
use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    const FEE: u32 = 3;
    let paid = step!(pay(with_fee(order)).await?);
    #[derive(serde::Serialize, serde::Deserialize)]
    struct Receipt {
        id: u32,
    }
    fn with_fee(order: u32) -> u32 {
        order + FEE
    }
    let receipt = Receipt { id: paid };
    if order > 1 {
        use std::fmt::Write;
        let mut text = String::new();
        write!(text, "{order}")?;
        step!("printed", pay(text.len() as u32).await?);
        return Ok(receipt.id);
    }
    step!("last", pay(receipt.id).await?);
    Ok(receipt.id)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

pub(crate) fn main() {
    let _ = checkout(1);
}
