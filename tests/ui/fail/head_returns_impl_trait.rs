use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> impl Sized {
    Ok::<_, anyhow::Error>(order)
}

fn main() {}
