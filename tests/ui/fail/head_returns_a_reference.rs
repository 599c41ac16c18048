use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) -> anyhow::Result<Vec<&'static str>> {
    step!(println!("{order}"));
    Ok(vec!["paid"])
}

fn main() {}
