use forever::prelude::*;

#[fiber]
async fn checkout(order: u32) {
    println!("{order}");
}

fn main() {
    let _ = checkout(1);
}
