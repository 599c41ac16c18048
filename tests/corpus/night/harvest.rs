//! A farm's assistant: weather, deliveries and accounts, written by people who like short code.
use std::fmt::Write as _;

use crate::prelude::*;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
struct Field(u32);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Crop<const N: usize = 2> {
    r#type: String,
    #[serde(with = "as_list")]
    yields: [u32; N],
    price: f64,
}

mod as_list {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer, const N: usize>(list: &[u32; N], to: S) -> Result<S::Ok, S::Error> {
        list.as_slice().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>, const N: usize>(from: D) -> Result<[u32; N], D::Error> {
        let list = Vec::<u32>::deserialize(from)?;
        list.try_into().map_err(|_| serde::de::Error::custom("another length"))
    }
}

struct View<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> View<'a> {
    fn word(&mut self) -> Option<&'a str> {
        let rest = self.text.get(self.at..)?.trim_start();
        let word = rest.split(' ').next().filter(|word| !word.is_empty())?;
        self.at = self.text.len() - rest.len() + word.len();
        Some(word)
    }
}

fn each(items: impl IntoIterator<Item = impl Into<u32>>, mut act: impl FnMut(u32)) {
    items.into_iter().for_each(|item| act(item.into()));
}

twin! {
    async fn ranges_that_are_changed_inside(io, low: u32, high: u32) -> anyhow::Result<Vec<u32>> {
        let (mut low, mut high) = (low, high);
        let mut step = 2;
        let mut seen = vec![];
        for n in (low..high).rev().step_by(step) {
            seen.push(step!("n", io.did(format!("{n} of {low}..{high}"), n).await?));
            low += 1;
            high -= 1;
            step = 1;
        }
        for n in low..=high {
            high += 1;
            seen.push(step!("m", io.did(format!("m {n}"), n * step as u32).await?));
        }
        for (at, letter) in ('a'..='d').enumerate().skip(step) {
            step += at;
            seen.push(step!("letter", io.did(format!("{letter}{at}"), letter as u32).await?));
        }
        Ok(seen)
    }
}

twin! {
    async fn split_by_what_changes(io, text: String) -> anyhow::Result<Vec<String>> {
        let mut separator = String::from(", ");
        let mut limit = 3;
        let mut out = vec![];
        for part in text.splitn(limit, separator.as_str()) {
            let note = step!("part", io.did(format!("part {part:?}"), part.len()).await?);
            out.push(format!("{part}:{note}"));
            limit -= 1;
        }
        separator.clear();
        separator.push(';');
        let mut from = 1;
        for part in text[from..].split(&separator) {
            from += part.len();
            out.push(step!("more", io.did(format!("more {from}"), part.to_uppercase()).await?));
        }
        Ok(out)
    }
}

twin! {
    async fn rows_by_a_moving_index(io, grid: Vec<Vec<u32>>) -> anyhow::Result<Vec<u32>> {
        let mut row = 0;
        let mut path = Vec::new();
        while row < grid.len() {
            for cell in &grid[row] {
                row += 1;
                path.push(step!("cell", io.did(format!("cell {cell} {row}"), cell + row as u32).await?));
            }
            for [a, b] in grid.iter().flatten().skip(row).zip(grid[0].iter()).map(|(a, b)| [*a, *b]).collect::<Vec<_>>() {
                row += (a + b) as usize;
                step!("pair", io.did(format!("pair {a} {b}"), ()).await?);
            }
            row += 1;
        }
        Ok(path)
    }
}

