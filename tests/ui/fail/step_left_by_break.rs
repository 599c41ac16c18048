use forever::prelude::*;

#[fiber]
async fn checkout(orders: Vec<u32>) -> anyhow::Result<u32> {
    let mut total = 0;
    'orders: for order in orders {
        total += step!({
            for part in 0..order {
                if part == 2 {
                    break;
                }
                if part == 1 {
                    continue 'orders;
                }
            }
            if order == 0 {
                break;
            }
            pay(order).await?
        });
        step!(if total > 10 { continue });
    }
    Ok(total)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
