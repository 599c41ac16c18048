#![deny(warnings)]
use forever::prelude::*;

fn spend(names: Vec<String>) -> usize {
    names.len()
}

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<usize> {
    let total;
    if order > 1 {
        total = step!("much", pay(order).await?);
    } else {
        total = 1;
        step!("little", pay(total).await?);
    }
    let mut names = vec![order.to_string()];
    if total > 1 {
        spend(names);
        step!("spent", pay(total).await?);
        names = Vec::new();
    }
    step!("after", pay(total).await?);
    let late: u32;
    step!("before", pay(1).await?);
    late = 3;
    Ok(spend(names) + late as usize)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

pub(crate) fn main() {
    let _ = checkout(1);
}
