use forever::prelude::*;

#[fiber]
async fn ask() -> anyhow::Result<u32> {
    Ok(select! {
        Some(number): Option<u32> = recv!("number") => number,
        text: u32 = recv!("text") => text,
    })
}

fn main() {}
