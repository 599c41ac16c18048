use forever::prelude::*;

#[fiber(nam = "checkout")]
fn checkout(customer: &str, ctx: &FiberContext) {
    let late = async { step!(pay(1).await?) };
    let paid = step!({
        if customer.is_empty() {
            return;
        }
        pay(2).await?
    });
    let names = vec![step!(pay(3).await?)];
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

fn main() {
    let _ = checkout("ada");
}
