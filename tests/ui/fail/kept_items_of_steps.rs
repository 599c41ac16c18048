use forever::prelude::*;

struct Conn;

fn open(n: u32) -> Conn {
    let _ = n;
    Conn
}

async fn ask(_: &Conn) -> anyhow::Result<u32> {
    Ok(1)
}

#[fiber]
async fn side(n: u32) -> anyhow::Result<Vec<u32>> {
    let answers = steps!(for conn in (0..n).map(open).collect::<Vec<_>>(), ask(&conn).await?);
    Ok(answers)
}

fn main() {}
