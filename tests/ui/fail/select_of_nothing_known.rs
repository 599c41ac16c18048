use forever::prelude::*;

#[fiber]
async fn ask(number: u32) -> anyhow::Result<u32> {
    Ok(select! {
        _ = recv!("go") => 1,
        _ = recv!(format!("go-{number}")) => 2,
    })
}

fn main() {}
