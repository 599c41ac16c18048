use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    let check = OnUnknown::check(async |op| find(op.id()));
    let paid = step!("charge", effect, on_unknown = check, charge(order).await?);
    let sent = step!("send", effect, on_unknown = OnUnknown::check(async |_| true), charge(paid).await?);
    let asked = step!("ask", effect, on_unknown = OnUnknown::check(async |op| Ok::<_, std::fmt::Error>(Some(op.attempt()))), charge(sent).await?);
    Ok(asked)
}

fn find(id: &str) -> Option<String> {
    Some(id.to_owned())
}

async fn charge(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
