//! Ways of writing that are ordinary in Rust and that a resume has to get right.
use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use crate::prelude::*;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Node {
    name: String,
    children: Vec<Node>,
    cost: Option<u32>,
}

impl Node {
    fn leaf(name: &str, cost: u32) -> Self {
        Node { name: name.into(), cost: Some(cost), ..Node::default() }
    }

    fn total(&self) -> u32 {
        self.cost.unwrap_or(0) + self.children.iter().map(Node::total).sum::<u32>()
    }
}

fn tree() -> Node {
    Node {
        name: "root".into(),
        cost: None,
        children: vec![Node::leaf("a", 3), Node { name: "b".into(), children: vec![Node::leaf("c", 5)], cost: None }],
    }
}

twin! {
    async fn walk_a_tree_with_a_stack(io, root: Node) -> anyhow::Result<Vec<String>> {
        let mut stack = vec![(root, 0usize)];
        let mut lines = Vec::new();
        while let Some((Node { name, children, cost }, depth)) = stack.pop() {
            let cost = match cost {
                Some(cost) => cost,
                None if children.is_empty() => continue,
                None => step!("estimate", io.did(format!("estimate {name}"), children.len() as u32).await?),
            };
            lines.push(format!("{:indent$}{name}={cost}", "", indent = depth * 2));
            stack.extend(children.into_iter().rev().map(|child| (child, depth + 1)));
            step!("visit", io.did(format!("visit {name}"), ()).await?);
        }
        Ok(lines)
    }
}

twin! {
    async fn nested_loops_over_borrows(io, root: Node) -> anyhow::Result<u32> {
        let mut sum = 0;
        for child in &root.children {
            let label = &child.name;
            for grandchild in child.children.iter().rev() {
                let Node { name, cost: Some(cost), .. } = grandchild else { continue };
                sum += step!("cost", io.did(format!("{label}/{name}"), *cost).await?);
            }
            if let Some(cost) = &child.cost {
                let seen = step!("own", io.did(format!("{label} {cost}"), cost + 1).await?);
                sum += seen * cost;
            }
        }
        Ok(sum + root.total())
    }
}

twin! {
    async fn a_mutable_borrow_in_hand(io, words: Vec<String>) -> anyhow::Result<Node> {
        let mut root = Node::default();
        for word in words {
            let target = &mut root.children;
            let position = target.iter().position(|n| n.name == word);
            match position {
                Some(i) => *target[i].cost.get_or_insert(0) += 1,
                None => {
                    let cost = step!("price", io.did(format!("price {word}"), word.len() as u32).await?);
                    target.push(Node { cost: Some(cost), name: word, children: vec![] });
                }
            }
            let name = &mut root.name;
            name.push('.');
            step!("saved", io.did("saved", ()).await?);
            name.push(',');
        }
        Ok(root)
    }
}

twin! {
    async fn shadowing_all_the_way(io, input: String) -> anyhow::Result<String> {
        let value = input.trim();
        let value = value.split(',').map(|v| v.trim().to_owned()).collect::<Vec<_>>();
        let value = step!("first", io.did(format!("{value:?}"), value).await?);
        let value: Vec<u32> = value.iter().map(|v| v.parse()).collect::<Result<_, _>>().context("numbers")?;
        let total = { let total: u32 = value.iter().sum(); step!("total", io.did("total", total).await?) };
        let value = if total > 10 {
            let value = value.into_iter().max().unwrap_or_default();
            step!("max", io.did(format!("max {value}"), value).await?)
        } else {
            total
        };
        for value in 0..value.min(2) {
            let value = value * 10;
            step!("loop", io.did(format!("{value}"), ()).await?);
        }
        Ok(format!("{value} of {total}"))
    }
}

twin! {
    async fn tuples_swapped_and_assigned(io, n: u32) -> anyhow::Result<(u64, u64)> {
        let (mut a, mut b) = (0u64, 1u64);
        let mut pair: (u32, Option<String>) = (n, None);
        while pair.0 > 0 {
            (a, b) = (b, a + b);
            pair.0 -= 1;
            if b % 2 == 0 {
                pair.1 = Some(step!("even", io.did(format!("even {b}"), format!("{b}")).await?));
            }
            let (ref left, _) = pair;
            step!("tick", io.did(format!("{left} left"), ()).await?);
        }
        let length = pair.1.take().map_or(0, |s| s.len() as u64);
        Ok((a, b + length))
    }
}

