use forever::prelude::*;

struct Conn {
    id: u32,
}

fn connect() -> Conn {
    Conn { id: 1 }
}

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    let conn = connect();
    let charge = step!(pay(order).await?);
    Ok(charge + conn.id)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
