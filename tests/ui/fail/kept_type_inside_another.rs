use forever::prelude::*;

struct Conn {
    id: u32,
}

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    let mut conns = Vec::new();
    for id in 0..order {
        conns.push(Conn { id });
        step!("charge", pay(order).await?);
    }
    Ok(conns[0].id)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
