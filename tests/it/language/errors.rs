//! How a fiber leaves early: `?`, `return Err`, `bail!`, `ensure!`, panics.
use super::harness::{plain_step as step, same, twin};

#[derive(Debug)]
enum Failure {
    Io(std::io::Error),
    Parse(std::num::ParseIntError),
    Own(&'static str),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Io(e) => write!(f, "io: {e}"),
            Failure::Parse(e) => write!(f, "parse: {e}"),
            Failure::Own(text) => write!(f, "own: {text}"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<std::io::Error> for Failure {
    fn from(e: std::io::Error) -> Self {
        Failure::Io(e)
    }
}

impl From<std::num::ParseIntError> for Failure {
    fn from(e: std::num::ParseIntError) -> Self {
        Failure::Parse(e)
    }
}

twin! {
    async fn converted(io, text: String) -> Result<u32, Failure> {
        let n = step!("parse", io.get("parse", text.parse::<u32>()).await?);
        step!("io", io.get("io", if n == 1 { Err(std::io::Error::other("disk")) } else { Ok(()) }).await?);
        let m = text.repeat(2).parse::<u32>()?;
        if m == 22 { return Err(Failure::Own("two")) }
        if m == 33 { Err(Failure::Own("three"))? }
        let k = (|| Some(m.checked_sub(50)?))().ok_or(Failure::Own("small"))?;
        step!("end", io.get("end", ()).await);
        Ok(k)
    }
}

#[test]
fn the_errors_of_a_question_mark_convert() {
    let end = |text: &str| {
        let seen = same(|| converted(text.into()));
        (seen.outcome, seen.log.join(" "))
    };
    let failed = |text: &str| format!("Failed({text:?})");
    assert_eq!(end("x"), (failed("parse: invalid digit found in string"), "parse".into()));
    assert_eq!(end("1"), (failed("io: disk"), "parse io".into()));
    assert_eq!(end("2"), (failed("own: two"), "parse io".into()));
    assert_eq!(end("3"), (failed("own: three"), "parse io".into()));
    assert_eq!(end("4"), (failed("own: small"), "parse io".into()));
    assert_eq!(end("5"), ("Completed(5)".into(), "parse io end".into()));
    assert_eq!(end("99999"), (failed("parse: number too large to fit in target type"), "parse io".into()));
}

twin! {
    async fn nested_loops(io, limit: u32) -> anyhow::Result<u32> {
        let mut count = 0;
        'outer: for a in 0.. {
            for b in [1, 2, 3] {
                loop {
                    count += step!(io.did("count", 1).await?);
                    match count {
                        n if n == limit => return Ok(a * 100 + b * 10 + n),
                        7 => anyhow::bail!("seven at {a} {b}"),
                        3 => continue 'outer,
                        n => { anyhow::ensure!(n != 20 || limit > 0, "twenty {n}"); }
                    }
                    if count % 2 == 0 { break }
                    if let Some(0) = limit.checked_sub(100) {
                        step!("hundred", io.did("hundred", ()).await?);
                        return Err(anyhow::anyhow!("hundred").context(format!("count {count}")));
                    }
                }
            }
        }
        unreachable!()
    }
}

#[test]
fn return_and_bail_leave_nested_loops() {
    assert_eq!(same(|| nested_loops(5)).outcome, "Completed(125)");
    assert_eq!(same(|| nested_loops(2)).outcome, "Completed(12)");
    assert_eq!(same(|| nested_loops(0)).outcome, "Failed(\"seven at 1 3\")");
    assert_eq!(same(|| nested_loops(100)).outcome, "Failed(\"count 1\")");
}

twin! {
    async fn failing_step(io, n: u32) -> anyhow::Result<u32> {
        let a = step!(io.did("a", n).await?);
        let b = if a > 1 { step!("b", io.fails("b").await?) } else { 0 };
        let c = match step!("c", io.fails("c").await.map_err(|e| e.to_string())) { Ok(c) => c, Err(text) => text.len() as u32 };
        step!("end", io.did("end", ()).await?);
        Ok(b + c)
    }
}

#[test]
fn a_step_that_fails_leaves_nothing_and_ends_the_fiber() {
    let seen = same(|| failing_step(2));
    assert_eq!((seen.outcome.as_str(), seen.log.len(), seen.snapshots.len()), ("Failed(\"b failed\")", 2, 1));
    assert_eq!(same(|| failing_step(1)).outcome, "Completed(8)");
}

twin! {
    async fn panicking(io, n: u32) -> anyhow::Result<u32> {
        let list = step!(io.did("list", vec![1, 2, 3]).await?);
        match n {
            0 => panic!("plain text"),
            1 => panic!("formatted {n} {}", list.len()),
            2 => step!("inside", { assert_eq!(n, 3, "in a step"); 0 }),
            3 => list[n as usize],
            4 => n - list[n as usize - 4] - 4,
            5 => None::<u32>.expect("nothing there"),
            6 => Err::<u32, _>("text").unwrap(),
            7 => std::panic::panic_any(7),
            _ => step!("fine", io.did("fine", n).await?),
        };
        Ok(n)
    }
}

#[test]
fn a_panic_fails_the_fiber_with_its_message() {
    let failed = |text: &str| format!("Failed({:?})", format!("panicked: {text}"));
    assert_eq!(same(|| panicking(0)).outcome, failed("plain text"));
    assert_eq!(same(|| panicking(1)).outcome, failed("formatted 1 3"));
    assert_eq!(same(|| panicking(2)).outcome, failed("assertion `left == right` failed: in a step\n  left: 2\n right: 3"));
    assert_eq!(same(|| panicking(3)).outcome, failed("index out of bounds: the len is 3 but the index is 3"));
    assert_eq!(same(|| panicking(4)).outcome, failed("attempt to subtract with overflow"));
    assert_eq!(same(|| panicking(5)).outcome, failed("nothing there"));
    assert_eq!(same(|| panicking(6)).outcome, failed("called `Result::unwrap()` on an `Err` value: \"text\""));
    assert_eq!(super::harness::everywhere(|| panicking(7)).0, failed("a value that is not text"));
    assert_eq!(same(|| panicking(8)).outcome, "Completed(8)");
}

twin! {
    async fn option_question(io, n: u32) -> anyhow::Result<Option<u32>> {
        let text = step!(io.did("text", n.to_string()).await?);
        let first = (|| { let c = text.chars().nth(1)?; c.to_digit(10) })();
        let Some(d) = first else { return Ok(None) };
        let parsed: Result<Vec<u32>, _> = text.chars().map(|c| c.to_digit(10).ok_or(c)).collect();
        step!("end", io.did("end", ()).await?);
        let sum = parsed.map_err(|c| anyhow::anyhow!("{c}"))?.iter().sum::<u32>();
        Ok(Some(d + sum))
    }
}

#[test]
fn question_marks_in_closures_stay_in_them() {
    assert_eq!(same(|| option_question(5)).outcome, "Completed(None)");
    assert_eq!(same(|| option_question(58)).outcome, "Completed(Some(21))");
}

twin! {
    async fn one_type(io, n: u32) -> anyhow::Result<u32> {
        match n {
            5 => None.expect("nothing there"),
            6 => Err("text").unwrap(),
            _ => step!("fine", io.did("fine", n).await?),
        };
        Ok(1)
    }
}
#[test]
fn arms_whose_value_nobody_wants_have_one_type() {
    assert_eq!(same(|| one_type(1)).outcome, "Completed(1)");
}
