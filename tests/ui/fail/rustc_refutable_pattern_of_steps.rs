use forever::prelude::*;

#[fiber]
async fn side(list: Vec<Option<u32>>) -> anyhow::Result<Vec<u32>> {
    let all = steps!(for Some(n) in list, n);
    Ok(all)
}

fn main() {}
