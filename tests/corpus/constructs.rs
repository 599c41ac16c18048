//! Constructs of everyday Rust around steps: closures over locals, slices, entries, labels, borrowed state, numbers and text.
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::{Display, Write as _};
use std::mem;

use super::prelude::*;

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(String::from).collect()
}

twin! {
    async fn closures_over_saved_locals(io, rows: Vec<(String, u32)>) -> anyhow::Result<String> {
        let floor = step!("floor", io.did("floor", 3u32).await?);
        let names = rows.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        let above = |n: u32| n > floor;
        let label = |i: usize| format!("{}:{floor}", names[i]);
        step!("first", io.did(label(0), ()).await?);
        let kept: Vec<u32> = rows.iter().map(|(_, n)| *n).filter(|n| above(*n)).collect();
        step!("second", io.did(format!("{kept:?}"), ()).await?);
        let nested = |by: u32| { let twice = |n: u32| n * by + floor; kept.iter().map(|n| twice(*n)).sum::<u32>() };
        step!("third", io.did(nested(2).to_string(), ()).await?);
        Ok(format!("{} {} {}", label(1), nested(1), above(4)))
    }
}

fn prefixed(items: &[impl Display], prefix: impl AsRef<str>) -> String {
    items.iter().map(|item| format!("{}{item}", prefix.as_ref())).collect::<Vec<_>>().join(",")
}

fn above(limit: u32) -> impl Fn(&u32) -> bool {
    move |n| *n > limit
}

twin! {
    async fn impl_traits_on_both_sides(io, list: Vec<u32>) -> anyhow::Result<String> {
        let limit = step!("limit", io.did("limit", 2).await?);
        let shown = prefixed(&list, "#");
        let some: Vec<u32> = list.iter().copied().filter(above(limit)).collect();
        step!("some", io.did(prefixed(&some, String::from("+")), ()).await?);
        Ok(format!("{shown} {}", prefixed(&some, &limit.to_string())))
    }
}

fn normalized(text: &str) -> Cow<'_, str> {
    if text.contains(' ') { Cow::Owned(text.replace(' ', "_")) } else { Cow::Borrowed(text) }
}

twin! {
    async fn cows_owned_before_a_step(io, titles: Vec<String>) -> anyhow::Result<Vec<String>> {
        let mut slugs: Vec<Cow<'static, str>> = vec!["index".into()];
        for title in &titles {
            let slug = normalized(title).into_owned();
            step!("publish", io.did(slug.clone(), ()).await?);
            slugs.push(slug.into());
        }
        slugs[0].to_mut().push_str(".html");
        step!("index", io.did(slugs[0].to_string(), ()).await?);
        Ok(slugs.into_iter().map(Cow::into_owned).collect())
    }
}

fn first_even(list: &[u32]) -> Option<u32> {
    let first = list.first()?;
    (first % 2 == 0).then_some(*first)
}

twin! {
    async fn question_marks_on_options(io, list: Vec<u32>) -> anyhow::Result<String> {
        let first = first_even(&list).context("no even number at the front")?;
        let index = step!("index", io.did("index", 1usize).await?);
        let second = (|| { let n = list.get(index)?; n.checked_sub(first) })();
        step!("second", io.did(format!("{second:?}"), ()).await?);
        let third = async { Some(list.get(2)?.pow(2)) }.await;
        let fourth: Option<u32> = try_fourth(&list);
        step!("third", io.did(format!("{third:?}"), ()).await?);
        Ok(format!("{first} {second:?} {third:?} {fourth:?}"))
    }
}

fn try_fourth(list: &[u32]) -> Option<u32> {
    list.get(3).copied()?.checked_mul(2)
}

