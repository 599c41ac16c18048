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

/// Values that go nowhere, and ends that never come.
#[fiber]
async fn endings(order: Option<u32>) -> anyhow::Result<u32> {
    unsafe { step!("unsafe", pay(unchecked(1)).await?) };
    { step!("block", pay(1).await?) };
    loop {
        step!("round", pay(1).await?);
        break 42;
    };
    let Some(order) = order else {
        step!("missing", pay(0).await?);
        give_up()
    };
    let part;
    if order > 1 {
        part = order;
    } else {
        step!("small", pay(order).await?);
        give_up();
    }
    if step!("sure", pay(part).await?) > 3 { step!("more", pay(4).await?) } else { 3 };
    step!("all", pay(part).await?);
    Ok(part)
}

unsafe fn unchecked(order: u32) -> u32 {
    order
}

fn give_up() -> ! {
    panic!("no order")
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

pub(crate) fn main() {
    let _ = (checkout(None, Err(1)), endings(None));
}
