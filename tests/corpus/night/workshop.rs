//! A repair shop: everyday code with the less usual forms of the language in it.
use std::collections::btree_map::Entry;
use std::ops::ControlFlow;

use crate::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Fault {
    Broken { part: String, times: u32 },
    Missing(String, Option<Box<Fault>>),
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Job {
    id: u32,
    faults: Vec<Fault>,
    notes: (Option<String>, [u32; 3]),
    paid: bool,
}

impl Job {
    const LIMIT: u32 = 40;

    fn of(id: u32) -> Self {
        let wheel = Fault::Broken { part: "wheel".into(), times: 2 };
        let bolt = Fault::Missing("bolt".into(), Some(Box::new(Fault::Broken { part: "nut".into(), times: 1 })));
        Job { id, faults: vec![wheel, Fault::Unknown, bolt], notes: (Some("rush".into()), [4, 0, 7]), paid: id % 2 == 0 }
    }

    fn worst(&self) -> Option<&Fault> {
        self.faults.iter().max_by_key(|fault| if let Fault::Broken { times, .. } = fault { *times } else { 0 })
    }

    fn total(&self, rate: impl Fn(u32) -> u32) -> u32 {
        self.notes.1.iter().copied().map(rate).sum()
    }
}

trait Priced {
    fn price(&self) -> u32;

    fn doubled(&self) -> u32 {
        self.price() * 2
    }
}

impl Priced for Fault {
    fn price(&self) -> u32 {
        match self {
            Fault::Broken { part, times } => part.len() as u32 * times,
            Fault::Missing(part, inner) => 5 + part.len() as u32 + inner.as_deref().map_or(0, Priced::price),
            Fault::Unknown => 1,
        }
    }
}

fn dearest<'a, T>(items: &'a [T], limit: u32) -> Option<&'a T>
where
    T: Priced,
{
    items.iter().filter(|item| item.price() < limit).max_by_key(|item| item.price())
}

async fn quote(io: &Io, what: impl Into<String>, faults: &[impl Priced]) -> anyhow::Result<u32> {
    io.did(what, faults.iter().map(Priced::price).sum()).await
}

macro_rules! or_next {
    ($value:expr, $($jump:tt)+) => {
        match $value {
            Some(value) => value,
            None => $($jump)+,
        }
    };
}

const PARTS: [&str; 4] = ["wheel", "bolt", "chain", "bell"];
const RATES: &[(&str, [u32; 2])] = &[("day", [3, 4]), ("night", [5, 9])];

twin! {
    async fn estimate_by_rates(io, job: Job) -> anyhow::Result<Vec<String>> {
        let mut lines = vec![];
        for &(name, [low, high]) in RATES {
            let asked = step!("rate", io.did(format!("rate {name}"), low * job.id).await?);
            lines.push(format!("{name}: {}..{}", asked, high * job.id));
        }
        for (at, part) in PARTS.into_iter().enumerate().rev() {
            if at == 2 {
                continue;
            }
            let stock = step!("stock", io.did(format!("stock {part}"), at * part.len()).await?);
            lines.push(format!("{part:<6}{stock:02}"));
        }
        Ok(lines)
    }
}

twin! {
    async fn faults_taken_apart(io, job: Job) -> anyhow::Result<(u32, Vec<String>)> {
        let (mut sum, mut log) = (0, Vec::new());
        let mut stack: Vec<(Fault, u8)> = job.faults.into_iter().map(|fault| (fault, 0)).collect();
        while let Some((fault, depth)) = stack.pop() {
            let line = match fault {
                Fault::Broken { part, times: times @ 2.. } => {
                    let fixed = step!("fix", io.did(format!("fix {part}*{times}"), times * 10).await?);
                    sum += fixed;
                    format!("{part}:{fixed}")
                }
                Fault::Broken { ref part, .. } => {
                    sum += step!("tighten", io.did(format!("tighten {part}"), 1).await?);
                    format!("{part} tight at {depth}")
                }
                Fault::Missing(part, Some(inner)) => {
                    let ordered = step!("order", io.did(format!("order {part}"), part.len() as u32).await?);
                    stack.push((*inner, depth + 1));
                    sum += ordered;
                    part
                }
                Fault::Missing(part, None) => bail!("no {part}"),
                Fault::Unknown => continue,
            };
            log.push(line);
        }
        Ok((sum, log))
    }
}

