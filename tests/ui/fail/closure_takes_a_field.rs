use forever::prelude::*;

#[derive(serde::Serialize, serde::Deserialize)]
struct Order {
    id: u32,
    note: String,
}

#[fiber]
async fn checkout(order: Order) -> anyhow::Result<String> {
    let id = move || order.id;
    let note = move || order.note;
    step!(pay(id()).await?);
    Ok(note())
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
