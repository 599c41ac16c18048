use forever::prelude::*;

#[fiber]
async fn side(n: u32) -> anyhow::Result<u32> {
    for i in 0..n {
        let (a, b) = steps!(if i == 2 { break } else { i }, { return Ok(n) });
        steps!(for j in 0..i, if j == 2 { continue } else { j });
    }
    Ok(n)
}

fn main() {}
