#![deny(warnings)]
use forever::prelude::*;
use serde::{Serialize, de::DeserializeOwned};

#[fiber]
async fn repeat<T, const N: usize>(value: T, (times, name): (u32, String)) -> anyhow::Result<Vec<T>>
where
    T: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    let mut all = vec![value.clone(); N];
    for _ in 0..times {
        step!("round", pay(times).await?);
        all.push(value.clone());
    }
    println!("{name}");
    Ok(all)
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

pub(crate) fn main() {
    let _ = repeat::<u32, 3>(1, (2, String::new()));
}