twin! {
    async fn queues_drained_in_rounds(io, jobs: Vec<u32>) -> anyhow::Result<(Vec<u32>, usize, usize)> {
        let mut queue: VecDeque<u32> = jobs.into();
        let mut spare = vec![7u8, 8, 9];
        let mut done = Vec::new();
        let mut rounds = 0;
        while !queue.is_empty() && rounds < 3 {
            let mut next = VecDeque::new();
            for job in queue.drain(..) {
                let left = step!("work", io.did(format!("work {job}"), job / 2).await?);
                if left == 9 {
                    break;
                }
                if left > 0 { next.push_back(left) } else { done.push(job) }
            }
            done.push(queue.len() as u32);
            queue = next;
            rounds += 1;
        }
        for byte in spare.drain(1..) {
            done.push(step!("byte", io.did(format!("byte {byte}"), u32::from(byte)).await?));
        }
        Ok((done, queue.len(), spare.len()))
    }
}

twin! {
    async fn items_of_all_kinds_by_value(io, a: Vec<u32>, b: Option<String>) -> anyhow::Result<String> {
        let mut out = String::new();
        for ((at, n), flag) in a.clone().into_iter().rev().enumerate().zip([true, false, true]) {
            write!(out, "{at}{n}{flag:1.1} ")?;
            step!("zip", io.did(&out[..], ()).await?);
        }
        for text in b {
            out += &step!("opt", io.did("opt", text + "!").await?);
        }
        for n in a.iter().copied().chain([100, 200]).skip(1).take(3) {
            let n = step!("chain", io.did(format!("chain {n}"), n + 1).await?);
            let _ = write!(&mut out, "{n:#06x};");
        }
        let pairs = HashMap::from([("k".to_owned(), a.len())]);
        for (key, value) in pairs {
            step!("pair", io.did(format!("{key}={value}"), ()).await?);
            out.push_str(&key);
        }
        for n in Ok::<_, String>(a).map_or_else(|_| vec![], |list| list) {
            out = step!("own", io.did(format!("own {n}"), format!("{out}{n}")).await?);
        }
        Ok(out)
    }
}

twin! {
    async fn assigned_apart_and_together(io, start: (u32, u32)) -> anyhow::Result<[u32; 4]> {
        let (mut a, b): (u32, _) = start;
        let mut b = b;
        let mut rest;
        (a, b) = (b, a + b);
        [a, .., rest] = [step!("first", io.did("first", a).await?), 0, b * 2];
        let crop = Crop { r#type: "rye".into(), yields: [a, rest], price: 1.5 };
        Crop { yields: [_, b], .. } = crop;
        _ = step!("drop", io.did(format!("drop {b}"), b).await?);
        (a, _) = step!("pair", io.did("pair", (a + 1, "x".to_owned())).await?);
        rest += { rest -= 1; a };
        Ok([a, b, rest, crop.yields[0]])
    }
}

twin! {
    async fn references_of_references(io, names: Vec<String>, at: usize) -> anyhow::Result<String> {
        let at = &at;
        let name = &names[*at];
        let asked = step!("ask", io.did(format!("ask {name} {at}"), 3usize).await?);
        let (again, &place) = (name, at);
        let last = &names[names.len() - 1];
        let shown = step!("show", io.did(format!("show {again} {place} {last}"), name.len() + *at).await?);
        let ref tail = names[1..];
        let [ref first, ref rest @ ..] = *names else { bail!("none") };
        step!("end", io.did(format!("{first} {} {}", rest.len(), tail.len()), ()).await?);
        Ok(format!("{asked}{shown}{first}{}", rest.concat()))
    }
}

twin! {
    async fn values_that_json_loses(io, field: Field) -> anyhow::Result<String> {
        let deep: Option<Option<Field>> = Some(None);
        let none: Result<Option<()>, String> = Ok(Some(()));
        let (big, small) = (u128::MAX - u128::from(field.0), i128::MIN + 1);
        let (odd, inf) = (f64::NAN, -0.0f64);
        let by_field = BTreeMap::from([(field, vec![b'a', 0xff]), (Field(0), vec![])]);
        let chars = ['\u{1F33E}', '"', '\\', '\0'];
        let wait = Duration::new(3, 7);
        step!("keep", io.did(format!("{deep:?} {none:?}"), ()).await?);
        let more = step!("more", io.did("more", (deep, Some(wait), Field::default())).await?);
        Ok(format!("{deep:?} {none:?} {big} {small} {odd:?} {inf:?} {by_field:?} {chars:?} {more:?}"))
    }
}

twin! {
    async fn bodies_of_steps_that_change_locals(io, yields: Vec<u32>) -> anyhow::Result<(u32, Vec<String>, usize)> {
        let mut total = 0;
        let mut log = Vec::new();
        let mut retries = 0usize;
        for amount in &yields {
            let kept = step!("weigh", {
                total += amount;
                let mut note = |text: String| log.push(text);
                note(format!("{amount}"));
                if amount % 2 == 0 {
                    note("even".to_owned());
                }
                io.did(format!("weigh {amount}"), ()).await?;
                retries += 1;
                total / 2
            });
            total -= kept;
        }
        each(yields.iter().copied(), |n| total += n);
        step!("close", io.did(format!("close {total}"), ()).await?);
        Ok((total, log, retries))
    }
}

twin! {
    async fn items_inside_the_body(io, raw: String) -> anyhow::Result<(Vec<String>, u32)> {
        const MOST: usize = 3;
        static GREETING: &str = "hello";
        #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
        enum Kind { Word, Number(u32) }
        use Kind::{Number, Word};
        fn kind_of(text: &str) -> Kind { text.parse().map_or(Word, Number) }
        struct Sum<'a>(&'a mut u32);
        impl Drop for Sum<'_> { fn drop(&mut self) { *self.0 += 100; } }

        let mut words = Vec::with_capacity(MOST);
        let mut sum = 0;
        let mut view = View { text: &raw, at: 0 };
        let list: Vec<String> = std::iter::from_fn(|| view.word()).map(str::to_owned).collect();
        for (at, word) in list.iter().enumerate().take(MOST) {
            let kind = kind_of(word);
            let kept = step!("word", io.did(format!("{GREETING} {at} {kind:?}"), kind).await?);
            if let Number(n) = kept {
                let held = Sum(&mut sum);
                *held.0 += n;
                continue;
            }
            words.push(word.clone());
        }
        step!("end", io.did(format!("end {sum}"), ()).await?);
        Ok((words, sum))
    }
}

