use std::collections::HashMap;

use forever::prelude::*;

#[fiber]
async fn side(list: HashMap<u32, u32>) -> anyhow::Result<Vec<u32>> {
    let all = steps!(for (n, m) in &list, n + m);
    Ok(all)
}

fn main() {}
