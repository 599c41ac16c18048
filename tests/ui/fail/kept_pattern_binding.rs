use forever::prelude::*;

struct Conn {
    id: u32,
}

enum Way {
    Direct(Conn),
    None,
}

fn way(order: u32) -> Way {
    if order == 0 { Way::None } else { Way::Direct(Conn { id: order }) }
}

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    match way(order) {
        Way::Direct(conn) => {
            let charge = step!(pay(order).await?);
            Ok(charge + conn.id)
        }
        Way::None => Ok(0),
    }
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