twin! {
    async fn conditions_in_chains(io, first: Option<u32>, second: Option<u32>) -> anyhow::Result<u32> {
        let mut n = 0;
        if let Some(a) = first && a > 2 && let Some(b) = step!("second", io.did("second", second).await?) && b != a {
            n += step!("both", io.did(format!("both {a} {b}"), a * b).await?);
        } else if let (Some(a), None) | (None, Some(a)) = (first, second) {
            n += step!("one", io.did(format!("one {a}"), a).await?);
        } else if first.is_none_or(|a| a < 2) || step!("flag", io.did("flag", true).await?) {
            n = 7;
        }
        while let Some(m) = n.checked_sub(3) && step!("go", io.did(format!("go {m}"), m % 2 == 0 || m > 9).await?) {
            n = m;
            if n > 20 { break }
        }
        let word = match n { 0 => "none", 1..=4 if n % 2 == 1 => "odd", 1..=4 => "few", _ => "many" };
        step!("word", io.did(word, ()).await?);
        Ok(n + word.len() as u32)
    }
}

twin! {
    async fn formats_with_everything(io, name: String, n: i32) -> anyhow::Result<String> {
        let (width, precision) = (9, 2);
        let rate = 2.0f64 / 3.0;
        let line = format!("{{{name:>width$}|{rate:<+width$.precision$}|{n:^+0width$}|{:.*}|{0:?}|{other:.0$}}}", 3, rate, other = rate);
        let width = width + 2;
        step!("one", io.did(format!("{line}{width}"), ()).await?);
        let name = format!("{name:?}");
        let text = format!("{name:·^width$} {:>1$} {n:#010b} {n:e}", name.len(), width, n = n.unsigned_abs());
        let width = step!("two", io.did(text.clone(), width - 4).await?);
        let shown = format_args!("{name:<width$}").to_string();
        let text = [text, shown, format!("{:>width$}", n), String::from(concat!("a", 1, true)), stringify!(name + width).into()].join("/");
        step!("three", io.did(format!("{text:.precision$}"), ()).await?);
        Ok(text)
    }
}

