use forever::prelude::*;

struct Conn {
    id: u32,
}

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    let conn = Conn { id: order };
    let paid = call!(pay(order))?;
    Ok(paid + conn.id)
}

#[fiber]
async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
