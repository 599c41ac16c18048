use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    let policy: OnUnknown<'_, String, anyhow::Error> = OnUnknown::Retry;
    let paid = step!("charge", effect, on_unknown = policy, charge(order).await?);
    Ok(step!("mail", effect, on_unknown = Retry::times(3), charge(paid).await?))
}

async fn charge(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {}
