use forever::prelude::*;

#[fiber]
async fn assigned(n: u32) -> anyhow::Result<u32> {
    let mut sum = 0;
    let mut last = Some(n);
    let (a, b) = steps!({ sum += n; n }, { last = None; n });
    steps!(for i in 0..n, more(&mut sum, i));
    Ok(a + b + sum + last.unwrap_or(0))
}

fn more(sum: &mut u32, n: u32) {
    *sum += n;
}

#[fiber]
async fn through_a_method(n: u32) -> anyhow::Result<Vec<u32>> {
    let mut found = vec![];
    let (a, _) = steps!(n, found.push(n));
    found.push(a);
    Ok(found)
}

#[fiber]
async fn through_a_borrow(mut found: Vec<u32>) -> anyhow::Result<Vec<u32>> {
    let list = &mut found;
    list.push(1);
    let (a, _) = steps!(1, list.push(2));
    list.push(a);
    Ok(found)
}

fn main() {}
