use forever::prelude::*;

#[fiber]
async fn ask() -> anyhow::Result<usize> {
    let answer = recv!("answer");
    Ok(answer.len())
}

fn main() {}
