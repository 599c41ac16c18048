//! A clinic's assistants: what a loop, a pattern, a macro and a step read while the code around them changes it.
use std::fmt::Write as _;

use crate::prelude::*;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Visit {
    patient: String,
    minutes: u32,
    tags: Vec<String>,
    next: Option<Box<Visit>>,
}

impl Visit {
    fn of(patient: &str, minutes: u32) -> Self {
        Visit { patient: patient.to_owned(), minutes, tags: vec![format!("{patient}!"), "new".into()], next: None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Slot {
    from: u32,
    to: u32,
}

fn visits(list: &[(&str, u32)]) -> Vec<Visit> {
    list.iter().map(|(patient, minutes)| Visit::of(patient, *minutes)).collect()
}

fn numbered(count: &mut usize) -> usize {
    *count += 1;
    *count
}

// The arguments of a loop change while it runs.

twin! {
    async fn waiting_list_with_a_shrinking_room(io, visits: Vec<Visit>) -> anyhow::Result<(Vec<String>, usize)> {
        let (mut seats, mut skipped) = (4usize, 1usize);
        let mut seen = vec![];
        for visit in visits.iter().skip(skipped).take(seats) {
            let minutes = step!("see", io.did(format!("see {}", visit.patient), visit.minutes).await?);
            seats -= 1;
            skipped += minutes as usize;
            seen.push(format!("{} {seats} {skipped}", visit.patient));
        }
        for (at, visit) in visits.iter().enumerate().rev().skip(seats).step_by(skipped.min(2)) {
            skipped = 9;
            seats += at;
            step!("again", io.did(format!("again {at} {}", visit.patient), ()).await?);
        }
        Ok((seen, seats))
    }
}

twin! {
    async fn rows_of_a_calendar_that_moves_on(io, weeks: Vec<Vec<Slot>>) -> anyhow::Result<u32> {
        let mut week = 0;
        let mut sum = 0;
        while week < weeks.len() {
            for slot in weeks[week].iter().chain(&weeks[weeks.len() - 1 - week]) {
                sum += step!("slot", io.did(format!("{week} {slot:?}"), slot.to - slot.from).await?);
                if sum > 7 && week == 0 {
                    week += 1;
                }
            }
            week += 1;
        }
        let (mut lo, mut hi) = (0, weeks[0].len());
        for Slot { from, to } in &weeks[0][lo..hi] {
            lo += 1;
            hi -= 1;
            sum += step!("edge", io.did(format!("{lo}..{hi} {from}"), *to).await?);
        }
        Ok(sum + lo as u32 * 100 + hi as u32)
    }
}

twin! {
    async fn records_split_by_a_separator_that_changes(io, text: String) -> anyhow::Result<Vec<String>> {
        let mut separator = ';';
        let mut most = 3;
        let mut out = vec![];
        for field in text.split(separator) {
            separator = field.chars().next().unwrap_or('-');
            out.push(step!("field", io.did(format!("{field} then {separator}"), field.len().to_string()).await?));
        }
        let mut word = String::from("; ");
        for (at, part) in text.splitn(most, word.as_str()).enumerate() {
            most += at;
            step!("part", io.did(format!("{at} {part:?} {most}"), ()).await?);
            out.push(part.trim().to_owned());
        }
        word.push_str(&out.concat());
        for piece in text.split(&[separator, ';', ' ']).filter(|piece| !piece.is_empty()).map(str::to_owned).collect::<Vec<_>>() {
            separator = 'x';
            word.push_str(&step!("piece", io.did(piece.clone(), piece).await?));
        }
        out.push(word);
        Ok(out)
    }
}

twin! {
    async fn counters_with_effects_in_the_head(io, list: Vec<u32>) -> anyhow::Result<String> {
        let mut count = 0;
        let mut log = String::new();
        for n in list.iter().take(numbered(&mut count)).chain(list.iter().skip(numbered(&mut count))) {
            count += step!("count", io.did(format!("count {n}"), *n as usize).await?);
            write!(log, "{n}:{count} ")?;
        }
        for (a, b) in list.iter().zip(list.iter().skip(count % 2 + 1)) {
            count += 1;
            step!("pair", io.did(format!("{a}{b}"), ()).await?);
        }
        for window in list.windows({ count += 1; 2 }) {
            count *= 2;
            let sum = step!("window", io.did(format!("{window:?} {count}"), window[0] + window[1]).await?);
            write!(log, "{sum}|")?;
        }
        Ok(format!("{log}{count}"))
    }
}

twin! {
    async fn ranges_by_what_they_change(io, plan: Vec<u32>) -> anyhow::Result<u32> {
        let mut bounds = Slot { from: 1, to: plan.len() as u32 };
        let mut sum = 0;
        for at in bounds.from..bounds.to {
            bounds.to -= 1;
            bounds.from += at;
            sum += step!("at", io.did(format!("{at} of {bounds:?}"), plan[at as usize]).await?);
        }
        for at in (bounds.to..=bounds.from).rev().step_by(bounds.to.max(1) as usize) {
            bounds.to = 3;
            sum += step!("back", io.did(format!("back {at}"), at).await?);
        }
        let mut bounds = [0, plan.len()];
        for n in &plan[bounds[0]..bounds[1]] {
            bounds[1] = bounds[1].saturating_sub(1);
            sum += step!("slice", io.did(format!("{n} {bounds:?}"), *n).await?);
        }
        Ok(sum)
    }
}

// Copies out of what is borrowed.

twin! {
    async fn vitals_before_and_after(io, pulse: u32, rest: Option<u32>) -> anyhow::Result<(u32, u32, Vec<u32>)> {
        let mut pulse = pulse;
        let mut rest = rest;
        let &before = &pulse;
        let (&low, ref high, &Slot { from, .. }) = (&pulse, pulse + 60, &Slot { from: pulse, to: 9 });
        let high = *high;
        pulse += step!("run", io.did(format!("run {before} {low} {high} {from}"), 30).await?);
        let mut seen = vec![before, low, high, from];
        if let &Some(n) = &rest {
            rest = Some(n + 100);
            seen.push(step!("rest", io.did(format!("{n} {rest:?}"), n).await?));
            seen.push(n);
        }
        let was = match (&rest, &mut pulse) {
            (&Some(n), pulse) if n > 100 => {
                *pulse += 1;
                n
            }
            (&None, _) => 7,
            (&Some(n), _) => n,
        };
        rest = step!("later", io.did(format!("{was}"), Some(was * 2)).await?);
        Ok((before, pulse + rest.unwrap_or(0), seen))
    }
}

twin! {
    async fn first_and_last_of_a_list_that_changes(io, queue: Vec<u32>) -> anyhow::Result<String> {
        let mut queue = queue;
        let [first, .., last] = queue[..] else { bail!("short") };
        let Some(&second) = queue.get(1) else { bail!("shorter") };
        queue[1] = 99;
        step!("ends", io.did(format!("{first} {second} {last}"), ()).await?);
        let Some((&head, tail)) = queue.split_first() else { return Ok("none".into()) };
        let tail = tail.to_vec();
        queue.clear();
        queue.push(step!("tail", io.did(format!("{head} {tail:?}"), head).await?));
        for &n in &tail {
            let n = n + 1;
            queue.push(step!("each", io.did(n.to_string(), n).await?));
        }
        while let [.., n] = queue[..] {
            queue.pop();
            if step!("left", io.did(format!("{n} {}", queue.len()), n).await?) < 3 { break }
        }
        Ok(format!("{first} {second} {last} {head} {queue:?}"))
    }
}

twin! {
    async fn doses_by_mutable_items(io, doses: Vec<(String, u32)>) -> anyhow::Result<Vec<(String, u32)>> {
        let mut doses = doses;
        for &(ref drug, mut mg) in &doses {
            mg += step!("weigh", io.did(drug.as_str(), mg).await?);
            mg /= 3;
            step!("give", io.did(format!("{drug} {mg}"), ()).await?);
        }
        for i in 0..doses.len() {
            let (drug, mg) = &mut doses[i];
            *mg += 1;
            drug.push('+');
            let shown = format!("{drug}{mg}");
            step!("changed", io.did(shown, ()).await?);
            let dose = &mut doses[i].1;
            *dose *= step!("double", io.did("double", 2).await?);
        }
        if let Some(last) = doses.last_mut() {
            last.1 = 0;
        }
        step!("end", io.did(format!("{doses:?}"), ()).await?);
        Ok(doses)
    }
}

twin! {
    async fn chart_of_nested_visits(io, visit: Visit) -> anyhow::Result<Vec<String>> {
        let mut at = &visit;
        let mut names = vec![at.patient.clone()];
        while let Some(next) = &at.next {
            at = next;
            names.push(at.patient.clone());
        }
        let deepest = at.minutes;
        step!("depth", io.did(format!("{deepest}"), ()).await?);
        let mut left = Some(visit);
        while let Some(Visit { patient, minutes, next, mut tags }) = left.take() {
            tags.push(step!("visit", io.did(format!("{patient} {minutes}"), minutes.to_string()).await?));
            left = next.map(|next| *next);
            if let Some(ref mut next) = left { next.minutes += minutes }
            names.extend(tags);
        }
        Ok(names)
    }
}

// Names in macros and texts, also where two variables share one.

twin! {
    async fn letters_with_names_that_hide_one_another(io, name: String, n: u32) -> anyhow::Result<Vec<String>> {
        let mut out = vec![];
        let n = step!("n", io.did(format!("{name} {n}"), n + 1).await?);
        {
            let name = name.to_uppercase();
            let n = format!("<{n}>");
            step!("inner", io.did(format!("Dear {name}, {n:>5} {n:?} {{n}}"), ()).await?);
            out.push(json!({ "name": name, "n": n, "text": format!("{name}{n}"), "raw": "Hello {name}" }).to_string());
            out.push(stringify!(name + n).to_owned());
            out.push(vec!["{name}", "{n}"][n.len() % 2].to_owned());
        }
        let width = n as usize + 3;
        let text = format!("{name:*^width$}|{0:>1$}|{n:0width$}|{n:#x}|{2:.3$}", n, width, 1.5, 2, n = n + 1, name = name);
        step!("text", io.did(text.clone(), ()).await?);
        assert!(matches!(Some(n), Some(n) if n > 1), "{n} of {name}");
        ensure!(n > 1, "only {n} for {name}");
        debug_assert_eq!(width, n as usize + 3, "{name} {width}");
        out.push(text);
        out.push(format!("{name} {n} {}", concat!("{name}", 1)));
        Ok(out)
    }
}

macro_rules! chart {
    ($($key:ident: $value:expr),* $(,)?) => {
        [$((stringify!($key).to_owned(), ($value).to_string())),*].into_iter().collect::<BTreeMap<String, String>>()
    };
}

macro_rules! bump {
    ($what:ident += $by:expr) => {
        $what = $what.wrapping_add($by)
    };
}

twin! {
    async fn charts_by_macros_of_ones_own(io, name: String, age: u32) -> anyhow::Result<BTreeMap<String, String>> {
        let mut age = age;
        let first = chart! { name: name, age: age + 1, tag: format_args!("{name}-{age}") };
        let years = step!("years", io.did("years", 5).await?);
        bump!(age += years);
        let age_before = age;
        let age = format!("{age} years");
        step!("note", io.did(format!("{first:?} {age}"), ()).await?);
        let mut second = chart! { name: name.len(), age: age, before: age_before };
        for (key, value) in &first {
            let age = step!("merge", io.did(format!("{key}={value}"), value.len()).await?);
            second.insert(format!("{key}{age}"), chart! { value: value, age: age }.len().to_string());
        }
        second.extend(first);
        Ok(second)
    }
}

// What a body changes, and when it is read.

twin! {
    async fn totals_changed_inside_of_steps(io, items: Vec<(String, u32)>) -> anyhow::Result<(u32, Vec<String>, String)> {
        let mut total = 0;
        let mut lines = Vec::new();
        let mut last = String::new();
        for (name, cents) in items {
            let price = step!("price", {
                total += cents;
                lines.push(name.clone());
                let price = io.did(format!("price {name}"), cents * 2).await?;
                last = std::mem::replace(&mut lines[0], last.clone());
                total += 1;
                price
            });
            total += price + step!("fee", { total *= 2; io.did(format!("fee {total}"), 1).await? });
        }
        Ok((total, lines, last))
    }
}

twin! {
    async fn operands_read_before_they_change(io, n: u32) -> anyhow::Result<Vec<u32>> {
        let mut x = n;
        let sum = x + step!("a", { x += 1; io.did("a", x).await? }) + x;
        x = x * 2 + step!("b", { x += 10; io.did("b", x).await? });
        let pair = (x, step!("c", { x = 0; io.did("c", 3).await? }), x);
        let mut list = vec![sum, x, pair.0, pair.1, pair.2];
        let at = list.len() - 1;
        list[at] += step!("d", io.did(format!("{at}"), list[0]).await?);
        list.push(step!("e", { x += 7; io.did("e", x + list.len() as u32).await? }));
        let text = format!("{x}") + &step!("f", { x += 5; io.did("f", x.to_string()).await? }) + &x.to_string();
        list.push(text.parse()?);
        let chosen = if x > 3 && step!("g", { x -= 3; io.did("g", x > 1).await? }) && x < 4 { x } else { 0 };
        list.push(chosen);
        Ok(list)
    }
}

twin! {
    async fn destructured_by_assignment(io, a: u32, b: u32) -> anyhow::Result<(u32, u32, [u32; 2], Slot)> {
        let mut a = a;
        let mut b = b;
        let mut slot = Slot { from: a, to: b };
        let mut pair = [0; 2];
        (a, b) = (b, step!("swap", io.did("swap", a + 1).await?));
        [pair[0], pair[1]] = [a, step!("pair", io.did(format!("{a} {b}"), b * 2).await?)];
        Slot { from: slot.to, to: _ } = Slot { from: step!("slot", io.did("slot", pair[1]).await?), to: 1 };
        (slot.from, ..) = (pair[0] + slot.to, step!("rest", io.did("rest", 0u8).await?), "x");
        _ = step!("nothing", io.did("nothing", a).await?);
        (a, _) = step!("both", io.did("both", (a + 5, "y".to_owned())).await?);
        std::mem::swap(&mut a, &mut pair[0]);
        step!("end", io.did(format!("{a} {b} {pair:?} {slot:?}"), ()).await?);
        Ok((a, b, pair, slot))
    }
}

twin! {
    async fn ward_rounds_with_state_in_a_struct(io, visits: Vec<Visit>) -> anyhow::Result<String> {
        #[derive(Default, Serialize, Deserialize)]
        struct Round { seen: Vec<String>, minutes: u32, late: Option<String> }
        impl Round {
            fn add(&mut self, visit: &Visit, minutes: u32) -> &mut Self {
                self.minutes += minutes;
                self.seen.push(visit.patient.clone());
                self
            }
            fn is_full(&self) -> bool { self.minutes > 40 }
        }
        let mut round = Round::default();
        for visit in visits.iter().filter(|v| v.minutes > 0).cloned().collect::<VecDeque<_>>() {
            if round.is_full() {
                round.late.get_or_insert_with(|| visit.patient.clone());
                continue;
            }
            let minutes = step!("round", io.did(format!("{} at {}", visit.patient, round.minutes), visit.minutes).await?);
            let round = round.add(&visit, minutes);
            if round.seen.len() == 2 { round.minutes += 20 }
        }
        let Round { seen, late, .. } = &round;
        step!("report", io.did(format!("{seen:?} {late:?}"), ()).await?);
        Ok(format!("{} {} {:?}", round.minutes, seen.join("+"), late.as_deref().unwrap_or("nobody")))
    }
}

corpus! {
    waiting_list_with_a_shrinking_room => completes(|| waiting_list_with_a_shrinking_room(visits(&[("a", 1), ("b", 2), ("c", 1), ("d", 4), ("e", 5), ("f", 0)])));
    rows_of_a_calendar_that_moves_on => completes(|| rows_of_a_calendar_that_moves_on(vec![
        vec![Slot { from: 1, to: 4 }, Slot { from: 4, to: 6 }, Slot { from: 0, to: 1 }], vec![Slot { from: 2, to: 3 }], vec![Slot { from: 0, to: 9 }, Slot { from: 3, to: 4 }]]));
    records_split_by_a_separator_that_changes => completes(|| records_split_by_a_separator_that_changes("ab; c;d e; fg".into()));
    counters_with_effects_in_the_head => completes(|| counters_with_effects_in_the_head(vec![3, 1, 2, 5]));
    ranges_by_what_they_change => completes(|| ranges_by_what_they_change(vec![5, 2, 8, 1]));
    vitals_before_and_after => completes(|| vitals_before_and_after(60, Some(5))), completes(|| vitals_before_and_after(60, None));
    first_and_last_of_a_list_that_changes => completes(|| first_and_last_of_a_list_that_changes(vec![4, 2, 6, 8]));
    doses_by_mutable_items => completes(|| doses_by_mutable_items(vec![("a".into(), 4), ("b".into(), 7)]));
    chart_of_nested_visits => completes(|| chart_of_nested_visits(Visit { next: Some(Box::new(Visit { next: Some(Box::new(Visit::of("c", 3))), ..Visit::of("b", 2) })), ..Visit::of("a", 1) }));
    letters_with_names_that_hide_one_another => completes(|| letters_with_names_that_hide_one_another("ann".into(), 3));
    charts_by_macros_of_ones_own => completes(|| charts_by_macros_of_ones_own("bo".into(), 30));
    totals_changed_inside_of_steps => completes(|| totals_changed_inside_of_steps(vec![("x".into(), 2), ("y".into(), 3), ("z".into(), 5)]));
    operands_read_before_they_change => completes(|| operands_read_before_they_change(4));
    destructured_by_assignment => completes(|| destructured_by_assignment(3, 8));
    ward_rounds_with_state_in_a_struct => completes(|| ward_rounds_with_state_in_a_struct(visits(&[("a", 10), ("b", 15), ("z", 0), ("c", 5), ("d", 4)])));
}