twin! {
    async fn labelled_blocks_with_values(io, n: u32) -> anyhow::Result<String> {
        let tier = 'tier: {
            let score = step!("score", io.did("score", n * 2).await?);
            if score > 10 { break 'tier "gold".to_owned() }
            for extra in 0..3u32 {
                if step!("extra", io.did(format!("extra {extra}"), extra + score).await?) > 7 { break 'tier format!("silver {extra}") }
            }
            'inner: {
                if score == 0 { break 'inner }
                break 'tier step!("bronze", io.did("bronze", format!("bronze {score}")).await?);
            }
            "none".into()
        };
        step!("grant", io.did(tier.clone(), ()).await?);
        Ok(tier)
    }
}

twin! {
    async fn guards_that_shadow(io, n: Option<i64>, limit: i64) -> anyhow::Result<String> {
        let x = step!("x", io.did("x", limit + 1).await?);
        let word = match n {
            Some(x) if { let x = x * 2; x > limit } => { step!("big", io.did(format!("big {x}"), ()).await?); format!("big {x}") }
            Some(x) if x < 0 && matches!(x, -5..=-1) => { let size = step!("small", io.did("small", x.abs()).await?); format!("small {x} {size}") }
            Some(limit) => step!("mid", io.did(format!("mid {limit} {x}"), format!("mid {limit}")).await?),
            None if x > 5 => "none".into(),
            None => return Ok(step!("empty", io.did("empty", format!("empty {x}")).await?)),
        };
        step!("end", io.did(format!("{word} {x} {limit}"), ()).await?);
        Ok(format!("{word} {x} {limit}"))
    }
}

twin! {
    async fn async_closures_inside_steps(io, list: Vec<u32>) -> anyhow::Result<u32> {
        let factor = step!("factor", io.did("factor", 3).await?);
        let total = step!("total", {
            let ask = async |n: u32| io.did(format!("ask {n}"), n * factor).await;
            let mut total = 0;
            for n in &list { total += ask(*n).await?; }
            total
        });
        let halve = async |n: u32| n / 2;
        let half = halve(total).await;
        step!("half", io.did(half.to_string(), ()).await?);
        Ok(total + half)
    }
}

twin! {
    async fn slice_patterns(io, parts: Vec<String>) -> anyhow::Result<String> {
        let out = match &parts[..] {
            [] => return Ok("empty".into()),
            [only] => step!("one", io.did(only.as_str(), only.clone()).await?),
            [first, .., last] if first == last => { step!("ends", io.did(first.as_str(), ()).await?); format!("{first}={last}") }
            [first, middle @ .., last] => {
                step!("first", io.did(first.clone(), ()).await?);
                let joined = middle.join("+");
                step!("middle", io.did(joined.clone(), ()).await?);
                format!("{first}({joined}){last}:{}", middle.len())
            }
        };
        if let [a, b, rest @ ..] = parts.as_slice() {
            let (a, b) = (a.clone(), b.clone());
            step!("pair", io.did(format!("{a}{b}{}", rest.len()), ()).await?);
            return Ok(format!("{out} {a}{b}"));
        }
        Ok(out)
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Window<const N: usize> {
    #[serde(with = "list")]
    items: [u32; N],
}

mod list {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer, const N: usize>(items: &[u32; N], s: S) -> Result<S::Ok, S::Error> {
        items.as_slice().serialize(s)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>, const N: usize>(d: D) -> Result<[u32; N], D::Error> {
        Vec::<u32>::deserialize(d)?.try_into().map_err(|_| serde::de::Error::custom("another length"))
    }
}

impl<const N: usize> Window<N> {
    fn pushed(mut self, n: u32) -> Self {
        self.items.rotate_left(1);
        self.items[N - 1] = n;
        self
    }
}

twin! {
    async fn const_generics(io, list: Vec<u32>) -> anyhow::Result<u32> {
        const SIZE: usize = 3;
        let mut window = Window::<SIZE> { items: [0; SIZE] };
        let mut most = 0;
        for n in list {
            let seen = step!("see", io.did(format!("see {n}"), n).await?);
            window = window.pushed(seen);
            most = most.max(window.items.iter().sum());
        }
        let [a, b, c] = window.items;
        step!("last", io.did(format!("{a} {b} {c} {}", window.items.len()), ()).await?);
        Ok(most)
    }
}

twin! {
    async fn let_else_chains(io, body: Value) -> anyhow::Result<String> {
        let Some(user) = body.get("user").cloned() else { return Ok("no user".into()) };
        let Some(name) = user["name"].as_str().map(str::to_owned) else {
            step!("unnamed", io.did("unnamed", ()).await?);
            bail!("user without a name");
        };
        let Ok(age): Result<u32, _> = u32::try_from(user["age"].as_i64().unwrap_or(-1)) else {
            let why = step!("ask", io.did(format!("ask {name}"), "no age").await?);
            return Ok(format!("{name}: {why}"));
        };
        let ticket = step!("ticket", io.did(format!("ticket of {name}"), age + 1).await?);
        let (Some(city), 18..) = (user["city"].as_str().map(String::from), age) else {
            return Ok(step!("minor", io.did("minor", format!("{name} is {age}")).await?));
        };
        step!("greet", io.did(format!("{name} {age} {city} {ticket}"), ()).await?);
        Ok(format!("{name} of {city}"))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Settings {
    model: String,
    tries: u32,
    tags: Vec<String>,
    limits: Option<(u32, u32)>,
}

twin! {
    async fn struct_update_syntax(io, tags: Vec<String>) -> anyhow::Result<Settings> {
        let base = Settings { tags, ..Settings::default() };
        let tuned = Settings { model: step!("model", io.did("model", "large".to_owned()).await?), tries: base.tries + 1, ..base.clone() };
        step!("note", io.did(format!("{} {}", base.model.len(), tuned.model), ()).await?);
        let last = Settings { limits: Some((tuned.tries, step!("limit", io.did("limit", 9).await?))), ..tuned };
        ensure!(matches!(last, Settings { limits: Some((1, n)), ref tags, .. } if n > 3 && tags.len() < 5), "limits of {last:?}");
        step!("end", io.did(format!("{last:?}"), ()).await?);
        Ok(last)
    }
}

twin! {
    async fn ranges_with_variables(io, from: usize, list: Vec<u32>) -> anyhow::Result<String> {
        let to = step!("to", io.did("to", list.len()).await?);
        let range = from..to;
        let inclusive = from..=to - 1;
        step!("range", io.did(format!("{range:?} {}", inclusive.contains(&2)), ()).await?);
        let mut sum = 0;
        for i in range.clone().rev().step_by(2) {
            sum += list[i];
            step!("add", io.did(format!("{i} {sum}"), ()).await?);
        }
        for (place, n) in list[range.clone()].iter().enumerate() {
            sum += step!("each", io.did(format!("{place} {n}"), *n).await?);
        }
        for i in inclusive { sum += step!("inc", io.did(i.to_string(), 1).await?); }
        Ok(format!("{sum} {:?}", &list[range]))
    }
}

twin! {
    async fn returns_from_nested_loops(io, grid: Vec<Vec<i32>>) -> anyhow::Result<String> {
        let mut seen = 0;
        for (y, row) in grid.iter().enumerate() {
            for (x, cell) in row.iter().enumerate() {
                seen += 1;
                if *cell < 0 { return Ok(format!("hole at {x},{y} after {seen}")) }
                let mut left = *cell;
                while left > 0 {
                    left -= step!("dig", io.did(format!("dig {x},{y}"), 2).await?);
                    if seen > 4 { return Err(anyhow!("too deep at {x},{y}: {left}")) }
                }
            }
        }
        Ok(format!("whole {seen}"))
    }
}

twin! {
    async fn stacks_and_queues(io, tree: BTreeMap<String, Vec<String>>) -> anyhow::Result<Vec<String>> {
        let mut stack = vec!["root".to_owned()];
        let mut order = vec![];
        let mut queue = VecDeque::new();
        while let Some(node) = stack.pop() {
            let children = tree.get(&node).cloned().unwrap_or_default();
            step!("visit", io.did(node.clone(), ()).await?);
            stack.extend(children.into_iter().rev());
            queue.push_back(node);
        }
        while let (Some(next), left) = (queue.pop_front(), queue.len()) {
            if left % 2 == 1 { continue }
            order.push(step!("order", io.did(format!("{next} {left}"), next).await?));
        }
        let mut heap: BinaryHeap<(Reverse<u32>, String)> = order.iter().map(|n| (Reverse(n.len() as u32), n.clone())).collect();
        while let Some((Reverse(cost), name)) = heap.pop() {
            order.push(step!("pop", io.did(format!("{name} {cost}"), format!("{name}!")).await?));
            if cost > 3 { break }
        }
        Ok(order)
    }
}

twin! {
    async fn sorted_then_indexed(io, hits: Vec<(String, f64)>) -> anyhow::Result<String> {
        let mut hits = hits;
        hits.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let best = &hits[0];
        step!("best", io.did(best.0.as_str(), ()).await?);
        let best = best.0.clone();
        hits.sort_by_key(|(name, _)| (name.len(), Reverse(name.clone())));
        hits.dedup_by_key(|hit| hit.0.len());
        step!("short", io.did(hits[0].0.clone(), ()).await?);
        let place = hits.iter().position(|(name, _)| *name == best);
        let order = { let mut order: Vec<usize> = (0..hits.len()).collect(); order.sort_by_key(|i| Reverse(*i)); order };
        for i in order { step!("each", io.did(format!("{i} {}", hits[i].0), ()).await?); }
        Ok(format!("{best} {place:?}"))
    }
}

twin! {
    async fn text_built_bit_by_bit(io, rows: Vec<(String, u32)>) -> anyhow::Result<String> {
        let mut page = String::with_capacity(64);
        writeln!(page, "# {} rows", rows.len())?;
        for (i, (name, n)) in rows.iter().enumerate() {
            let n = step!("price", io.did(format!("price {name}"), n * 2).await?);
            write!(&mut page, "{i:>2}|{name:-<6}|{n:04}|{n:#x}")?;
            page += "\n";
            page.push_str(if n > 5 { "!" } else { "" });
        }
        page.insert(0, '>');
        let lines = page.lines().count();
        let last = page.lines().last().unwrap_or_default().to_owned();
        step!("save", io.did(format!("{lines} {last}"), ()).await?);
        page.retain(|c| c != '|');
        page.truncate(page.trim_end().len());
        Ok(page)
    }
}

twin! {
    async fn taken_replaced_and_swapped(io, first: Vec<u32>) -> anyhow::Result<String> {
        let mut pending = first;
        let mut done: Vec<u32> = Vec::new();
        let mut state = Some("new".to_owned());
        let mut round = 0u8;
        while !pending.is_empty() {
            let batch = mem::take(&mut pending);
            round += 1;
            for n in batch {
                if step!("try", io.did(format!("try {n}"), n % 3).await?) == u32::from(round) { pending.push(n - 1) } else { done.push(n) }
            }
            let old = mem::replace(&mut state, Some(format!("round {round}")));
            step!("log", io.did(format!("{old:?} {state:?}"), ()).await?);
            mem::swap(&mut pending, &mut done);
            if round > 3 { break }
        }
        let taken = state.take();
        let back = state.get_or_insert_with(|| "again".into()).clone();
        step!("end", io.did(format!("{taken:?} {back}"), ()).await?);
        state.replace("last".into());
        Ok(format!("{pending:?} {done:?} {state:?} {}", taken.is_some_and(|t| t.len() > 3)))
    }
}

twin! {
    async fn durations_and_numbers(io, ms: u64) -> anyhow::Result<String> {
        let base = Duration::from_millis(ms);
        let mut waited = Duration::ZERO;
        let mut pause = base;
        let limit = step!("limit", io.did("limit", 10u32).await?) * base;
        while waited + pause < limit {
            step!("wait", io.did(format!("{pause:?}"), ()).await?);
            waited += pause;
            pause = (pause * 2).min(Duration::from_secs(1)).saturating_sub(Duration::from_millis(1));
        }
        let share = waited.as_secs_f64() / limit.as_secs_f64();
        let wide = i128::MAX / 7 % 1_000 * i128::from(ms);
        let bits = (ms as u8).wrapping_mul(77).rotate_left(3);
        step!("sum", io.did(format!("{share:.3} {wide} {bits:#010b}"), ()).await?);
        Ok(format!("{waited:?} {:?} {share:e} {wide}", limit.checked_sub(waited)))
    }
}

twin! {
    async fn options_by_reference(io, note: Option<String>, code: Option<u32>) -> anyhow::Result<String> {
        let mut note = note;
        let length = note.as_ref().map_or(0, String::len);
        step!("length", io.did(length.to_string(), ()).await?);
        if let Some(text) = note.as_mut() { text.push('!') }
        if let Some(text) = note.as_deref_mut() { text.make_ascii_uppercase() }
        step!("shout", io.did(format!("{note:?}"), ()).await?);
        let first = note.as_deref().and_then(|text| text.chars().next());
        let both = note.as_ref().zip(code.as_ref()).map(|(a, b)| format!("{a}{b}"));
        step!("both", io.did(format!("{first:?} {both:?}"), ()).await?);
        let Some(text) = &note else { return Ok(format!("nothing {}", code.xor(Some(1)).unwrap_or(7))) };
        step!("kept", io.did(text.as_str(), ()).await?);
        Ok(format!("{text} {:?} {:?}", code.filter(|c| *c > 1), first.map(|c| c as u32)))
    }
}

twin! {
    async fn tuples_of_vecs(io, list: Vec<i32>) -> anyhow::Result<String> {
        let (mut even, mut odd): (Vec<i32>, Vec<i32>) = list.iter().partition(|n| *n % 2 == 0);
        step!("parted", io.did(format!("{even:?} {odd:?}"), ()).await?);
        let mut pair = (vec![0; even.len()], odd.split_off(odd.len() / 2));
        for n in &even { pair.0.push(step!("even", io.did(format!("even {n}"), n / 2).await?)); }
        pair.1.append(&mut even);
        let (names, lengths): (Vec<_>, Vec<_>) = pair.1.iter().map(|n| { let text = format!("n{n}"); let length = text.len(); (text, length) }).unzip();
        step!("unzipped", io.did(names.join(" "), ()).await?);
        let (a, b) = &mut pair;
        a.extend_from_slice(b);
        b.push(a[0]);
        step!("joined", io.did(format!("{pair:?}"), ()).await?);
        pair.1.clear();
        Ok(format!("{pair:?} {odd:?} {lengths:?}"))
    }
}

twin! {
    async fn chunks_and_windows(io, list: Vec<u8>) -> anyhow::Result<String> {
        let mut out = String::new();
        let chunks = list.chunks_exact(3);
        let rest = chunks.remainder().to_vec();
        for chunk in list.chunks_exact(3) {
            let [a, b, c] = chunk else { unreachable!() };
            out += &step!("chunk", io.did(format!("{a}{b}{c}"), format!("{}", a + b + c)).await?);
        }
        for pair in list.windows(2).skip(1) {
            if pair[0] > pair[1] { out += &step!("drop", io.did(format!("{pair:?}"), "v".to_owned()).await?) }
        }
        for (i, part) in list.chunks(2).enumerate().rev() {
            step!("part", io.did(format!("{i} {}", part.len()), ()).await?);
        }
        let (head, tail) = list.split_at(list.len() / 2);
        out += &format!("{}/{}", head.len(), tail.iter().map(|n| u32::from(*n)).sum::<u32>());
        step!("rest", io.did(format!("{rest:?}"), ()).await?);
        Ok(out)
    }
}

twin! {
    async fn entries_of_maps(io, text: String) -> anyhow::Result<String> {
        let mut counts: BTreeMap<String, u32> = BTreeMap::new();
        let mut places: HashMap<String, Vec<usize>> = HashMap::new();
        for (i, word) in words(&text).into_iter().enumerate() {
            let weight = step!("weigh", io.did(format!("weigh {word}"), word.len() as u32).await?);
            *counts.entry(word.clone()).or_insert(0) += weight;
            places.entry(word).and_modify(|p| p.push(i)).or_insert_with(|| vec![i]);
        }
        counts.entry("extra".into()).or_default();
        counts.retain(|_, n| *n != 2);
        if let Some((word, n)) = counts.iter().max_by_key(|(_, n)| **n).map(|(w, n)| (w.clone(), *n)) {
            step!("most", io.did(format!("{word} {n} {:?}", places.get(&word)), ()).await?);
            counts.remove(&word);
        }
        while let Some(entry) = counts.first_entry() {
            let (word, n) = entry.remove_entry();
            step!("left", io.did(format!("{word} {n}"), ()).await?);
        }
        let mut all: Vec<_> = places.into_iter().collect();
        all.sort();
        Ok(format!("{all:?}"))
    }
}

twin! {
    async fn else_if_let_ladders(io, n: Option<u32>, text: String) -> anyhow::Result<String> {
        let r = if let Some(0) = n {
            "zero".to_owned()
        } else if let Some(big @ 10..) = n {
            step!("big", io.did(format!("big {big}"), ()).await?);
            format!("big {big}")
        } else if let Ok(parsed) = text.parse::<u32>() && parsed > 3 && let Some(n) = n {
            step!("parsed", io.did(format!("parsed {parsed} {n}"), format!("sum {}", parsed + n)).await?)
        } else if text.is_empty() || step!("check", io.did("check", text.len() > 3).await?) {
            if let Some(n) = n { step!("fallback", io.did("fallback", n.to_string()).await?) } else { return Ok("nothing".into()) }
        } else {
            let Some(first) = text.chars().next() else { unreachable!() };
            step!("first", io.did(first, ()).await?);
            first.to_string()
        };
        step!("end", io.did(r.as_str(), ()).await?);
        Ok(r)
    }
}

twin! {
    async fn two_locals_zipped(io, names: Vec<String>, scores: Vec<u32>) -> anyhow::Result<Vec<String>> {
        let mut scores = scores;
        let mut out = vec![];
        for (name, score) in names.iter().zip(&scores) {
            out.push(step!("pair", io.did(format!("{name}={score}"), format!("{name}{score}")).await?));
        }
        for (i, (name, score)) in names.iter().zip(scores.iter()).enumerate().skip(1) {
            if *score < 2 { continue }
            out.push(step!("again", io.did(format!("{i}{name}"), name.to_uppercase()).await?));
        }
        scores.reverse();
        let zipped: Vec<(String, u32)> = names.iter().cloned().zip(scores.iter().copied()).collect();
        for (name, score) in zipped {
            step!("owned", io.did(format!("{name}{score}"), ()).await?);
        }
        for (a, b) in names.into_iter().zip(scores) { out.push(step!("moved", io.did(format!("{a}{b}"), a).await?)); }
        Ok(out)
    }
}

twin! {
    async fn repeated_and_chained(io, n: usize) -> anyhow::Result<String> {
        let mut out = String::new();
        for word in std::iter::repeat_n("tick".to_owned(), n).chain(std::iter::once("tock".to_owned())) {
            out += &step!("tick", io.did(word.clone(), word).await?);
        }
        let dots: String = std::iter::repeat_n('.', n).collect();
        step!("dots", io.did(dots.clone(), ()).await?);
        let odd: Vec<_> = std::iter::successors(Some(1u32), |n| (*n < 50).then_some(n * 3)).collect();
        for n in odd { step!("odd", io.did(n.to_string(), ()).await?); }
        let from: Vec<u32> = std::iter::from_fn({ let mut left = 3; move || { left -= 1; (left > 0).then_some(left) } }).collect();
        step!("from", io.did(format!("{from:?}"), ()).await?);
        Ok(format!("{out}{dots}"))
    }
}

async fn largest<'a, K, V>(pairs: &'a [(K, V)]) -> Option<&'a K>
where
    K: Ord,
    V: PartialOrd + Copy,
{
    pairs.iter().reduce(|a, b| if b.1 > a.1 { b } else { a }).map(|(k, _)| k)
}

twin! {
    async fn generics_with_where_clauses(io, pairs: Vec<(String, u8)>) -> anyhow::Result<String> {
        let name = largest(&pairs).await.context("no pairs")?.clone();
        step!("largest", io.did(name.as_str(), ()).await?);
        let found = step!("find", io.did("find", pairs.iter().position(|(n, _)| *n == name)).await?);
        let same = largest(&pairs).await;
        let is_same = same == Some(&name);
        step!("same", io.did(is_same.to_string(), ()).await?);
        Ok(format!("{name} {found:?}"))
    }
}

twin! {
    async fn iterators_with_state(io, text: String) -> anyhow::Result<Vec<String>> {
        let mut tokens: VecDeque<String> = text.split_whitespace().map(str::to_owned).collect();
        let mut out = Vec::new();
        while let Some(token) = tokens.pop_front() {
            match token.as_str() {
                "skip" => drop(tokens.drain(..1.min(tokens.len()))),
                "say" => {
                    let Some(what) = tokens.pop_front() else { bail!("say what?") };
                    out.push(step!("say", io.did(what.as_str(), what.clone()).await?));
                }
                "peek" if tokens.front().is_some_and(|next| next == "say") => { step!("peek", io.did("peek", ()).await?); }
                other => {
                    let lengths: Vec<usize> = { let mut seen = 0; tokens.iter().map(|t| { seen += t.len(); seen }).collect() };
                    step!("other", io.did(format!("{other} {lengths:?}"), ()).await?);
                }
            }
        }
        Ok(out)
    }
}

twin! {
    async fn state_in_a_struct_with_methods(io, jobs: Vec<u32>) -> anyhow::Result<String> {
        #[derive(Debug, Default, Serialize, Deserialize)]
        struct Budget { left: u32, spent: Vec<u32> }
        impl Budget {
            fn spend(&mut self, n: u32) -> Result<u32, String> {
                self.left = self.left.checked_sub(n).ok_or_else(|| format!("{n} is over {}", self.left))?;
                self.spent.push(n);
                Ok(self.left)
            }
            fn last(&self) -> Option<&u32> { self.spent.last() }
        }
        let mut budget = Budget { left: 10, ..Default::default() };
        for job in &jobs {
            let cost = step!("cost", io.did(format!("cost {job}"), job + 1).await?);
            match budget.spend(cost) {
                Ok(left @ 0..=2) => { step!("warn", io.did(format!("{left} left"), ()).await?); }
                Ok(_) => {}
                Err(why) if budget.spent.is_empty() => bail!(why),
                Err(why) => { step!("over", io.did(why, ()).await?); break }
            }
        }
        let last = budget.last().copied().unwrap_or_default();
        let Budget { left, spent } = budget;
        step!("end", io.did(format!("{left} {last}"), ()).await?);
        Ok(format!("{left} {spent:?}"))
    }
}

twin! {
    async fn debug_and_asserts(io, n: u32) -> anyhow::Result<u32> {
        let doubled = dbg!(n * 2);
        assert!(doubled >= n, "{doubled} of {n}");
        let more = step!("more", io.did(format!("{doubled}"), doubled + 1).await?);
        assert_eq!(more, doubled + 1, "step gave {more}");
        debug_assert_ne!(more, n);
        let list = vec![n; 3];
        let [a, b, _] = list[..] else { unreachable!("{list:?}") };
        step!("list", io.did(format!("{a}{b}"), ()).await?);
        Ok(dbg!(more, a).0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
enum Phase {
    Draft,
    Review { round: u8 },
    Done(bool),
}

impl Phase {
    const FIRST: Self = Self::Draft;

    fn name(self) -> &'static str {
        match self {
            Self::Draft => "draft",
            Self::Review { .. } => "review",
            Self::Done(_) => "done",
        }
    }
}

twin! {
    async fn a_state_machine(io, approvals: Vec<bool>) -> anyhow::Result<Vec<String>> {
        let mut phase = Phase::FIRST;
        let mut approvals = VecDeque::from(approvals);
        let mut path = vec![phase.name()];
        loop {
            phase = match phase {
                Phase::Draft => { step!("draft", io.did("draft", ()).await?); Phase::Review { round: 1 } }
                Phase::Review { round: 3.. } => Phase::Done(false),
                Phase::Review { round } => {
                    let approved = approvals.pop_front().unwrap_or(true);
                    if step!("review", io.did(format!("review {round}"), approved).await?) { Phase::Done(true) } else { Phase::Review { round: round + 1 } }
                }
                Phase::Done(_) => break,
            };
            path.push(phase.name());
        }
        let well = phase == Phase::Done(true);
        step!("end", io.did(format!("{well}"), ()).await?);
        Ok(path.into_iter().map(String::from).collect())
    }
}

twin! {
    async fn shadowed_step_by_step(io, input: String) -> anyhow::Result<String> {
        let input = input.trim();
        let input = input.strip_prefix("do ").unwrap_or(input).to_owned();
        let parts = input.split(',').map(str::trim).map(str::to_owned).collect::<Vec<_>>();
        let input = step!("first", io.did(parts[0].as_str(), parts.len()).await?);
        let parts = parts.into_iter().filter(|p| !p.is_empty()).collect::<BTreeSet<_>>();
        { let input = step!("inner", io.did("inner", input + 1).await?); step!("use", io.did(format!("{input} {}", parts.len()), ()).await?); }
        let joined = parts.iter().map(String::as_str).collect::<Vec<&str>>().concat();
        step!("joined", io.did(joined.as_str(), ()).await?);
        Ok(format!("{input} {joined}"))
    }
}

twin! {
    async fn boxes_and_trees(io, depth: u32) -> anyhow::Result<String> {
        #[derive(Clone, Debug, Serialize, Deserialize)]
        enum Expr { Num(i64), Add(Box<Expr>, Box<Expr>), Neg(Box<Expr>) }
        let mut expr = Expr::Num(1);
        for d in 1..=depth {
            let n = step!("leaf", io.did(format!("leaf {d}"), i64::from(d)).await?);
            expr = match expr {
                e @ Expr::Num(_) => Expr::Add(Box::new(e), Box::new(Expr::Num(n))),
                Expr::Add(a, b) if d % 3 == 0 => Expr::Neg(Box::new(Expr::Add(b, a))),
                other => Expr::Add(Box::new(other), Box::new(Expr::Num(-n))),
            };
        }
        let mut stack = vec![(&expr, 1i64)];
        let mut sum = 0;
        while let Some((e, sign)) = stack.pop() {
            match e { Expr::Num(n) => sum += sign * n, Expr::Add(a, b) => stack.extend([(&**a, sign), (&**b, sign)]), Expr::Neg(a) => stack.push((a, -sign)) }
        }
        step!("sum", io.did(sum.to_string(), ()).await?);
        Ok(format!("{sum} {expr:?}"))
    }
}

twin! {
    async fn results_matched_by_kind(io, inputs: Vec<String>) -> anyhow::Result<(Vec<i32>, Vec<String>)> {
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        for (i, input) in inputs.iter().enumerate() {
            match input.parse::<i32>() {
                Ok(n) if n >= 0 => good.push(step!("good", io.did(format!("{i} {n}"), n).await?)),
                Ok(n) => bad.push(format!("{n} is negative")),
                Err(e) if input.is_empty() => { let why = e.to_string(); bad.push(step!("why", io.did(why.as_str(), why.clone()).await?)) }
                Err(e) => { let e = e.to_string(); step!("bad", io.did(format!("{i} {e}"), ()).await?); bad.push(e) }
            }
        }
        let all = good.iter().map(|n| u32::try_from(*n)).collect::<Result<Vec<_>, _>>()?;
        step!("all", io.did(format!("{all:?}"), ()).await?);
        Ok((good, bad))
    }
}

twin! {
    async fn mutable_places(io, grid: Vec<Vec<u32>>) -> anyhow::Result<Vec<Vec<u32>>> {
        let mut grid = grid;
        let (rows, columns) = (grid.len(), grid[0].len());
        for y in 0..rows {
            for x in 0..columns {
                grid[y][x] += step!("cell", io.did(format!("{x},{y}={}", grid[y][x]), 1).await?);
                let up = y.checked_sub(1).map(|y| grid[y][x]);
                if let Some(up) = up && up > grid[y][x] { grid[y].swap(x, 0) }
            }
            let row = &mut grid[y];
            row.sort_unstable_by(|a, b| b.cmp(a));
            step!("row", io.did(format!("{row:?}"), ()).await?);
            row.push(u32::try_from(y)?);
        }
        if let [first, .., last] = &mut grid[..] { mem::swap(first, last) }
        step!("end", io.did(format!("{grid:?}"), ()).await?);
        Ok(grid)
    }
}

twin! {
    async fn strings_of_strings(io, line: String) -> anyhow::Result<String> {
        let (key, value) = line.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned())).context("no value")?;
        step!("key", io.did(key.as_str(), ()).await?);
        let first = value.lines().next().unwrap_or_default().to_string();
        let upper = value.char_indices().filter(|(i, _)| i % 2 == 0).map(|(_, c)| c.to_ascii_uppercase()).collect::<String>();
        step!("upper", io.did(upper.as_str(), ()).await?);
        let bytes = first.bytes().rev().collect::<Vec<u8>>();
        let back = String::from_utf8(bytes)?;
        step!("back", io.did(back.as_str(), ()).await?);
        let at = value.find(':').map_or(value.len(), |at| at);
        let (head, tail) = value.split_at(at);
        let shown = format!("{head}|{}", tail.trim_start_matches(':'));
        step!("cut", io.did(shown.as_str(), ()).await?);
        Ok(format!("{key} {first} {upper} {back} {shown} {at}"))
    }
}

twin! {
    async fn accumulators(io, list: Vec<f32>) -> anyhow::Result<String> {
        let mut stats = (f32::INFINITY, f32::NEG_INFINITY, 0.0_f64);
        let mut seen = HashSet::new();
        for x in list.iter().copied().chain([0.5]) {
            let x = step!("read", io.did(format!("{x}"), x * 1.5).await?);
            stats = (stats.0.min(x), stats.1.max(x), stats.2 + f64::from(x));
            if !seen.insert(x.to_bits()) { break }
        }
        let (low, high, sum) = stats;
        step!("stats", io.did(format!("{low} {high} {sum}"), ()).await?);
        Ok(format!("{low:.1} {high:.1} {:.2} {}", sum / seen.len() as f64, seen.len()))
    }
}

twin! {
    async fn conditions_with_side_effects(io, n: u32) -> anyhow::Result<String> {
        let mut calls = 0;
        let mut next = || { calls += 1; calls };
        let (a, b) = (next(), next());
        let both = a < b && step!("a", io.did("a", n > 1).await?) && { calls += 10; calls > 11 };
        step!("b", io.did(format!("{both} {calls}"), ()).await?);
        let n = if both { n } else { n + 1 } + if step!("c", io.did("c", calls).await?) > 2 { 100 } else { 0 };
        let flags = [n > 1, both, calls == 12];
        let [x, y, z] = flags;
        step!("d", io.did(format!("{}", u8::from(x) + u8::from(y) + u8::from(z)), ()).await?);
        Ok(format!("{n} {}", flags.iter().filter(|f| **f).count()))
    }
}

twin! {
    async fn outer_and_inner_functions(io, n: u64) -> anyhow::Result<u64> {
        fn gcd(a: u64, b: u64) -> u64 { if b == 0 { a } else { gcd(b, a % b) } }
        const STEP: u64 = 6;
        static NAMES: [&str; 2] = ["even", "odd"];
        type Pair = (u64, &'static str);
        use std::ops::ControlFlow;
        let d = step!("gcd", io.did("gcd", gcd(n, STEP)).await?);
        let pair: Pair = (d, NAMES[usize::try_from(d % 2)?]);
        step!("pair", io.did(format!("{pair:?}"), ()).await?);
        let found = (1..n).try_for_each(|k| if k * k > n { ControlFlow::Break(k) } else { ControlFlow::Continue(()) });
        let root = match found { ControlFlow::Break(k) => k, ControlFlow::Continue(()) => 0 };
        step!("root", io.did(root.to_string(), ()).await?);
        Ok(pair.0 * 1000 + root)
    }
}

twin! {
    async fn deferred_tuples(io, fast: bool) -> anyhow::Result<String> {
        let (model, tokens, cost): (String, u32, f64);
        if fast {
            (model, tokens) = step!("small", io.did("small", ("small".to_owned(), 10)).await?);
            cost = 0.1;
        } else {
            let answer = step!("large", io.did("large", json!({"model": "large", "tokens": 200})).await?);
            (model, tokens) = (answer["model"].as_str().unwrap_or_default().to_owned(), answer["tokens"].as_u64().unwrap_or(0) as u32);
            cost = step!("cost", io.did("cost", f64::from(tokens) * 0.5).await?);
        }
        step!("bill", io.did(format!("{model} {tokens} {cost}"), ()).await?);
        Ok(format!("{model} {}", cost * f64::from(tokens)))
    }
}

twin! {
    async fn a_retry_loop_by_hand(io, fails: u32) -> anyhow::Result<String> {
        let mut attempt = 0u32;
        let mut errors: Vec<String> = vec![];
        let value = loop {
            attempt += 1;
            let outcome: Result<u32, String> = step!("try", io.did(format!("try {attempt}"), if attempt > fails { Ok(attempt) } else { Err(format!("no {attempt}")) }).await?);
            match outcome {
                Ok(value) => break value,
                Err(e) if attempt >= 3 => { errors.push(e); return Err(anyhow!("{}", errors.join("; ")).context("gave up")) }
                Err(e) => errors.push(e),
            }
            let pause = SHORT * 2u32.pow(attempt);
            sleep!(pause.min(Duration::from_millis(2)));
        };
        Ok(format!("{value} {errors:?}"))
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Letter {
    to: String,
    subject: String,
    body: String,
    pages: u32,
}

fn letter(pages: u32) -> Letter {
    Letter { to: "ana".into(), subject: "law".into(), body: "text".into(), pages }
}

twin! {
    async fn slices_of_what_has_no_name(io, n: usize) -> anyhow::Result<String> {
        let mut out = String::new();
        for t in &["p", "q", "r"][n.min(1)..] {
            step!("literals", io.did(*t, ()).await?);
            out.push_str(t);
        }
        for t in ["p", "q", "r"][..n].iter().rev() {
            step!("backwards", io.did(*t, ()).await?);
            out.push_str(t);
        }
        for t in &vec![n, 2, 3][1..] {
            step!("numbers", io.did(t.to_string(), ()).await?);
            out.push_str(&t.to_string());
        }
        for t in &words("a b c d")[n..3] {
            step!("words", io.did(t.clone(), ()).await?);
            out.push_str(t);
        }
        for (i, c) in "abcdef"[n..].chars().enumerate() {
            step!("letters", io.did(format!("{i}{c}"), ()).await?);
            out.push(c);
        }
        Ok(out)
    }
}

twin! {
    async fn fields_one_after_another_in_arms(io, n: u32) -> anyhow::Result<String> {
        let mail = step!("write", io.did("write", letter(n)).await?);
        Ok(match n {
            0 => {
                let to = mail.to;
                step!("to", io.did(to.clone(), ()).await?);
                let subject = mail.subject;
                step!("subject", io.did(subject.clone(), ()).await?);
                let body = mail.body;
                format!("{to}{subject}{body}")
            }
            1 => {
                let to = step!("send", io.did("send", mail.to.len()).await?);
                let subject = step!("count", io.did("count", mail.subject.len()).await?);
                let body = mail.body;
                step!("file", io.did(body.clone(), ()).await?);
                format!("{to}{subject}{body}")
            }
            _ => {
                let subject = mail.subject;
                step!("first the subject", io.did(subject.clone(), ()).await?);
                let body = mail.body;
                step!("then the body", io.did(body.clone(), ()).await?);
                format!("{}{subject}{body}{}", mail.to, mail.pages)
            }
        })
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
enum Post {
    One(Letter),
    Two { first: Letter, second: Option<Letter> },
}

twin! {
    async fn fields_of_what_an_arm_binds(io, post: Post) -> anyhow::Result<String> {
        Ok(match post {
            Post::One(mail) => {
                let to = mail.to;
                step!("to", io.did(to.clone(), ()).await?);
                let subject = mail.subject;
                step!("subject", io.did(subject.clone(), ()).await?);
                step!("body", io.did(mail.body, ()).await?);
                to + &subject
            }
            Post::Two { first, second } => {
                let to = first.to;
                step!("first", io.did(to.clone(), ()).await?);
                let rest = match second {
                    Some(second) => {
                        let subject = second.subject;
                        step!("second", io.did(subject.clone(), ()).await?);
                        let body = second.body;
                        step!("third", io.did(body.clone(), ()).await?);
                        format!("{subject}{body}{}", second.to)
                    }
                    None => "none".to_owned(),
                };
                step!("rest", io.did(rest.clone(), ()).await?);
                format!("{rest}{}", first.body)
            }
        })
    }
}

corpus! {
    closures_over_saved_locals => completes(|| closures_over_saved_locals(vec![("a".into(), 2), ("b".into(), 9)]));
    impl_traits_on_both_sides => completes(|| impl_traits_on_both_sides(vec![1, 2, 3, 4]));
    cows_owned_before_a_step => completes(|| cows_owned_before_a_step(vec!["a b".into(), "c".into()]));
    question_marks_on_options => completes(|| question_marks_on_options(vec![2, 7, 3])), fails("even", || question_marks_on_options(vec![1]));
    labelled_blocks_with_values => completes(|| labelled_blocks_with_values(0)), completes(|| labelled_blocks_with_values(2)), completes(|| labelled_blocks_with_values(3)), completes(|| labelled_blocks_with_values(6));
    guards_that_shadow => completes(|| guards_that_shadow(Some(4), 5)), completes(|| guards_that_shadow(Some(-3), 5)), completes(|| guards_that_shadow(Some(1), 5)), completes(|| guards_that_shadow(None, 5)), completes(|| guards_that_shadow(None, 2));
    async_closures_inside_steps => completes(|| async_closures_inside_steps(vec![1, 2]));
    slice_patterns => completes(|| slice_patterns(words("a b c d"))), completes(|| slice_patterns(words("a b a")));
    const_generics => completes(|| const_generics(vec![1, 2, 3, 4]));
    let_else_chains => completes(|| let_else_chains(json!({"user": {"name": "ada", "age": 36, "city": "Paris"}}))), completes(|| let_else_chains(json!({"user": {"name": "eve", "age": 7}}))), fails("without a name", || let_else_chains(json!({"user": {}})));
    struct_update_syntax => completes(|| struct_update_syntax(words("x y"))), fails("limits", || struct_update_syntax(words("a b c d e")));
    ranges_with_variables => completes(|| ranges_with_variables(1, vec![1, 2, 3, 4, 5]));
    returns_from_nested_loops => completes(|| returns_from_nested_loops(vec![vec![1, 3], vec![2, -1]])), fails("too deep", || returns_from_nested_loops(vec![vec![1, 1], vec![1, 0], vec![1]]));
    stacks_and_queues => completes(|| stacks_and_queues(BTreeMap::from([("root".into(), words("a bb")), ("a".into(), words("c d"))])));
    sorted_then_indexed => completes(|| sorted_then_indexed(vec![("aa".into(), 0.5), ("b".into(), 0.9), ("cc".into(), 0.9)]));
    text_built_bit_by_bit => completes(|| text_built_bit_by_bit(vec![("a".into(), 1), ("bcd".into(), 7)]));
    taken_replaced_and_swapped => completes(|| taken_replaced_and_swapped(vec![1, 2, 4, 6]));
    durations_and_numbers => completes(|| durations_and_numbers(7));
    options_by_reference => completes(|| options_by_reference(Some("ab".into()), Some(3))), completes(|| options_by_reference(None, None));
    tuples_of_vecs => completes(|| tuples_of_vecs(vec![1, 2, 3, 4, 5]));
    chunks_and_windows => completes(|| chunks_and_windows(vec![1, 5, 2, 9, 3, 3, 1]));
    entries_of_maps => completes_hashed(|| entries_of_maps("a bb a ccc".into()));
    else_if_let_ladders => completes(|| else_if_let_ladders(Some(12), "".into())), completes(|| else_if_let_ladders(Some(4), "9".into())), completes(|| else_if_let_ladders(Some(4), "long text".into())), completes(|| else_if_let_ladders(None, "abc".into()));
    two_locals_zipped => completes(|| two_locals_zipped(words("a b c"), vec![1, 2, 3]));
    repeated_and_chained => completes(|| repeated_and_chained(2));
    generics_with_where_clauses => completes(|| generics_with_where_clauses(vec![("a".into(), 1), ("b".into(), 3)])), fails("no pairs", || generics_with_where_clauses(vec![]));
    iterators_with_state => completes(|| iterators_with_state("say a skip b peek say c odd".into())), fails("say what", || iterators_with_state("say a say".into()));
    state_in_a_struct_with_methods => completes(|| state_in_a_struct_with_methods(vec![1, 4, 2, 9])), fails("over", || state_in_a_struct_with_methods(vec![30]));
    debug_and_asserts => completes(|| debug_and_asserts(4));
    a_state_machine => completes(|| a_state_machine(vec![false, true])), completes(|| a_state_machine(vec![false; 5]));
    shadowed_step_by_step => completes(|| shadowed_step_by_step(" do a, b,,a".into()));
    boxes_and_trees => completes(|| boxes_and_trees(4));
    results_matched_by_kind => completes(|| results_matched_by_kind(["1", "-2", "", "x"].map(String::from).into()));
    mutable_places => completes(|| mutable_places(vec![vec![1, 5], vec![9, 2]]));
    strings_of_strings => completes(|| strings_of_strings("key=some:text\nmore".into())), fails("no value", || strings_of_strings("key".into()));
    accumulators => completes_hashed(|| accumulators(vec![1.5, 2.25, 0.5]));
    conditions_with_side_effects => completes(|| conditions_with_side_effects(1)), completes(|| conditions_with_side_effects(2));
    outer_and_inner_functions => completes(|| outer_and_inner_functions(40));
    deferred_tuples => completes(|| deferred_tuples(true)), completes(|| deferred_tuples(false));
    a_retry_loop_by_hand => completes(|| a_retry_loop_by_hand(1)), fails("gave up", || a_retry_loop_by_hand(5));
    slices_of_what_has_no_name => completes(|| slices_of_what_has_no_name(0)), completes(|| slices_of_what_has_no_name(2));
    fields_one_after_another_in_arms => completes(|| fields_one_after_another_in_arms(0)), completes(|| fields_one_after_another_in_arms(1)), completes(|| fields_one_after_another_in_arms(2));
    fields_of_what_an_arm_binds => completes(|| fields_of_what_an_arm_binds(Post::One(letter(1)))), completes(|| fields_of_what_an_arm_binds(Post::Two { first: letter(2), second: Some(letter(3)) })), completes(|| fields_of_what_an_arm_binds(Post::Two { first: letter(2), second: None }));
}
