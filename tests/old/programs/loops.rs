//! Fibers in the middle of loops and calls, failed, parked, completed, with keys.
use std::collections::BTreeMap;

use forever::Builder;
use forever::prelude::*;
use serde::{Deserialize, Serialize};

use crate::desk::{Desk, LAST};

/// What is begun and not done when the process dies, by the life of the database.
pub(crate) const HOLDS: &[(u32, &str)] = &[
    (1, "ash: pick b"),
    (2, "birch: pick a"),
    (1, "customs: queue"),
    (2, "stamp: press"),
    (1, "early"),
    (2, "early"),
    (1, "second attempt"),
    (2, "second attempt"),
    (1, "moved: second"),
    (1, "gone: second"),
];

/// What has to be so in the database before the process dies.
pub(crate) const SETTLED: &[(u32, &str)] = &[
    (1, "SELECT state = 'completed' FROM fibers WHERE id = 'done'"),
    (1, "SELECT state = 'failed' FROM fibers WHERE id = 'refused'"),
    (1, "SELECT state = 'failed' FROM fibers WHERE id = 'panicked'"),
    (1, "SELECT failed = 1 AND stash IS NOT NULL FROM op_ledger AS ops JOIN fibers ON fiber = seq WHERE fibers.id = 'retrying'"),
    (2, "SELECT state = 'parked' FROM fibers WHERE id = 'moved'"),
    (2, "SELECT state = 'parked' FROM fibers WHERE id = 'gone'"),
    (2, "SELECT state = 'running' AND deaths = 0 FROM fibers JOIN snapshots ON fiber = seq WHERE id = 'late'"),
    (2, "SELECT deaths = 1 FROM snapshots JOIN fibers ON fiber = seq WHERE id = 'early'"),
];

/// Values that JSON alone would not give back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Odd {
    #[allow(clippy::option_option, reason = "what JSON alone cannot tell apart")]
    pub(crate) nothing: Option<Option<()>>,
    pub(crate) wide: u128,
    pub(crate) numbers: Vec<f64>,
    pub(crate) keys: BTreeMap<(u8, bool), char>,
    pub(crate) dollars: BTreeMap<String, i64>,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Kind {
    Plain,
    Named { name: String, price: (u32, f32) },
}

pub(crate) fn odd() -> Odd {
    Odd {
        nothing: Some(None),
        wide: u128::MAX - 1,
        numbers: vec![0.1, -0.0, f64::NAN, f64::NEG_INFINITY, 5e-324],
        keys: [((1, true), 'é'), ((2, false), '\u{0}')].into(),
        dollars: [("$some".to_owned(), 1), ("$".to_owned(), i64::MIN)].into(),
        kind: Kind::Named { name: "\u{1f98a}\n\"".to_owned(), price: (7, 1.5e-9) },
    }
}

pub(crate) fn orders() -> Vec<String> {
    ["ash", "birch", "cedar"].map(str::to_owned).to_vec()
}

/// In the middle of a loop over a borrow in a loop by value.
#[fiber]
pub(crate) async fn warehouse(desk: Res<Desk>, orders: Vec<String>, odd: Odd) -> anyhow::Result<String> {
    let mut weights = Vec::new();
    let mut last = None;
    let plain = Kind::Plain;
    for order in orders {
        let items = step!("open", {
            desk.work(&format!("{order}: open")).await?;
            vec!["a".to_owned(), "b".to_owned()]
        });
        for item in &items {
            weights.push(step!("pick", desk.work(&format!("{order}: pick {item}")).await?));
        }
        last = Some(order);
    }
    let seal = step!(desk.work("seal").await?);
    Ok(format!("{weights:?} {last:?} {seal} {plain:?} {odd:?}"))
}

/// In a call within a call.
#[fiber]
pub(crate) async fn export(desk: Res<Desk>, goods: Vec<u32>) -> anyhow::Result<String> {
    let mut total = 0;
    for (n, weight) in goods.iter().enumerate() {
        total += u64::from(*weight);
        if n == 1 {
            let duty = call!(customs(total))?;
            total += duty;
        }
    }
    let end = step!(desk.work("warehouse of customs").await?);
    Ok(format!("{total} {end} {goods:?}"))
}

#[fiber]
pub(crate) async fn customs(desk: Res<Desk>, value: u64) -> anyhow::Result<u64> {
    step!(desk.work("customs: queue").await?);
    let Some(stamp) = call!(stamp("red".to_owned()))? else { return Ok(0) };
    Ok(value * stamp)
}

