use forever::prelude::*;

#[fiber]
async fn checkout(customer: &str, items: &[u32], config: &'static Config) -> anyhow::Result<usize> {
    Ok(customer.len() + items.len() + config.0)
}

struct Config(usize);

fn main() {}
