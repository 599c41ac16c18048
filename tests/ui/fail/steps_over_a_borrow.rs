use forever::prelude::*;

#[fiber]
async fn exclusive(mut list: Vec<u32>) -> anyhow::Result<Vec<u32>> {
    let all = steps!(for n in &mut list, *n);
    Ok(all)
}

#[fiber]
async fn with_a_closure(list: Vec<u32>) -> anyhow::Result<Vec<u32>> {
    let all = steps!(for n in list.iter().map(|n| n + 1), n);
    Ok(all)
}

fn main() {}
