use forever::prelude::*;

#[fiber]
async fn checkout(items: Vec<&'static str>) -> anyhow::Result<usize> {
    Ok(items.len())
}

fn main() {}
