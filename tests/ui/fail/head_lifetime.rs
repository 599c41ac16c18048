use forever::prelude::*;

#[fiber]
async fn checkout<'a>(order: Vec<&'a str>) -> anyhow::Result<usize> {
    Ok(order.len())
}

fn main() {}