twin! {
    async fn first_row_that_fits(io, rows: Vec<Vec<u32>>, limit: u32) -> anyhow::Result<Option<(usize, u32)>> {
        let found = 'search: {
            for (at, row) in rows.iter().enumerate() {
                let mut left = limit;
                let whole = loop {
                    let [first, rest @ ..] = &row[..] else { break 0 };
                    let cost = step!("cost", io.did(format!("cost {at} {first} of {}", rest.len() + 1), *first).await?);
                    if let Some(less) = left.checked_sub(cost) {
                        left = less;
                    } else {
                        break 0;
                    }
                    break rest.iter().sum::<u32>() + cost;
                };
                if whole > 0 && whole <= limit {
                    break 'search Some((at, whole));
                }
            }
            None
        };
        step!("told", io.did(format!("told {found:?}"), ()).await?);
        Ok(found)
    }
}

twin! {
    async fn macros_that_jump(io, queue: Vec<Option<u32>>) -> anyhow::Result<Vec<u32>> {
        let mut done = Vec::new();
        for slot in &queue {
            let id = *slot;
            let id = match id {
                Some(id) => id,
                None => {
                    let found = step!("find", io.did("find", done.len() as u32).await?);
                    if found == 0 {
                        continue;
                    }
                    found
                }
            };
            ensure!(id < Job::LIMIT, "{id} is too much for {}", Job::LIMIT);
            let checked = step!("check", io.did(format!("check {id}"), id + 1).await?);
            done.push(checked);
        }
        let last = or_next!(done.last().copied(), return Ok(vec![]));
        step!("last", io.did(format!("last {last}"), ()).await?);
        Ok(done)
    }
}

twin! {
    async fn traits_generics_and_views(io, job: Job) -> anyhow::Result<String> {
        let worst = job.worst().cloned().context("no fault")?;
        let price = worst.doubled();
        let dear = dearest(&job.faults, 20).map(Priced::price);
        let quoted = step!("quote", quote(&io, format!("quote {}", job.faults.len()), &job.faults[1..]).await?);
        let rate = job.notes.1[2];
        let total = job.total(|n| n * rate);
        let shown: &dyn Priced = &worst;
        let text = format!("{price} {dear:?} {quoted} {total} {}", shown.price());
        let end = step!("end", io.did(&*text, text.len()).await?);
        Ok(format!("{text} {end} {}", worst.price()))
    }
}

twin! {
    async fn notes_are_taken_and_replaced(io, job: Job) -> anyhow::Result<(Option<String>, [u32; 3], u32)> {
        let mut job = job;
        let taken = job.notes.0.take();
        let asked = step!("ask", io.did(format!("ask {taken:?}"), 8u32).await?);
        let [first, .., last] = &mut job.notes.1;
        std::mem::swap(first, last);
        *first += asked;
        let old = std::mem::replace(&mut job.faults, vec![]);
        let swapped = step!("swap", io.did(format!("swap {:?}", job.notes.1), old.len() as u32).await?);
        if let Some(note) = taken.as_deref().filter(|note| !note.is_empty()) {
            job.notes.0.get_or_insert_with(String::new).push_str(note);
            step!("restore", io.did(format!("restore {note}"), ()).await?);
        }
        Ok((job.notes.0, job.notes.1, swapped))
    }
}

twin! {
    async fn question_marks_in_odd_places(io, raw: Vec<String>) -> anyhow::Result<u32> {
        let numbers = raw.iter().map(|text| text.trim().parse::<u32>()).collect::<Result<Vec<_>, _>>()?;
        let [a, b, ..] = numbers[..] else { bail!("two at least, not {}", numbers.len()) };
        let mut total = step!("add", io.did(format!("{a}+{b}"), a.checked_add(b).ok_or_else(|| anyhow!("too much"))?).await?);
        total += numbers.get(2).map(|n| n.checked_sub(1).context("none left")).transpose()?.unwrap_or(100);
        let half = |n: u32| -> anyhow::Result<u32> {
            ensure!(n % 2 == 0, "{n} is odd");
            Ok(n / 2)
        };
        let halved = match half(total) {
            Ok(n) => n,
            Err(error) => {
                let why = error.to_string();
                step!("round", io.did(format!("round ({why})"), half(total + 1)?).await?)
            }
        };
        let pick = async |n: u32| anyhow::Ok(n.checked_mul(3).context("overflow")?);
        let tripled = step!("triple", { io.log(format!("triple {halved}")); pick(halved).await? });
        Ok(tripled + half(tripled * 2)?)
    }
}

