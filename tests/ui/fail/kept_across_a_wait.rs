use std::time::Duration;

use forever::prelude::*;

struct Conn(u32);

fn open() -> Conn {
    Conn(1)
}

#[fiber]
async fn slept() -> anyhow::Result<u32> {
    let conn = open();
    sleep!(Duration::from_secs(1));
    Ok(conn.0)
}

#[fiber]
async fn received() -> anyhow::Result<u32> {
    let conn = open();
    let answer: u32 = recv!("answer");
    Ok(conn.0 + answer)
}

#[fiber]
async fn beside() -> anyhow::Result<u32> {
    let conn = open();
    let (a, b) = steps!(conn.0, conn.0 + 1);
    Ok(a + b)
}

fn main() {}
