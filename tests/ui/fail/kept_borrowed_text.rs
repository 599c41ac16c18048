use forever::prelude::*;

#[fiber]
async fn read(bytes: Vec<u8>) -> anyhow::Result<usize> {
    let text = String::from_utf8_lossy(&bytes);
    step!("note", println!("read"));
    Ok(text.len())
}

fn main() {}
