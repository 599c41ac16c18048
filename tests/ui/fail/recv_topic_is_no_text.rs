use forever::prelude::*;

#[fiber]
async fn ask(number: u32) -> anyhow::Result<u32> {
    let answer: u32 = recv!(number);
    Ok(answer)
}

fn main() {}
