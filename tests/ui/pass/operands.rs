#![deny(warnings)]
use forever::prelude::*;

#[derive(serde::Serialize, serde::Deserialize)]
struct Pair {
    first: u32,
    second: u32,
}

fn add(a: u32, b: u32) -> u32 {
    a + b
}

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<Vec<u32>> {
    let mut all = Vec::new();
    all.push(step!("pushed", pay(order).await?));
    let sum = add(add(1, order), step!("argument", pay(order).await?)) + step!("plus", pay(1).await?);
    let pair = Pair { first: step!("first", pay(sum).await?), second: step!("second", pay(2).await?) };
    let (a, b) = (step!("a", pay(1).await?), step!("b", pay(2).await?));
    if order > 3 && step!("and", pay(1).await?) > 0 || step!("or", pay(2).await?) == 1 {
        all.push(a);
    }
    if let Some(last) = all.last().copied()
        && step!("chain", pay(last).await?) > 2
        && let Some(first) = all.first()
    {
        return Ok(vec![*first, last]);
    }
    all[0] += step!("add", pay(b).await?);
    all.extend([pair.first, pair.second, !step!("not", pay(1).await?)]);
    Ok(all)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

pub(crate) fn main() {
    let _ = checkout(1);
}
