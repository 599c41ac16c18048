use forever::prelude::*;

#[fiber]
async fn parent(child: u32) -> anyhow::Result<u32> {
    let one = spawn!(child);
    let two = spawn!();
    Ok(child)
}

fn main() {}
