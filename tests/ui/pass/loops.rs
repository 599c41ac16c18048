#![deny(warnings)]
use forever::prelude::*;

#[fiber]
async fn checkout(orders: Vec<Vec<u32>>) -> anyhow::Result<u32> {
    let mut total = 0;
    'rows: for row in &orders {
        for (place, cell) in row.iter().enumerate() {
            if place > 3 {
                continue 'rows;
            }
            total += step!("cell", pay(*cell).await?);
            if total > 100 {
                break 'rows;
            }
        }
    }
    for order in orders {
        for cell in order {
            step!("by value", pay(cell).await?);
        }
    }
    for _ in 0..3 {
        step!("again", pay(1).await?);
    }
    while step!("more", pay(total).await?) > 3 {
        total -= 1;
    }
    let mut left = vec![1, 2];
    while let Some(next) = left.pop() {
        total += step!("left", pay(next).await?);
    }
    let found = loop {
        let n = step!("found", pay(total).await?);
        if n > 2 {
            break n;
        }
        total += 1;
    };
    Ok(found)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {
    let _ = checkout(vec![]);
}
