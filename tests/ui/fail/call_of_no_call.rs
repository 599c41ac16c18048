use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<u32> {
    let a = call!()?;
    let b = call!(checkout)?;
    let c = call!(checkout(a).await)?;
    let d = call!(checkout(b), checkout(c))?;
    Ok(d)
}

fn main() {}
