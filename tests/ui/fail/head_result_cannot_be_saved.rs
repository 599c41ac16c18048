use forever::prelude::*;

struct Receipt {
    id: u32,
}

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<Receipt> {
    Ok(Receipt { id: order })
}

fn main() {}
