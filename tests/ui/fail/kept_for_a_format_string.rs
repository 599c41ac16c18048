use forever::prelude::*;

#[derive(Debug)]
struct Conn;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    let conn = Conn;
    let charge = step!(pay(order).await?);
    println!("{conn:?}");
    Ok(charge)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