twin! {
    async fn closures_made_and_remade(io, rates: Vec<u32>) -> anyhow::Result<Vec<u32>> {
        let base = 10;
        let scale = |n: u32| n * base;
        let twice = |n| scale(scale(n));
        let factor = step!("factor", io.did("factor", 3).await?);
        let table = [("a", factor), ("b", factor + 1)];
        let pick = |name: &str| table.iter().find(|(n, _)| *n == name).map(|(_, v)| *v);
        let mut out = vec![];
        for rate in rates {
            let shift = move |n: u32| n + rate;
            let a = step!("a", io.did(format!("a {rate}"), shift(twice(1))).await?);
            let b = pick(if a % 2 == 0 { "a" } else { "b" }).unwrap_or_default();
            let c = step!("c", io.did(format!("c {b}"), shift(b)).await?);
            out.extend([a, b, c].map(|n| shift(n)));
        }
        Ok(out)
    }
}

twin! {
    async fn async_blocks_without_steps(io, urls: Vec<String>) -> anyhow::Result<Vec<usize>> {
        let fetch = async |url: &str| io.did(format!("get {url}"), url.len()).await;
        let mut sizes = vec![];
        for pair in urls.chunks(2) {
            let both = async {
                let mut sum = 0;
                for url in pair {
                    sum += fetch(url).await?;
                }
                anyhow::Ok(sum)
            };
            sizes.push(step!("both", both.await?));
        }
        let (first, last) = step!("ends", {
            let first = async { fetch(&urls[0]).await };
            let last = async { fetch(urls.last().context("none")?).await };
            (first.await?, last.await?)
        });
        sizes.extend([first, last]);
        let ready = std::future::ready(sizes.len()).await;
        sizes.push(step!("ready", io.did(format!("ready {ready}"), ready).await?));
        Ok(sizes)
    }
}

twin! {
    async fn ends_of_every_kind(io, mode: u32) -> anyhow::Result<String> {
        let label = loop {
            let asked = step!("mode", io.did("mode", mode).await?);
            break match asked {
                0 => return Ok("zero".into()),
                1 => "one",
                n if n > 90 => bail!("{n} is out of range"),
                _ => {
                    let Some(rest) = asked.checked_sub(2) else { unreachable!() };
                    if rest == 0 { "two" } else { break "more" }
                }
            };
        };
        let size = { step!("size", io.did(format!("size {label}"), label.len()).await?) };
        Ok(if size > 3 { format!("{label}!") } else { label.to_owned() })
    }
}

twin! {
    async fn closures_over_items_of_loops(io, urls: Vec<String>, rates: BTreeMap<String, u32>) -> anyhow::Result<String> {
        let get = async |what: &str, n: u32| io.did(format!("get {what}"), n).await;
        let mut out = String::new();
        for (at, url) in urls.iter().enumerate() {
            let label = |s: &str| format!("{at} {url} {s}");
            let more = move |n: usize| n + at + url.len();
            let first = step!("first", get(&label("a"), 3).await?);
            out += &label("then");
            let second = step!("second", get(&label(&out), more(1) as u32).await?);
            out += &format!("{first}{second}{}", more(0));
        }
        for (name, rate) in &rates {
            let scaled = |n: u32| n * rate + name.len() as u32;
            let asked = step!("rate", get(name, scaled(1)).await?);
            out += &format!("{asked}/{}", scaled(asked));
        }
        let text = out.clone();
        let shout = move || text.to_uppercase();
        step!("end", get("end", out.len() as u32).await?);
        Ok(shout() + &out)
    }
}

