use forever::prelude::*;

struct Declined;

#[fiber]
async fn checkout(order: u32) -> Result<u32, Declined> {
    if order == 0 { Err(Declined) } else { Ok(order) }
}

fn main() {}
