#![deny(warnings)]
use forever::prelude::*;

#[fiber]
async fn checkout(order: Option<u32>, way: Result<String, u32>) -> anyhow::Result<String> {
    if order.is_none() {
        return Ok(String::new());
    } else if let Some(3) = order {
        step!("three", pay(3).await?);
    } else {
        let paid = step!("other", pay(1).await?);
        if paid > 1 {
            return Ok(paid.to_string());
        }
    }
    let name = if let Some(n) = &order { step!("some", pay(*n).await?) } else { 0 };
    let text = match way {
        Ok(text) if text.is_empty() => text,
        Ok(text) => {
            let paid = step!("ok", pay(1).await?);
            format!("{text}{paid}")
        }
        Err(code @ 1..=9) => step!("err", pay(code).await?).to_string(),
        Err(_) => anyhow::bail!("unknown"),
    };
    let Some(order) = order else {
        step!("none", pay(0).await?);
        return Ok(text);
    };
    Ok(format!("{name}{text}{order}"))
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {
    let _ = checkout(None, Err(1));
}
