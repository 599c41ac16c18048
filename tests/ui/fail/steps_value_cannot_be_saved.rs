use forever::prelude::*;

struct Conn(u32);

#[fiber]
async fn beside(n: u32) -> anyhow::Result<u32> {
    let (a, _) = steps!(n, Conn(n));
    Ok(a)
}

#[fiber]
async fn received() -> anyhow::Result<u32> {
    let conn: Conn = recv!("conn");
    Ok(conn.0)
}

fn main() {}
