//! One cell of a database, overwritten with what the input says: nothing panics or hangs, and no other fiber comes to harm.
#![no_main]
#![allow(dead_code, reason = "these files are of the tests")]

#[path = "../../tests/old/damage/mod.rs"]
mod damage;
#[path = "../../tests/old/desk.rs"]
mod desk;
#[path = "../../tests/old/programs/mod.rs"]
mod programs;

use std::sync::OnceLock;

use damage::cells::{Cell, Dice, changed, columns};
use damage::world::World;
use libfuzzer_sys::fuzz_target;

/// The cells of each column.
fn cells() -> &'static [Vec<Cell>] {
    static CELLS: OnceLock<Vec<Vec<Cell>>> = OnceLock::new();
    CELLS.get_or_init(|| {
        let sql = World::new().sql();
        columns(&sql).iter().map(|column| column.cells(&sql)).collect()
    })
}

fuzz_target!(|input: &[u8]| {
    let mut dice = Dice(input);
    let column = &cells()[dice.below(cells().len())];
    let cell = &column[dice.below(column.len())];
    damage::world::damage(cell, &changed(cell, column, &mut dice));
});
