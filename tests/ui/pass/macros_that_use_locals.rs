#![deny(warnings)]
use forever::prelude::*;

#[fiber]
async fn checkout(order: u32, names: Vec<String>) -> anyhow::Result<String> {
    let width = 8;
    let (id, r#type) = (order + 1, "card".to_owned());
    let paid = step!(pay(order).await?);
    println!("{id:>width$} {type} {{names}} {0:?}", names);
    anyhow::ensure!(paid > 0, "nothing paid for {order}");
    let value = serde_json::json!({ "id": id, "names": names, "paid": paid });
    let again = step!("again", pay(paid).await?);
    let list = vec![paid, again, id];
    assert!(matches!(list.len(), 3 | 4), "{list:?}");
    Ok(format!("{value}"))
}

async fn pay(order: u32) -> anyhow::Result<u32> {
    Ok(order)
}

pub(crate) fn main() {
    let _ = checkout(1, vec![]);
}
