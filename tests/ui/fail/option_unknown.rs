use forever::prelude::*;

#[fiber(nam = "checkout")]
async fn checkout() -> anyhow::Result<()> {
    Ok(())
}

fn main() {
    let _ = checkout();
}
