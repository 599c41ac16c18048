//! Workflows as they come out of other engines: graphs with edges by state, sagas, child workflows, reducers over steps.
use crate::prelude::*;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct State {
    messages: Vec<String>,
    plan: Option<Vec<String>>,
    tries: u32,
    done: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Edge {
    Ask { model: String, depth: u32 },
    Tool(String, u32),
    Reflect,
    End(Result<u32, String>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
enum Rank {
    Low,
    High,
}

fn longest<'a>(left: &'a str, right: &'a str) -> &'a str {
    if left.len() >= right.len() { left } else { right }
}

fn odd_ones(list: &[u32]) -> impl Iterator<Item = u32> + '_ {
    list.iter().copied().filter(|n| n % 2 == 1)
}

fn sum_of<const N: usize>(parts: [u32; N]) -> u32 {
    parts.into_iter().sum()
}

/// A step whose name and answer are the caller's.
macro_rules! asked {
    ($io:ident, $what:expr, $value:expr) => {
        $io.did($what, $value).await
    };
}

twin! {
    async fn graph_of_edges(io, question: String) -> anyhow::Result<State> {
        let mut state = State { messages: vec![question], ..State::default() };
        let mut edge = Edge::Ask { model: "small".into(), depth: 0 };
        let outcome = 'graph: loop {
            edge = match edge {
                Edge::Ask { ref model, depth } if depth > 2 => Edge::End(Err(format!("{model} gives up"))),
                Edge::Ask { model, depth } => {
                    let answer = step!("ask", io.did(format!("{model} {depth}"), depth + 2).await?);
                    state.messages.push(format!("{model}: {answer}"));
                    match (answer, state.messages.as_slice()) {
                        (n @ 3.., [first, .., last]) if first != last => Edge::Tool(last.clone(), n),
                        (_, [_, _]) => Edge::Ask { model: model + "-large", depth: depth + 1 },
                        _ => Edge::Reflect,
                    }
                }
                Edge::Tool(call, n) => {
                    let Ok(found) = step!("tool", io.did(format!("tool {call}"), n).await.map_err(|e| e.to_string())) else { break 'graph Err("no tool".to_owned()) };
                    state = State { tries: found, plan: Some(vec![call]), ..state };
                    Edge::Reflect
                }
                Edge::Reflect if state.tries > 0 => {
                    state.done = step!("reflect", io.did("reflect", true).await?);
                    Edge::End(Ok(state.tries))
                }
                Edge::Reflect => Edge::Ask { model: "again".into(), depth: 1 },
                Edge::End(outcome) => break outcome,
            };
        };
        state.messages.push(format!("{outcome:?}"));
        Ok(state)
    }
}

twin! {
    async fn saga_with_compensations(io, wanted: Vec<String>, broken: u32) -> anyhow::Result<String> {
        let mut undo: Vec<(String, u32)> = Vec::with_capacity(wanted.len());
        let failed = 'book: {
            for (at, what) in wanted.iter().enumerate() {
                let booked = step!("book", io.did(format!("book {what}"), at as u32 + 1).await?);
                if booked == broken {
                    break 'book Some(what.clone());
                }
                undo.push((what.clone(), booked));
            }
            None
        };
        let Some(failed) = failed else { return Ok(format!("{} booked", undo.len())) };
        let mut text = String::new();
        while let Some((what, id)) = undo.pop() {
            let note = step!("undo", io.did(format!("undo {what} {id}"), id * 10).await?);
            text.push_str(&format!("{what}={note};"));
        }
        Ok(format!("{failed} failed: {text}"))
    }
}

twin! {
    async fn child_workflows_in_arms(io, kinds: Vec<u32>) -> anyhow::Result<Vec<String>> {
        let mut out = Vec::new();
        for kind in kinds {
            let text = match kind {
                0 => "nothing".to_owned(),
                1 => match call!(saga_with_compensations(vec!["car".into(), "hotel".into()], 2)) {
                    Ok(text) if text.contains("failed") => text,
                    Ok(text) => text + "!",
                    Err(error) => error.to_string(),
                },
                n if n % 2 == 0 => call!(graph_of_edges(format!("q{n}")))?.messages.join("|"),
                n => {
                    let State { tries, done, .. } = call!(graph_of_edges(n.to_string()))?;
                    format!("{tries} {done}")
                }
            };
            out.push(step!("note", io.did(format!("note {text}"), text).await?));
        }
        Ok(out)
    }
}

twin! {
    async fn two_lists_zipped(io, names: Vec<String>) -> anyhow::Result<Vec<(String, u32)>> {
        let scores: Vec<u32> = step!("scores", io.did("scores", vec![3, 1, 2]).await?);
        let ranks: Vec<Rank> = step!("ranks", io.did("ranks", vec![Rank::High, Rank::Low, Rank::Low]).await?);
        let mut rows: Vec<_> = names.into_iter().zip(scores).zip(ranks).map(|((name, score), rank)| (rank, name, score)).collect();
        rows.sort_by_key(|(rank, _, score)| (std::cmp::Reverse(*rank), *score));
        let mut kept = Vec::new();
        for (rank, name, score) in rows {
            let more = step!("score", io.did(format!("{name} {rank:?}"), score * 2).await?);
            kept.push((name, more));
        }
        kept.retain(|(name, more)| name.len() + *more as usize > 3);
        kept.dedup_by_key(|(name, _)| name.clone());
        Ok(kept)
    }
}

twin! {
    async fn buckets_by_entry(io, words: Vec<String>) -> anyhow::Result<BTreeMap<char, Vec<u32>>> {
        let mut buckets: BTreeMap<char, Vec<u32>> = BTreeMap::new();
        for word in words {
            let Some(first) = word.chars().next() else { continue };
            let size = step!("size", io.did(format!("size {word}"), word.len() as u32).await?);
            buckets.entry(first).or_default().push(size);
            *buckets.entry('*').or_insert_with(|| vec![0]).first_mut().context("none")? += size;
        }
        let mut largest = None;
        for (key, sizes) in &buckets {
            let sum = step!("sum", io.did(format!("sum {key} {sizes:?}"), sizes.iter().sum::<u32>()).await?);
            if largest.is_none_or(|(_, most)| sum > most) {
                largest = Some((*key, sum));
            }
        }
        if let Some((key, sum)) = largest.filter(|(key, _)| *key != '*').or(largest) {
            buckets.insert('!', vec![sum, key as u32]);
        }
        Ok(buckets)
    }
}

twin! {
    async fn queue_taken_and_put_back(io, jobs: Vec<u32>) -> anyhow::Result<(Vec<u32>, Option<u32>)> {
        let mut queue = VecDeque::from(jobs);
        let (mut done, mut current) = (Vec::new(), None);
        while let Some(job) = current.take().or_else(|| queue.pop_front()) {
            let left = step!("work", io.did(format!("work {job}"), job / 3).await?);
            match left {
                0 => done.push(job),
                1 | 2 if queue.len() > 1 => queue.rotate_left(1),
                n => {
                    let _ = current.insert(n);
                    queue.make_contiguous().sort_unstable();
                }
            }
            let taken = std::mem::take(&mut done);
            done = step!("done", io.did(format!("done {taken:?}"), taken).await?);
        }
        done.swap(0, 0);
        let tail: Vec<u32> = done.drain(1..).collect();
        step!("tail", io.did(format!("tail {tail:?}"), ()).await?);
        Ok((tail, done.pop()))
    }
}

twin! {
    async fn windows_and_chunks(io, readings: Vec<u32>) -> anyhow::Result<Vec<String>> {
        let mut alarms = vec![];
        for (at, pair) in readings.windows(2).enumerate().skip(1) {
            let [before, after] = pair else { unreachable!("two of two") };
            let jump = step!("jump", io.did(format!("{at}: {before}-{after}"), after.abs_diff(*before)).await?);
            if jump > 3 {
                alarms.push(format!("{at}+{jump}"));
            }
        }
        for chunk in readings.chunks(3).rev() {
            let text = match chunk {
                [one] => one.to_string(),
                [first, rest @ ..] => format!("{first}..{}", rest.len()),
                [] => continue,
            };
            alarms.push(step!("chunk", io.did(text.clone(), text).await?));
        }
        for at in (0..readings.len()).rev().step_by(2) {
            let reading = readings[at];
            alarms.push(step!("at", io.did(format!("at {at}"), format!("{reading:>3}")).await?));
        }
        Ok(alarms)
    }
}

twin! {
    async fn helpers_with_lifetimes_and_constants(io, left: String, right: String) -> anyhow::Result<String> {
        let chosen = longest(&left, &right).to_owned();
        let list = step!("list", io.did(format!("list {chosen}"), vec![1, 2, 3, 5]).await?);
        let mut odd = 0;
        for n in odd_ones(&list).collect::<Vec<_>>() {
            odd += step!("odd", io.did(format!("odd {n}"), n).await?);
        }
        const PARTS: [u32; 3] = [1, 2, 3];
        let sum = sum_of(PARTS) + sum_of([odd; 2]);
        let again = step!("sum", io.did(format!("sum {sum}"), sum).await?);
        Ok(format!("{chosen} {}", sum_of([again, odd])))
    }
}

twin! {
    async fn macros_of_ones_own_in_steps(io, topic: String) -> anyhow::Result<String> {
        let first = step!("first", asked!(io, format!("first {topic}"), topic.len())?);
        let text = format!("{topic:?} has {first:>width$}", width = first);
        let second = step!("second", asked!(io, text.as_str(), text.len())?);
        let rows = vec![(first, "a"), (second, "b")];
        let found = rows.iter().find_map(|&(n, name)| (n > 5).then_some(name)).unwrap_or("none");
        let third = step!("third", asked!(io, format!("third {found}"), found.to_uppercase())?);
        Ok([text, third].concat())
    }
}

twin! {
    async fn async_closures_with_retries(io, urls: Vec<String>) -> anyhow::Result<Vec<usize>> {
        let fetch = async |url: &str, attempt: u32| -> anyhow::Result<usize> {
            if attempt == 1 && url.len() > 2 { bail!("slow {url}") }
            io.did(format!("fetch {url} {attempt}"), url.len()).await
        };
        let mut sizes = Vec::new();
        for url in &urls {
            let mut attempt = 0;
            let size = loop {
                attempt += 1;
                match step!("fetch", fetch(url, attempt).await.map_err(|e| e.to_string())) {
                    Ok(size) => break size,
                    Err(why) if attempt < 3 => sizes.push(why.len()),
                    Err(why) => return Err(anyhow!(why)),
                }
            };
            sizes.push(size);
        }
        Ok(sizes)
    }
}

twin! {
    async fn question_marks_in_closures(io, raw: Vec<String>) -> anyhow::Result<u32> {
        let parse = |text: &str| -> anyhow::Result<u32> {
            let (name, n) = text.split_once('=').context("no =")?;
            ensure!(!name.is_empty(), "no name");
            Ok(n.trim().parse::<u32>()?)
        };
        let mut sum = 0;
        for text in &raw {
            let n = match parse(text) {
                Ok(n) => step!("known", io.did(format!("known {n}"), n).await?),
                Err(error) => {
                    let why = format!("{error:#}");
                    step!("unknown", io.did(format!("unknown {text}: {why}"), 1).await?)
                }
            };
            sum += n;
            if sum > 20 {
                return Ok(sum);
            }
        }
        let best = raw.iter().filter_map(|text| parse(text).ok()).max();
        Ok(step!("best", io.did(format!("best {best:?}"), best.unwrap_or(sum)).await?) + sum)
    }
}

twin! {
    async fn shadowed_state_through_stages(io, input: String) -> anyhow::Result<String> {
        let input = input.trim().to_lowercase();
        let input = step!("split", io.did(format!("split {input}"), input.split(' ').map(str::to_owned).collect::<Vec<_>>()).await?);
        let input: Vec<(usize, String)> = input.into_iter().enumerate().filter(|(_, word)| word.len() > 1).collect();
        let (places, input): (Vec<usize>, Vec<String>) = input.into_iter().unzip();
        let input = {
            let input = step!("join", io.did("join", input.join("-")).await?);
            let places = step!("places", io.did(format!("{places:?}"), places.len()).await?);
            format!("{input}:{places}")
        };
        let Some((head, tail)) = input.split_once(':').map(|(head, tail)| (head.to_owned(), tail.to_owned())) else { bail!("no colon") };
        let tail = step!("tail", io.did(format!("tail {tail}"), tail.parse::<usize>()?).await?);
        Ok(format!("{head} {tail} {input} {places:?}"))
    }
}

twin! {
    async fn reducers_over_characters(io, text: String) -> anyhow::Result<String> {
        let mut depth = 0i32;
        let mut out = String::new();
        for (at, char) in text.char_indices() {
            depth += match char {
                '(' => 1,
                ')' if depth > 0 => -1,
                ')' => step!("unbalanced", io.did(format!("unbalanced {at}"), 0).await?),
                c if c.is_ascii_digit() => {
                    let n = c.to_digit(10).context("a digit")?;
                    out.insert_str(0, &step!("digit", io.did(format!("digit {n} at {depth}"), format!("{n}{depth}")).await?));
                    continue;
                }
                _ => 0,
            };
            out.push(char);
        }
        let reversed: String = out.chars().rev().skip_while(|c| c.is_whitespace()).collect();
        step!("end", io.did(format!("end {depth}"), ()).await?);
        Ok(reversed)
    }
}

twin! {
    async fn branches_whose_results_are_matched(io, order: u32) -> anyhow::Result<String> {
        let (stock, price, notes) = steps!(
            io.did("stock", order.checked_sub(2)).await?,
            io.did("price", (order * 3, "eur".to_owned())).await?,
            io.did("notes", vec![Some(1), None, Some(order)]).await?,
        );
        let left = match (stock, &price) {
            (Some(left @ 1..), (cents, _)) if *cents > 5 => left,
            (Some(_), (_, currency)) if currency.is_empty() => bail!("no currency"),
            (None, _) => return Ok("none".into()),
            (Some(left), (cents, currency)) => {
                let asked = step!("ask", io.did(format!("ask {cents} {currency}"), 7).await?);
                left + asked
            }
        };
        let notes: Vec<u32> = notes.into_iter().flatten().collect();
        let [first, .., last] = notes[..] else { bail!("{} notes", notes.len()) };
        let sum = step!("sum", io.did(format!("{first}+{last}"), first + last).await?);
        Ok(format!("{left} {sum} {}", price.1))
    }
}

twin! {
    async fn nested_options_and_results(io, depth: u32) -> anyhow::Result<Option<u32>> {
        let mut found: Option<Result<u32, String>> = None;
        'outer: for level in 1..=depth {
            for at in (level..level + 3).rev() {
                found = match step!("look", io.did(format!("{level}/{at}"), if at % 4 == 0 { Some(at) } else { None }).await?) {
                    Some(n) if n > 7 => break 'outer,
                    Some(n) => Some(n.checked_add(level).ok_or_else(|| "too many".to_owned())),
                    None if at == level => continue 'outer,
                    None => found,
                };
            }
        }
        let Some(n) = found.transpose().map_err(anyhow::Error::msg)? else { return Ok(None) };
        Ok(Some(step!("end", io.did(format!("end {n}"), n).await?)))
    }
}

