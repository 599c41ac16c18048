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

#[fiber]
async fn shares(order: u32) -> anyhow::Result<u32> {
    let (shared, key) = (std::rc::Rc::new(order), [0_u8; 64]);
    let charge = step!(pay(order).await?);
    Ok(charge + *shared + u32::from(key[0]))
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
