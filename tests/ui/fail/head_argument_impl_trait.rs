use forever::prelude::*;

#[fiber]
async fn checkout(items: impl IntoIterator<Item = u32>) -> anyhow::Result<u32> {
    Ok(items.into_iter().sum())
}

fn main() {}