fn pick<T: Clone, F: Fn(&T) -> bool>(items: &[T], wanted: F) -> Option<T> {
    items.iter().find(|item| wanted(item)).cloned()
}

fn shout(text: &str) -> Cow<'_, str> {
    if text.ends_with('!') { Cow::Borrowed(text) } else { Cow::Owned(format!("{text}!")) }
}

twin! {
    async fn generic_helpers_and_cows(io, words: Vec<String>) -> anyhow::Result<String> {
        let long = pick(&words, |w| w.len() > 3).unwrap_or_else(|| String::from("none"));
        let loud = shout(&long).into_owned();
        step!("say", io.did(loud.clone(), ()).await?);
        let numbers: Arc<[u32]> = words.iter().map(|w| w.len() as u32).collect();
        let even = pick(&numbers, |n| n % 2 == 0);
        drop(numbers);
        let answer = match even {
            Some(n @ 0..=2) => format!("few {n}"),
            Some(n) => step!("many", io.did(format!("many {n}"), format!("many {n}")).await?),
            None => return Ok(loud),
        };
        Ok(answer + &loud)
    }
}

twin! {
    async fn reference_counted_between_steps(io, names: Vec<String>) -> anyhow::Result<usize> {
        let counted = {
            let shared = Rc::new(std::cell::RefCell::new(Vec::new()));
            let writer = Rc::clone(&shared);
            names.iter().for_each(|n| writer.borrow_mut().push(n.len()));
            drop(writer);
            Rc::try_unwrap(shared).map_or(0, |cell| cell.into_inner().into_iter().sum::<usize>())
        };
        let doubled = step!("double", io.did(format!("double {counted}"), counted * 2).await?);
        let parts: Vec<String> = names.iter().map(|n| format!("{n}{doubled}")).collect();
        step!("parts", io.did(parts.join("+"), ()).await?);
        Ok(doubled + parts.len())
    }
}

twin! {
    async fn options_all_the_way_down(io, config: BTreeMap<String, Value>) -> anyhow::Result<String> {
        let host = config.get("host").and_then(|v| v.as_str()).map(str::to_owned);
        let port = config.get("port").and_then(Value::as_u64).and_then(|p| u16::try_from(p).ok()).filter(|p| *p != 0);
        let address = match (&host, port) {
            (Some(host), Some(port)) => format!("{host}:{port}"),
            (Some(host), None) => {
                let found = step!("port", io.did(format!("scan {host}"), 80u16).await?);
                format!("{}:{found}", host)
            }
            (None, port) => {
                let name = step!("host", io.did("look for a host", Some("localhost".to_string())).await?).context("no host")?;
                port.map_or(name.clone(), |p| format!("{name}:{p}"))
            }
        };
        let retries = config.get("retries").map(|v| v.as_u64().ok_or_else(|| anyhow!("{v} retries"))).transpose()?.unwrap_or(1);
        for _ in 0..retries {
            if step!("connect", io.did(format!("connect {address}"), retries > 2).await?) {
                break;
            }
        }
        Ok(address)
    }
}

twin! {
    async fn results_collected_and_combined(io, inputs: Vec<String>) -> anyhow::Result<String> {
        let parsed: Result<Vec<i32>, _> = inputs.iter().map(|s| s.parse::<i32>()).collect();
        let numbers = match parsed {
            Ok(numbers) => numbers,
            Err(error) => {
                let text = error.to_string();
                let fixed: Vec<i32> = step!("fix", io.did(format!("fix: {text}"), inputs.iter().map(|s| s.len() as i32).collect()).await?);
                fixed
            }
        };
        let checked = numbers.iter().try_fold(0i32, |sum, n| sum.checked_add(*n)).ok_or(numbers.len());
        let outcome: Result<i32, String> = checked.map_err(|n| format!("overflow of {n}")).and_then(|sum| if sum > 0 { Ok(sum) } else { Err(format!("{sum}")) });
        step!("note", io.did(format!("{outcome:?}"), ()).await?);
        step!("count", io.did(format!("{} numbers", numbers.len()), ()).await?);
        let sum = outcome.clone().or_else(|text| text.trim_start_matches('-').parse())?;
        Ok(format!("{sum} {}", outcome.is_ok()))
    }
}

