use forever::prelude::*;

trait Shop {
    #[fiber]
    async fn checkout(order: u32) -> anyhow::Result<u32>;
}

fn main() {}