#[fiber]
pub(crate) async fn stamp(desk: Res<Desk>, colour: String) -> anyhow::Result<Option<u64>> {
    let ink = step!({
        desk.work("stamp: ink").await?;
        colour.len() as u64
    });
    step!("press", desk.work("stamp: press").await?);
    Ok(Some(ink))
}

/// Killed before its first checkpoint.
#[fiber]
pub(crate) async fn early(desk: Res<Desk>, n: u32) -> anyhow::Result<u32> {
    step!(desk.work("early").await?);
    Ok(n + 1)
}

/// With an attempt that has failed, a stash, and an attempt under way.
#[fiber]
pub(crate) async fn retrying(desk: Res<Desk>) -> anyhow::Result<(String, u32)> {
    let retry = Retry::times(5).backoff(Backoff::none());
    let found = step!("try", retry = retry, |op| {
        let Some(stashed) = op.stashed::<(String, u32)>()? else {
            op.stash(&(op.id(), op.attempt())).await?;
            desk.work("first attempt").await?;
            anyhow::bail!("not at once");
        };
        desk.work("second attempt").await?;
        anyhow::ensure!(stashed == (op.id().to_owned(), 1), "the stash is of another operation");
        (stashed.0, op.attempt())
    });
    Ok(found)
}

#[fiber]
pub(crate) async fn refused(desk: Res<Desk>, panics: bool) -> anyhow::Result<usize> {
    let name = if panics { "panicked" } else { "refused" }.to_owned();
    let first = step!(desk.work(&format!("{name}: first")).await?);
    if panics && desk.life() < LAST {
        panic!("no paper");
    }
    let second = step!(if desk.life() < LAST { anyhow::bail!("out of paper") } else { desk.work(&format!("{name}: second")).await? });
    Ok(first + second)
}

#[fiber]
pub(crate) async fn done(desk: Res<Desk>, odd: Odd) -> anyhow::Result<Odd> {
    step!(desk.work("done").await?);
    Ok(odd)
}

/// Not registered in the second life.
#[fiber]
pub(crate) async fn gone(desk: Res<Desk>, n: usize) -> anyhow::Result<usize> {
    let first = step!(desk.work("gone: first").await?);
    let second = step!(desk.work("gone: second").await?);
    Ok(n + first + second)
}

/// As it is in the first life.
pub(crate) mod before {
    use super::{Desk, fiber};

    #[fiber]
    pub(crate) async fn moved(desk: Res<Desk>, n: usize) -> anyhow::Result<usize> {
        let first = step!("first", desk.work("moved: first").await?);
        step!("second", desk.work("moved: second").await?);
        Ok(n + first)
    }
}

/// From the second life on its first step has another name, and nothing says that it had one before.
pub(crate) mod now {
    use super::{Desk, fiber};

    #[fiber]
    pub(crate) async fn moved(desk: Res<Desk>, n: usize) -> anyhow::Result<usize> {
        let first = step!("beginning", desk.work("moved: first").await?);
        step!("second", desk.work("moved: second").await?);
        Ok(n + first)
    }
}

pub(crate) fn registered(builder: Builder, life: u32) -> Builder {
    let builder = builder.fiber::<warehouse>().fiber::<export>().fiber::<early>().fiber::<retrying>().fiber::<refused>().fiber::<done>();
    match life {
        1 => builder.fiber::<before::moved>().fiber::<gone>(),
        2 => builder.fiber::<now::moved>(),
        _ => builder.fiber::<now::moved>().fiber::<gone>(),
    }
}

/// What the first life starts.
pub(crate) async fn start(forever: &Forever) -> anyhow::Result<()> {
    forever.spawn(warehouse(orders(), odd())).id("warehouse").key("monday").await?;
    forever.spawn(export(vec![3, 4, 5])).id("export").await?;
    forever.spawn(early(6)).id("early").key("early bird").await?;
    forever.spawn(retrying()).id("retrying").await?;
    forever.spawn(refused(false)).id("refused").key("refused once").await?;
    forever.spawn(refused(true)).id("panicked").await?;
    forever.spawn(done(odd())).id("done").key("done and gone").metadata(BTreeMap::from([("for", "ada")])).await?;
    forever.spawn(before::moved(7)).id("moved").key("moved away").await?;
    forever.spawn(gone(8)).id("gone").await?;
    Ok(())
}

/// What is done once everything is held that is to be: a fiber begins whose rows are in the log alone.
pub(crate) async fn then(forever: &Forever, life: u32) -> anyhow::Result<()> {
    if life == 2 {
        forever.spawn(early(60)).id("late").await?;
    }
    Ok(())
}
