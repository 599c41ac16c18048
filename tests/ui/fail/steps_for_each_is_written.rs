use forever::prelude::*;

#[fiber]
async fn side(list: Vec<u32>) -> anyhow::Result<Vec<u32>> {
    let one = steps!(for n in list);
    let two = steps!(for n in list { n + 1 });
    let three = steps!(for n in list, limit = 2);
    Ok(one)
}

#[fiber]
async fn limits(list: Vec<u32>) -> anyhow::Result<Vec<u32>> {
    let one = steps!(for n in list, n, limit = 2);
    let two = steps!(for n in list, limit = 2, limit = 3, n);
    let three = steps!(limit = 2, 1, 2);
    Ok(one)
}

fn main() {}
