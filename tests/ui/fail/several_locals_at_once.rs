use forever::prelude::*;

struct Conn {
    id: u32,
}

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    let conn = Conn { id: 1 };
    let spare = Conn { id: 2 };
    let charge = step!(pay(order).await?);
    let fee = step!(pay(charge + conn.id).await?);
    Ok(fee + conn.id + spare.id)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
