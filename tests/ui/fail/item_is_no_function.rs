use forever::prelude::*;

#[fiber]
struct Checkout {
    order: u32,
}

fn main() {
    let _ = Checkout { order: 1 };
}
