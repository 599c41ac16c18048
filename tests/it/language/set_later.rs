//! Patterns that are declared without a value and given one later, by name or by destructuring assignment.
use serde::{Deserialize, Serialize};

use super::harness::{plain_step as step, same, twin};

twin! {
    async fn by_tuples(io, deep: bool) -> anyhow::Result<String> {
        let (name, hits);
        if deep {
            (name, hits) = step!("deep", io.did("deep", ("deep".to_owned(), vec![1, 2, 3])).await?);
        } else {
            name = String::from("shallow");
            step!("shallow", io.did("shallow", ()).await?);
            hits = Vec::new();
        }
        step!("store", io.did(format!("{name} {hits:?}"), ()).await?);
        Ok(format!("{name} {}", hits.len()))
    }
}

twin! {
    async fn set_at_different_steps(io, n: u32) -> anyhow::Result<String> {
        let (first, (mut second, third), _): (u32, (u64, _), bool);
        first = n;
        step!("one", io.did(format!("one {first}"), ()).await?);
        second = 200;
        step!("two", io.did(format!("two {second}"), ()).await?);
        second += u64::from(first);
        third = step!("three", io.did("three", "text".to_owned()).await?);
        Ok(format!("{first} {second} {third}"))
    }
}

twin! {
    async fn in_loops(io, jobs: Vec<u32>) -> anyhow::Result<Vec<String>> {
        let mut out = Vec::new();
        for job in jobs {
            let (kind, cost);
            match job {
                0 => continue,
                1 => (kind, cost) = ("small", 1),
                2..=5 => {
                    let priced = step!("price", io.did(format!("price {job}"), job * 10).await?);
                    (cost, kind) = (priced, "middle");
                }
                _ => {
                    step!("refuse", io.did("refuse", ()).await?);
                    break;
                }
            }
            let total;
            (total, _) = (cost + 1, step!("note", io.did(kind, ()).await?));
            out.push(format!("{kind} {total}"));
        }
        Ok(out)
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Point {
    x: i32,
    y: i32,
}

twin! {
    async fn assigned_by_patterns(io, p: Point) -> anyhow::Result<String> {
        let (mut x, mut y) = (0, 0);
        let mut list = vec![0; 3];
        let (mut rest, first);
        step!("start", io.did(format!("{x} {y}"), ()).await?);
        Point { x, y } = p;
        step!("point", io.did(format!("{x} {y}"), ()).await?);
        [list[0], _, list[2]] = [x, y, y + 1];
        (first, .., rest) = (list[0], "between", step!("list", io.did(format!("{list:?}"), list.clone()).await?));
        rest.push(first);
        (x, y) = (y, x);
        step!("swapped", io.did(format!("{x} {y} {rest:?}"), ()).await?);
        (list[1], (x, _)) = step!("both", io.did("both", (7, (8, 9))).await?);
        Ok(format!("{x} {y} {list:?} {rest:?}"))
    }
}

twin! {
    async fn ends_that_never_set(io, how: u32) -> anyhow::Result<u32> {
        let (a, b);
        let found = loop {
            match how {
                0 => anyhow::bail!("none"),
                1 => {
                    (a, b) = step!("one", io.did("one", (1, 2)).await?);
                    break true;
                }
                2 => return Ok(step!("two", io.did("two", 2).await?)),
                _ => {
                    step!("three", io.did("three", ()).await?);
                    a = how;
                    b = how + 1;
                    break false;
                }
            }
        };
        step!("after", io.did(format!("{found} {a} {b}"), ()).await?);
        Ok(a + b)
    }
}

#[test]
fn a_tuple_is_set_on_each_path() {
    assert_eq!(same(|| by_tuples(true)).outcome, r#"Completed("deep 3")"#);
    assert_eq!(same(|| by_tuples(false)).outcome, r#"Completed("shallow 0")"#);
}

#[test]
fn the_parts_of_a_tuple_are_set_between_different_steps() {
    assert_eq!(same(|| set_at_different_steps(100)).outcome, r#"Completed("100 300 text")"#);
}

#[test]
fn a_tuple_is_set_anew_in_each_round() {
    assert_eq!(same(|| in_loops(vec![1, 0, 3, 9, 1])).outcome, r#"Completed(["small 2", "middle 31"])"#);
}

#[test]
fn variables_are_assigned_by_patterns_of_every_kind() {
    assert_eq!(same(|| assigned_by_patterns(Point { x: 3, y: 4 })).outcome, r#"Completed("8 3 [3, 7, 5] [3, 0, 5, 3]")"#);
}

#[test]
fn paths_that_end_need_not_set_a_tuple() {
    assert_eq!(same(|| ends_that_never_set(0)).outcome, r#"Failed("none")"#);
    assert_eq!(same(|| ends_that_never_set(1)).outcome, "Completed(3)");
    assert_eq!(same(|| ends_that_never_set(2)).outcome, "Completed(2)");
    assert_eq!(same(|| ends_that_never_set(5)).outcome, "Completed(11)");
}
