use forever::prelude::*;

#[fiber]
async fn ask() -> anyhow::Result<()> {
    close!("go");
    let _ = try_recv!("on");
    Ok(())
}

fn main() {}