twin! {
    async fn state_taken_out_of_a_struct(io, texts: Vec<String>) -> anyhow::Result<State> {
        let mut state = State::default();
        for text in texts {
            let State { messages, tries, .. } = &mut state;
            messages.push(text);
            *tries += 1;
            let last = messages.last().cloned().unwrap_or_default();
            let size = step!("size", io.did(format!("size {last}"), last.len()).await?);
            if let Some(plan) = state.plan.as_mut() {
                plan.push(format!("{size}"));
            } else {
                state.plan = Some(vec![]);
            }
            let old = std::mem::replace(&mut state.messages, vec![]);
            let kept = step!("keep", io.did(format!("keep {old:?}"), old.into_iter().rev().take(2).collect::<Vec<_>>()).await?);
            state = State { messages: kept, done: size > 2, ..state };
        }
        state.plan.get_or_insert_with(Vec::new).sort();
        Ok(state)
    }
}

corpus! {
    graph_of_edges => completes(|| graph_of_edges("why".into()));
    saga_with_compensations => completes(|| saga_with_compensations(["car", "hotel", "flight"].map(String::from).into(), 3)), completes(|| saga_with_compensations(vec!["car".into(), "bus".into()], 9));
    child_workflows_in_arms => completes(|| child_workflows_in_arms(vec![1, 0, 2, 3]));
    two_lists_zipped => completes(|| two_lists_zipped(["ada", "b", "cy"].map(String::from).into()));
    buckets_by_entry => completes(|| buckets_by_entry(["ab", "", "a", "cde"].map(String::from).into()));
    queue_taken_and_put_back => completes(|| queue_taken_and_put_back(vec![9, 1, 4, 2]));
    windows_and_chunks => completes(|| windows_and_chunks(vec![1, 9, 2, 8, 8, 3, 4]));
    helpers_with_lifetimes_and_constants => completes(|| helpers_with_lifetimes_and_constants("one".into(), "three".into()));
    macros_of_ones_own_in_steps => completes(|| macros_of_ones_own_in_steps("rust".into()));
    async_closures_with_retries => completes(|| async_closures_with_retries(["a", "long", "bc"].map(String::from).into()));
    question_marks_in_closures => completes(|| question_marks_in_closures(["a=4", "b", "=2", "c= 7"].map(String::from).into())), completes(|| question_marks_in_closures(["a=4", "b=40"].map(String::from).into()));
    shadowed_state_through_stages => completes(|| shadowed_state_through_stages(" One a TWO three ".into()));
    reducers_over_characters => completes(|| reducers_over_characters("(a1)) 2(b".into()));
    branches_whose_results_are_matched => completes(|| branches_whose_results_are_matched(4)), completes(|| branches_whose_results_are_matched(1)), completes(|| branches_whose_results_are_matched(2));
    nested_options_and_results => completes(|| nested_options_and_results(3)), completes(|| nested_options_and_results(7));
    state_taken_out_of_a_struct => completes(|| state_taken_out_of_a_struct(["ab", "c", "def"].map(String::from).into()));
}
