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

/// A variable that a loop has taken apart and that is given a whole new value is as good as new.
#[fiber]
async fn renewed(mut order: Order) -> anyhow::Result<usize> {
    for line in order.lines {
        step!(pay(line).await?);
    }
    order = Order { id: 2, lines: vec![1] };
    step!(pay(order.id).await?);
    Ok(order.lines.len())
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Order {
    id: u32,
    lines: Vec<u32>,
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

pub(crate) fn main() {
    let _ = checkout(vec![]);
    let _ = renewed(Order { id: 1, lines: vec![] });
}
