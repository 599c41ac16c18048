//! Every column of every table, with a list of hostile values, and with changes that are drawn from numbers.
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use rusqlite::types::Value;

use forever_testkit::prng::Prng;
use forever_testkit::sizes::stride;

use super::cells::{Cell, Damage, Dice, changed, columns, hostile};
use super::world::{Found, World, damage};

/// Does all of that, on two threads; gives what was found for each.
fn all(cases: &[(Cell, Damage)]) -> Vec<Found> {
    let (next, found, bad) = (Mutex::new(0), Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let n = {
                let mut next = next.lock().unwrap();
                *next += 1;
                *next - 1
            };
            let Some((cell, what)) = cases.get(n) else { return };
            match catch_unwind(AssertUnwindSafe(|| damage(cell, what))) {
                Ok(came) => found.lock().unwrap().push(came),
                Err(why) => {
                    let text = why.downcast_ref::<String>().map(String::as_str).or(why.downcast_ref::<&str>().copied());
                    let why = text.unwrap_or("a panic").to_owned();
                    let mut what = format!("{what:?}");
                    what.truncate(what.floor_char_boundary(200));
                    bad.lock().unwrap().push(format!("{cell:.300?}\n  <- {what}\n  {why}"));
                }
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    let bad = bad.into_inner().unwrap();
    if let Ok(file) = std::env::var("FOREVER_FOUND") {
        std::fs::write(file, bad.join("\n\n")).unwrap();
    }
    assert!(bad.is_empty(), "{} of {}:\n{}", bad.len(), cases.len(), bad[..bad.len().min(5)].join("\n\n"));
    found.into_inner().unwrap()
}

/// From so many rows of a column on, not each of them is given every value, unless `FOREVER_DAMAGE=every-row` asks for it.
const ROWS: usize = 8;

/// Of the values, the gate tries each of so many.
const EACH: usize = 14;

#[test]
fn no_hostile_value_in_any_column_panics_hangs_or_harms_another_fiber() {
    let world = World::new();
    let sql = world.sql();
    let mut cases = Vec::new();
    let columns = columns(&sql);
    let every_row = std::env::var("FOREVER_DAMAGE").is_ok_and(|how| how == "every-row");
    for (c, column) in columns.iter().enumerate() {
        let cells = column.cells(&sql);
        assert!(!cells.is_empty(), "the database has no row in `{}`", column.table);
        for (v, value) in hostile().into_iter().enumerate() {
            match value {
                // SQLite gives no number behind the greatest in this table, so nobody could send anything any more.
                Damage::Value(Value::Integer(n)) if column.table == "messages" && column.name == "seq" && n > i64::MAX - 9 => {}
                // What is counted on may overflow in any row; texts and bytes are not counted on.
                Damage::Value(Value::Integer(i64::MAX | 4_294_967_295))
                    if cells.iter().any(|cell| matches!(cell.value, Value::Integer(_))) =>
                {
                    let step = if every_row { 1 } else { cells.len().div_ceil(ROWS) };
                    cases.extend(cells.iter().skip((v + c) % step).step_by(step).map(|cell| (cell.clone(), value.clone())));
                }
                // A number that is given again when its row has another one.
                Damage::Value(Value::Integer(_)) if column.key.contains(&column.name) => {
                    cases.extend([&cells[(v * 7 + c) % cells.len()], &cells[cells.len() - 1]].map(|cell| (cell.clone(), value.clone())));
                }
                // Another row each time.
                _ => cases.push((cells[(v * 7 + c) % cells.len()].clone(), value)),
            }
        }
        for text in cells.iter().filter_map(Cell::text).take(1) {
            for cut in [text.len() / 2, text.len().saturating_sub(1)] {
                let cut = text.floor_char_boundary(cut);
                cases.push((cells[0].clone(), Damage::Raw(text.as_bytes()[..cut].to_vec())));
            }
            cases.push((cells[0].clone(), Damage::Raw(format!("{text}{text}").into_bytes())));
        }
    }
    let cases: Vec<_> = cases.into_iter().step_by(stride(EACH)).collect();
    let found = all(&cases);
    let of = |what: Found| found.iter().filter(|f| **f == what).count();
    eprintln!(
        "{} columns, {} values: {} refused by SQLite, {} not opened, {} parked, {} mended, {} went on",
        columns.len(),
        cases.len(),
        of(Found::Refused),
        of(Found::Closed),
        of(Found::Parked),
        of(Found::Mended),
        of(Found::WentOn)
    );
    let least = |of_all: usize| of_all / stride(EACH);
    assert!(of(Found::Mended) > least(100) && of(Found::WentOn) > least(300) && of(Found::Closed) > 0);
}

#[test]
fn no_change_of_any_cell_panics_hangs_or_harms_another_fiber() {
    let world = World::new();
    let sql = world.sql();
    let columns = columns(&sql);
    let mut prng = Prng::new(0);
    let cases: Vec<_> = (0..600 / stride(8))
        .map(|_| {
            let bytes: [u8; 40] = std::array::from_fn(|_| prng.byte());
            let mut dice = Dice(&bytes);
            let cells = columns[dice.below(columns.len())].cells(&sql);
            let cell = cells[dice.below(cells.len())].clone();
            let damage = changed(&cell, &cells, &mut dice);
            (cell, damage)
        })
        .collect();
    all(&cases);
}
