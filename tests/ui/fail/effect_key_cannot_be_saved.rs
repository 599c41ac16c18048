use forever::prelude::*;

struct Order {
    id: u32,
}

#[fiber]
async fn checkout(id: u32) -> anyhow::Result<u32> {
    let order = Order { id };
    let paid = step!("charge", effect, key = order, charge(order.id).await?);
    Ok(paid + step!("mail", effect, key = (&Order { id }, paid), charge(paid).await?))
}

async fn charge(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
