use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<String> {
    let prefix = format!("order {order}");
    let label = |part: &str| format!("{prefix}/{part}");
    step!(pay(order).await?);
    for prefix in [1, 2] {
        step!("note", println!("{} {prefix}", label("note")));
    }
    Ok(label("end"))
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