twin! {
    async fn steps_in_every_position(io, n: u32) -> anyhow::Result<Vec<u32>> {
        let mut out = Vec::from([step!("one", io.did("one", n).await?), step!("two", io.did("two", n + 1).await?)]);
        out.push(step!("three", io.did("three", out.len() as u32).await?));
        if step!("four", io.did("four", n).await?) > 2 && step!("five", io.did("five", true).await?) || out.is_empty() {
            out.extend([step!("six", io.did("six", 6).await?); 2]);
        }
        let largest = out.iter().copied().max().unwrap_or(0).max(step!("seven", io.did("seven", 7).await?));
        out[0] = step!("eight", io.did("eight", largest * 2).await?);
        while step!("nine", io.did("nine", out.len()).await?) < 7 {
            out.push(match step!("ten", io.did("ten", out.len() % 3).await?) {
                0 => 100,
                k if k == 1 => step!("eleven", io.did("eleven", 11).await?),
                _ => continue_with(&out),
            });
        }
        Ok(out)
    }
}

fn continue_with(out: &[u32]) -> u32 {
    out.last().copied().unwrap_or_default() + 1
}

twin! {
    async fn late_initialisation(io, mode: u8) -> anyhow::Result<String> {
        let name;
        let retries;
        let limit: u32;
        if mode > 1 {
            name = step!("name", io.did("name", "fancy".to_string()).await?);
            retries = 3;
        } else {
            name = "plain".into();
            retries = step!("retries", io.did("retries", 1).await?);
        }
        match mode {
            0 => limit = 10,
            m => {
                let base = step!("base", io.did("base", u32::from(m)).await?);
                limit = base * 100;
            }
        }
        let used;
        loop {
            let now = step!("use", io.did(format!("{name} {retries}"), retries * 4).await?);
            if now <= limit {
                used = now;
                break;
            }
            return Ok(format!("{name} is over {limit}"));
        }
        Ok(format!("{name} {used}/{limit}"))
    }
}

corpus! {
    walk_a_tree_with_a_stack => completes(|| walk_a_tree_with_a_stack(tree()));
    nested_loops_over_borrows => completes(|| nested_loops_over_borrows(tree()));
    a_mutable_borrow_in_hand => completes(|| a_mutable_borrow_in_hand(["a", "bb", "a"].map(String::from).into()));
    shadowing_all_the_way => completes(|| shadowing_all_the_way(" 4, 5,6".into())), completes(|| shadowing_all_the_way("1,2".into())), fails("numbers", || shadowing_all_the_way("x".into()));
    tuples_swapped_and_assigned => completes(|| tuples_swapped_and_assigned(6));
    generic_helpers_and_cows => completes(|| generic_helpers_and_cows(["abc", "abcdef"].map(String::from).into()));
    reference_counted_between_steps => completes(|| reference_counted_between_steps(["abc", "abcdef"].map(String::from).into()));
    options_all_the_way_down => completes(|| options_all_the_way_down([("host".to_owned(), json!("h")), ("retries".into(), json!(2))].into())),
        completes(|| options_all_the_way_down([("port".to_owned(), json!(99)), ("retries".into(), json!(5))].into())),
        fails(" retries", || options_all_the_way_down([("host".to_owned(), json!("h")), ("retries".into(), json!("x"))].into()));
    results_collected_and_combined => completes(|| results_collected_and_combined(["1", "x"].map(String::from).into())), completes(|| results_collected_and_combined(["1", "-2"].map(String::from).into()));
    steps_in_every_position => completes(|| steps_in_every_position(1)), completes(|| steps_in_every_position(5));
    late_initialisation => completes(|| late_initialisation(0)), completes(|| late_initialisation(2));
}