twin! {
    async fn closures_over_what_comes_from_changing_locals(io, text: String) -> anyhow::Result<Vec<usize>> {
        let mut queue = vec![text.len()];
        queue.push(3);
        let mut out = vec![];
        for n in &queue {
            let more = |k: usize| n + k;
            let also = move |k: usize| n * k;
            let asked = step!("n", io.did(format!("n {}", more(1)), 2).await?);
            out.push(more(asked) + also(asked));
        }
        let mut letters = text;
        letters.push('!');
        for letter in letters.chars().take(2) {
            let code = move |k: usize| letter as usize + k;
            let asked = step!("letter", io.did(format!("letter {}", code(1)), 2).await?);
            out.push(code(asked));
        }
        let table = BTreeMap::from([(letters.clone(), queue.len())]);
        let look = |name: &str| table.get(name).copied().unwrap_or_default();
        let asked = step!("look", io.did(format!("look {}", look("a")), 2).await?);
        out.push(look(&letters) + asked);
        Ok(out)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Delivery {
    kilos: u32,
    from: String,
    crops: Vec<Field>,
}

twin! {
    async fn closures_that_capture_fields(io, delivery: Delivery) -> anyhow::Result<String> {
        let kilos = move |n: u32| n + delivery.kilos;
        let first = step!("first", io.did(format!("first {}", kilos(1)), 2).await?);
        let label = move |n: u32| format!("{}-{n}", delivery.from);
        let twice = || delivery.crops.len() * 2;
        let second = step!("second", io.did(label(kilos(first)), twice()).await?);
        let sum = kilos(0);
        let third = step!("third", io.did(label(sum), twice()).await?);
        Ok(format!("{} {second} {third} {sum}", label(2)))
    }
}

corpus! {
    ranges_that_are_changed_inside => completes(|| ranges_that_are_changed_inside(2, 9));
    split_by_what_changes => completes(|| split_by_what_changes("a, b, c, d;e".into()));
    rows_by_a_moving_index => completes(|| rows_by_a_moving_index(vec![vec![1, 2], vec![3], vec![4, 5, 6]]));
    queues_drained_in_rounds => completes(|| queues_drained_in_rounds(vec![1, 4, 19, 2])), completes(|| queues_drained_in_rounds(vec![1, 4, 2]));
    items_of_all_kinds_by_value => completes(|| items_of_all_kinds_by_value(vec![3, 1, 2], Some("o".into())));
    assigned_apart_and_together => completes(|| assigned_apart_and_together((3, 5)));
    references_of_references => completes(|| references_of_references(["ab", "c", "def"].map(String::from).into(), 1));
    values_that_json_loses => completes(|| values_that_json_loses(Field(4)));
    bodies_of_steps_that_change_locals => completes(|| bodies_of_steps_that_change_locals(vec![3, 4, 9]));
    items_inside_the_body => completes(|| items_inside_the_body("three 4 five 6".into()));
    conditions_in_chains => completes(|| conditions_in_chains(Some(5), Some(4))), completes(|| conditions_in_chains(None, Some(8))), completes(|| conditions_in_chains(Some(2), Some(1)));
    formats_with_everything => completes(|| formats_with_everything("rye".into(), 42));
    closures_made_and_remade => completes(|| closures_made_and_remade(vec![1, 2]));
    closures_over_items_of_loops => completes(|| closures_over_items_of_loops(["ab", "c"].map(String::from).into(), [("day".to_owned(), 3), ("night".to_owned(), 5)].into()));
    closures_over_what_comes_from_changing_locals => completes(|| closures_over_what_comes_from_changing_locals("abc".into()));
    closures_that_capture_fields => completes(|| closures_that_capture_fields(Delivery { kilos: 4, from: "mill".into(), crops: vec![Field(1)] }));
    async_blocks_without_steps => completes(|| async_blocks_without_steps(["a", "bcd", "ef"].map(String::from).into()));
    ends_of_every_kind => completes(|| ends_of_every_kind(1)), completes(|| ends_of_every_kind(2)), fails("out of range", || ends_of_every_kind(91));
}
