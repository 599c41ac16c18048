use forever::prelude::*;

#[fiber]
async fn ask() -> anyhow::Result<()> {
    recv!("go");
    let _ = recv!("on");
    Ok(())
}

fn main() {}
