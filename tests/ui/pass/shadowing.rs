#![deny(warnings)]
use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<String> {
    let order = step!(pay(order).await?);
    let text = order.to_string();
    let seen = &text;
    let order = step!("text", pay(order).await?);
    {
        let order = order + 1;
        step!("inner", pay(order).await?);
        println!("{order} {seen}");
    }
    let text = step!("last", pay(order).await?);
    Ok(format!("{text} {order} {seen}"))
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

pub(crate) fn main() {
    let _ = checkout(1);
}