twin! {
    async fn control_flow_out_of_folds(io, prices: Vec<u32>) -> anyhow::Result<String> {
        let limit = step!("limit", io.did("limit", 12).await?);
        let folded = prices.iter().try_fold((0, 0usize), |(sum, n), price| match sum + price {
            over if over > limit => ControlFlow::Break((sum, n)),
            fits => ControlFlow::Continue((fits, n + 1)),
        });
        let (sum, n, all) = match folded {
            ControlFlow::Continue((sum, n)) => (sum, n, true),
            ControlFlow::Break((sum, n)) => (sum, n, false),
        };
        let mut rest = &prices[n..];
        let mut extra = 0;
        while let [price, tail @ ..] = rest {
            extra += price;
            rest = tail;
        }
        let word = if all { "all" } else { step!("word", io.did(format!("over by {extra}"), ()).await?); "some" };
        Ok(format!("{word} {sum}/{n}+{extra}"))
    }
}

twin! {
    async fn stock_in_a_map_of_entries(io, used: Vec<(String, u32)>) -> anyhow::Result<BTreeMap<String, (u32, Vec<u32>)>> {
        let mut stock: BTreeMap<String, (u32, Vec<u32>)> = BTreeMap::new();
        for (part, count) in used {
            let price = step!("price", io.did(format!("price {part}"), count * 3).await?);
            match stock.entry(part) {
                Entry::Vacant(free) => {
                    free.insert((count, vec![price]));
                }
                Entry::Occupied(mut there) => {
                    let (total, prices) = there.get_mut();
                    *total += count;
                    prices.push(price);
                }
            }
            let low: Vec<_> = stock.iter().filter(|(_, (total, _))| *total < 2).map(|(name, _)| name.clone()).collect();
            for name in low {
                let more = step!("reorder", io.did(format!("reorder {name}"), 5).await?);
                let Some((total, _)) = stock.get_mut(&name) else { unreachable!("{name} is gone") };
                *total += more;
            }
        }
        Ok(stock)
    }
}

twin! {
    async fn counters_shadowed_in_loops(io, rounds: u32) -> anyhow::Result<Vec<u32>> {
        let n = 1;
        let mut seen = vec![n];
        for n in 0..rounds {
            let n = n * 2;
            let n = step!("n", io.did(format!("n {n}"), n + 1).await?);
            let m = { let n = n + seen[0]; step!("m", io.did(format!("m {n}"), n * n).await?) };
            seen.push(m - n);
        }
        seen.push(n);
        let n = seen.iter().fold(n, |n, m| n + m);
        step!("sum", io.did(format!("{n} {n:>4} {0} {n:?}", n + 1), ()).await?);
        Ok(seen)
    }
}

twin! {
    async fn guards_that_end_in_time(io, jobs: Vec<Job>) -> anyhow::Result<u32> {
        let mut total = 0;
        for job in &jobs {
            let seen = {
                let shared = std::sync::Mutex::new(total);
                let mut held = shared.lock().unwrap();
                *held += job.id;
                *held
            };
            let cell = std::cell::RefCell::new(vec![seen]);
            cell.borrow_mut().push(job.id);
            total += cell.into_inner().len() as u32;
            let &Job { id, paid, .. } = job;
            total += step!("bill", io.did(format!("bill {id} {paid}"), id).await?);
        }
        Ok(total)
    }
}

corpus! {
    estimate_by_rates => completes(|| estimate_by_rates(Job::of(3)));
    faults_taken_apart => completes(|| faults_taken_apart(Job::of(1)));
    first_row_that_fits => completes(|| first_row_that_fits(vec![vec![9], vec![], vec![2, 3], vec![1]], 6));
    macros_that_jump => completes(|| macros_that_jump(vec![None, Some(3), None])), fails("too much", || macros_that_jump(vec![Some(1), Some(41)]));
    traits_generics_and_views => completes(|| traits_generics_and_views(Job::of(2)));
    notes_are_taken_and_replaced => completes(|| notes_are_taken_and_replaced(Job::of(2)));
    question_marks_in_odd_places => completes(|| question_marks_in_odd_places(["1", " 2", "4"].map(String::from).into())), fails("none left", || question_marks_in_odd_places(["1", "2", "0"].map(String::from).into()));
    control_flow_out_of_folds => completes(|| control_flow_out_of_folds(vec![5, 5, 5, 1]));
    stock_in_a_map_of_entries => completes(|| stock_in_a_map_of_entries([("bolt", 1), ("nut", 4), ("bolt", 2)].map(|(n, c)| (n.to_owned(), c)).into()));
    counters_shadowed_in_loops => completes(|| counters_shadowed_in_loops(3));
    guards_that_end_in_time => completes(|| guards_that_end_in_time(vec![Job::of(1), Job::of(2)]));
}
