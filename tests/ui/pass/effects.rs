#![deny(warnings)]
use std::collections::BTreeMap;
use std::time::Duration;

use forever::prelude::*;

#[derive(Debug)]
enum Declined {
    Card(u32),
}

impl std::fmt::Display for Declined {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Declined::Card(code) = self;
        write!(f, "card declined: {code}")
    }
}

impl std::error::Error for Declined {}

/// An error that the library's become part of.
#[derive(Debug)]
enum Trouble {
    Library(forever::Error),
    Declined(Declined),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Trouble::Library(error) => error.fmt(f),
            Trouble::Declined(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Trouble {}

impl From<forever::Error> for Trouble {
    fn from(error: forever::Error) -> Self {
        Trouble::Library(error)
    }
}

impl From<Declined> for Trouble {
    fn from(error: Declined) -> Self {
        Trouble::Declined(error)
    }
}

async fn charge(id: &str, cents: u32) -> Result<u32, Declined> {
    if cents == 0 { Err(Declined::Card(7)) } else { Ok(u32::try_from(id.len()).unwrap_or(cents)) }
}

async fn find(id: &str) -> Result<Option<u32>, Declined> {
    Ok(id.strip_prefix("known").map(|_| 1))
}

#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
struct Order {
    id: String,
    items: Vec<u32>,
}

#[fiber]
async fn without_conversion(order: Order) -> Result<u32, Declined> {
    let parked = step!("parked", effect, |op| charge(op.id(), 1).await?);
    let again = step!("again", effect, on_unknown = OnUnknown::Retry, charge(&order.id, parked).await?);
    let asked = step!("asked", effect, on_unknown = OnUnknown::check(async |op| find(op.id()).await), |op| charge(op.id(), again).await?);
    let check = OnUnknown::check(|op| async move { find(op.id()).await });
    let bound = step!("bound", effect, on_unknown = check, retry = Retry::times(2), |op| charge(op.id(), asked).await?);
    Ok(bound)
}

#[fiber]
async fn with_conversion(order: Order) -> Result<u32, Trouble> {
    let limit = Duration::from_secs(3);
    let failed = step!("failed", effect, on_unknown = OnUnknown::Fail, timeout = limit, |op| charge(op.id(), 1).await?);
    let policy = OnUnknown::Fail;
    let bound = step!("bound", effect, on_unknown = policy, key = &order.id, |op| charge(op.id(), failed).await?);
    let asked = step!(
        "asked",
        effect,
        on_unknown = OnUnknown::check(async |op| {
            let there = find(op.id()).await?;
            Ok(there.or(find(&order.id).await?))
        }),
        timeout = limit,
        |op| charge(op.id(), bound).await?
    );
    Ok(asked)
}

#[fiber]
async fn checks_that_give_an_option(order: Order) -> anyhow::Result<u32> {
    let known: BTreeMap<String, u32> = BTreeMap::new();
    let short = step!("short", effect, on_unknown = OnUnknown::check(async |op| known.get(op.id()).copied()), charge(&order.id, 1).await?);
    let long = step!(
        "long",
        effect,
        on_unknown = OnUnknown::check(async |op| {
            let there = known.get(op.id())?;
            there.checked_add(u32::try_from(known.len()).ok()?)
        }),
        charge(&order.id, short).await?
    );
    Ok(long)
}

#[fiber]
async fn checks_and_bodies_that_share_locals(order: Order) -> anyhow::Result<(u32, Vec<String>)> {
    let mut seen = Vec::new();
    let text = order.id.clone();
    let check = OnUnknown::check(async |op| (op.id() == order.id && text.len() > 3).then_some(5));
    let paid = step!("paid", effect, on_unknown = check, key = (&order.id, &order.items), retry = Retry::times(1), |op| {
        let told = format!("{}{}", op.id(), text);
        charge(&told, 1).await?
    });
    seen.push(paid.to_string());
    // The check reads what the body moves.
    let note = order.id.clone();
    let noted = step!("noted", effect, on_unknown = OnUnknown::check(async |_| seen.first().map(|_| note.len())), {
        let mut all = seen.clone();
        all.push(note);
        all.len()
    });
    Ok((paid + u32::try_from(noted)?, seen))
}

#[fiber]
async fn check_is_made_again_after_a_step(order: Order) -> anyhow::Result<u32> {
    let id = order.id.clone();
    let check = OnUnknown::check(async |op| (op.id() == id).then_some(5));
    let price = step!("price", charge(&id, 1).await?);
    let note = id.clone();
    let paid = step!("paid", effect, on_unknown = check, retry = Retry::times(1), charge(&note, price).await?);
    Ok(step!("more", paid + 1) + u32::try_from(id.len())?)
}

#[fiber]
async fn moves(order: Order) -> anyhow::Result<usize> {
    let Order { id, items } = order;
    let sent = step!("send", effect, {
        drop(items);
        id.len()
    });
    Ok(sent)
}

#[fiber]
async fn keys(order: Order, prices: BTreeMap<String, f64>) -> anyhow::Result<u32> {
    let mut total = 0;
    for (place, item) in order.items.iter().enumerate() {
        total += step!("item", effect, key = (&order.id, place, item), on_unknown = OnUnknown::Retry, |op| charge(op.id(), *item).await?);
    }
    for item in &order.items {
        step!("seen", effect, key = item, charge(&order.id, *item).await?);
    }
    let slice = &order.items[..];
    step!("slice", effect, key = slice, charge(&order.id, 2).await?);
    step!("text", effect, key = "literal", charge(&order.id, 3).await?);
    step!("map", effect, key = prices, charge(&order.id, 4).await?);
    step!("sum", effect, key = total + 1, charge(&order.id, total).await?);
    step!("json", effect, key = serde_json::json!({ "order": order.id, "total": total }), charge(&order.id, total).await?);
    Ok(total)
}

#[fiber]
async fn positions(order: Order) -> anyhow::Result<u32> {
    let sum = step!("left", effect, charge(&order.id, 1).await?) + step!("right", effect, key = 1, charge(&order.id, 2).await?);
    let (first, Order { id, .. }) = step!("pattern", effect, (charge(&order.id, sum).await?, order.clone()));
    let Some(some) = step!("let_else", effect, charge(&id, first).await.ok()) else {
        return Ok(0);
    };
    let mut list = vec![some];
    list.push(step!("argument", effect, on_unknown = OnUnknown::Retry, |op| charge(op.id(), 3).await?));
    if let Some(n) = step!("if_let", effect, find(&id).await?)
        && n > 1
    {
        list.extend(match step!("match", effect, retry = Retry::times(2), find(&id).await?) {
            Some(0) => None,
            Some(n) => Some(step!("arm", effect, key = (&id, n), charge(&id, n).await?)),
            None => step!("none", effect, |op| find(op.id()).await?),
        });
    }
    while step!("condition", effect, find(&id).await?).is_some() {
        step!("discarded", effect, charge(&id, 1).await?);
    }
    step!("unit", effect, {
        charge(&id, 2).await?;
    });
    let _ = step!("wild", effect, charge(&id, 3).await?);
    let caught = step!("caught", effect, on_unknown = OnUnknown::Retry, charge(&id, 4).await.map_err(|error| error.to_string()));
    let caught = caught.map_err(anyhow::Error::msg)?;
    Ok(list.iter().sum::<u32>() + caught)
}

#[fiber]
async fn derived_name(order: Order) -> anyhow::Result<u32> {
    let receipt = step!(effect, charge(&order.id, 1).await?);
    step!(on_unknown = OnUnknown::Retry, effect, |_op| charge(&order.id, receipt).await?);
    Ok(step!(effect, was = "old", |op: &forever::ops::Op| charge(op.id(), receipt).await?))
}

pub(crate) fn main() {
    let order = Order { id: "1".into(), items: vec![1] };
    let _ = without_conversion(order.clone());
    let _ = with_conversion(order.clone());
    let _ = checks_that_give_an_option(order.clone());
    let _ = checks_and_bodies_that_share_locals(order.clone());
    let _ = moves(order.clone());
    let _ = keys(order.clone(), BTreeMap::new());
    let _ = positions(order.clone());
    let _ = derived_name(order);
}
