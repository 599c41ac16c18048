//! Long texts: splitting, summarising, answering from them.
use crate::prelude::*;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Chunk {
    at: std::ops::Range<usize>,
    text: String,
    embedding: [f32; 3],
}

async fn summarise(io: &Io, text: &str) -> anyhow::Result<String> {
    let short = text.split_whitespace().filter_map(|w| w.chars().next()).collect();
    io.did(format!("summarise {}", text.len()), short).await
}

fn embed(text: &str) -> [f32; 3] {
    let mut vector = [0.0; 3];
    for (i, byte) in text.bytes().enumerate() {
        vector[i % 3] += f32::from(byte) / 100.0;
    }
    vector
}

fn cosine(a: &[f32; 3], b: &[f32; 3]) -> f32 {
    let dot: f32 = a.iter().zip(b).map(|(x, y)| x * y).sum();
    let norm = |v: &[f32; 3]| v.iter().map(|x| x * x).sum::<f32>().sqrt();
    dot / (norm(a) * norm(b)).max(f32::EPSILON)
}

twin! {
    async fn map_reduce_summary(io, text: String, size: usize) -> anyhow::Result<String> {
        let words: Vec<&str> = text.split(' ').collect();
        let chunks: Vec<String> = words.chunks(size).map(|c| c.join(" ")).collect();
        let mut partial = steps!(for chunk in &chunks, limit = 3, now(&io, format!("map {}", chunk.len()), chunk.chars().rev().collect::<String>()).await?);
        let mut level = 0;
        while partial.len() > 1 {
            let mut next = Vec::with_capacity(partial.len().div_ceil(2));
            for pair in partial.chunks(2) {
                let merged = step!("reduce", summarise(&io, &pair.join(" / ")).await?);
                next.push(merged);
            }
            partial = next;
            level += 1;
        }
        Ok(format!("{level}: {}", partial.pop().unwrap_or_default()))
    }
}

twin! {
    async fn refine_summary_chunk_by_chunk(io, chunks: Vec<String>) -> anyhow::Result<String> {
        let (first, rest) = chunks.split_first().context("nothing to summarise")?;
        let first = first.clone();
        let rest = rest.to_vec();
        let mut summary = step!("first", summarise(&io, &first).await?);
        for (n, chunk) in rest.iter().enumerate() {
            let proposal = step!("refine", summarise(&io, &format!("{summary} {chunk}")).await?);
            if proposal.len() > 2 * summary.len() + n {
                summary = step!("shorten", io.did("shorten", proposal[..summary.len()].to_string()).await?);
            } else {
                summary = proposal;
            }
        }
        Ok(summary)
    }
}

twin! {
    async fn answer_from_the_nearest_chunks(io, document: String, question: String) -> anyhow::Result<(String, Vec<usize>)> {
        let mut index: Vec<Chunk> = Vec::new();
        let mut start = 0;
        while start < document.len() {
            let end = document[start..].find('.').map_or(document.len(), |i| start + i + 1);
            let text = document[start..end].trim().to_owned();
            let embedding = step!("embed", io.did(format!("embed {start}"), embed(&text)).await?);
            index.push(Chunk { at: start..end, text, embedding });
            start = end;
        }
        let target = step!("embed question", io.did("embed question", embed(&question)).await?);
        index.sort_by(|a, b| cosine(&b.embedding, &target).total_cmp(&cosine(&a.embedding, &target)));
        let count = index.len().min(2);
        let best = &index[..count];
        let context = best.iter().map(|c| c.text.as_str()).collect::<Vec<_>>().join(" ");
        let answer = step!("answer", io.did(format!("answer from {}", context.len()), format!("{question} {}", &context[..5])).await?);
        Ok((answer, best.iter().map(|c| c.at.start).collect()))
    }
}

twin! {
    async fn translate_keeping_placeholders(io, text: String) -> anyhow::Result<String> {
        let mut out = String::new();
        let mut rest = text;
        while let Some(open) = rest.find('{') {
            let (before, after) = rest.split_at(open);
            let close = after.find('}').ok_or_else(|| anyhow!("`{{` at {open} is not closed"))?;
            let (placeholder, tail) = (after[..=close].to_string(), after[close + 1..].to_string());
            if !before.trim().is_empty() {
                let before = before.to_owned();
                let translated = step!("translate", io.did(format!("translate {before:?}"), before.to_uppercase()).await?);
                out.push_str(&translated);
            }
            out += &placeholder;
            rest = tail;
        }
        if !rest.is_empty() {
            out += &step!("rest", io.did(format!("translate {rest:?}"), rest.to_uppercase()).await?);
        }
        Ok(out)
    }
}

twin! {
    async fn table_of_contents(io, sections: Vec<(u8, String)>) -> anyhow::Result<Vec<String>> {
        let mut numbers: Vec<u32> = Vec::new();
        let mut lines = Vec::new();
        for (depth, title) in &sections {
            let depth = usize::from(*depth);
            numbers.truncate(depth);
            match numbers.get_mut(depth - 1) {
                Some(n) => *n += 1,
                None => numbers.resize(depth, 1),
            }
            let label = numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(".");
            let page = step!("page", io.did(format!("page of {title}"), lines.len() * 3 + depth).await?);
            lines.push(format!("{label:<6}{title:.<12}{page:>3}"));
        }
        Ok(lines)
    }
}

twin! {
    async fn diff_of_two_versions(io, old: Vec<String>, new: Vec<String>) -> anyhow::Result<String> {
        let (mut i, mut j) = (0, 0);
        let mut out = String::new();
        while i < old.len() || j < new.len() {
            match (old.get(i), new.get(j)) {
                (Some(a), Some(b)) if a == b => {
                    i += 1;
                    j += 1;
                }
                (Some(a), later) if later.is_none() || !new[j..].contains(a) => {
                    let why = step!("removed", io.did(format!("why was {a} removed"), i).await?);
                    out.push_str(&format!("-{}{why}\n", old[i]));
                    i += 1;
                }
                (_, Some(b)) => {
                    out += &format!("+{b}\n");
                    step!("added", io.did(format!("added {}", new[j]), ()).await?);
                    j += 1;
                }
                (Some(_), None) | (None, None) => unreachable!(),
            }
        }
        Ok(out)
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Invoice {
    number: Option<u32>,
    total: Option<f64>,
    lines: Vec<(String, f64)>,
}

impl Invoice {
    fn problems(&self) -> Vec<&'static str> {
        let mut problems = Vec::new();
        if self.number.is_none() {
            problems.push("number");
        }
        match self.total {
            None => problems.push("total"),
            Some(total) if (self.lines.iter().map(|(_, x)| x).sum::<f64>() - total).abs() > 0.01 => problems.push("sum"),
            Some(_) => {}
        }
        problems
    }
}

twin! {
    async fn extract_an_invoice(io, text: String) -> anyhow::Result<Invoice> {
        let mut invoice = Invoice::default();
        for line in text.lines() {
            let parts: Vec<String> = line.splitn(2, ':').map(|p| p.trim().to_string()).collect();
            match parts.as_slice() {
                [key, value] if key == "no" => invoice.number = value.parse().ok(),
                [key, value] if key == "total" => invoice.total = value.parse().ok(),
                [item, price] => invoice.lines.push((item.clone(), price.parse().with_context(|| format!("price of {item}"))?)),
                [] | [_] | [..] => step!("odd", io.did(format!("odd line {line:?}"), ()).await?),
            }
        }
        let problems = invoice.problems();
        for problem in &problems {
            match *problem {
                "number" => invoice.number = Some(step!("number", io.did("ask for the number", 77).await?)),
                other => step!("flag", io.did(format!("flag {other}"), ()).await?),
            }
        }
        ensure!(problems.len() < 3, "unreadable: {problems:?}");
        Ok(invoice)
    }
}

twin! {
    async fn deduplicate_by_shingles(io, documents: Vec<String>) -> anyhow::Result<Vec<String>> {
        let shingles = |text: &str| text.as_bytes().windows(3).map(|w| w.to_vec()).collect::<BTreeSet<Vec<u8>>>();
        let mut kept: Vec<(String, BTreeSet<Vec<u8>>)> = Vec::new();
        for document in documents {
            let own = shingles(&document);
            let nearest = kept.iter().map(|(_, other)| own.intersection(other).count() * 100 / own.union(other).count().max(1)).max();
            match nearest {
                Some(80..) => continue,
                Some(score @ 40..=79) => {
                    if step!("same", io.did(format!("are they the same? {score}"), score > 60).await?) {
                        continue;
                    }
                }
                _ => step!("new", io.did(format!("new: {document}"), ()).await?),
            }
            kept.push((document, own));
        }
        Ok(kept.into_iter().map(|(document, _)| document).collect())
    }
}

twin! {
    async fn glossary_with_cross_references(io, terms: BTreeMap<String, String>) -> anyhow::Result<BTreeMap<String, BTreeSet<String>>> {
        let mut references: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (term, definition) in &terms {
            for other in terms.keys() {
                if other == term || !definition.contains(other.as_str()) {
                    continue;
                }
                let strong = step!("strength", io.did(format!("{term} -> {other}"), definition.len() % 2 == 0).await?);
                let entry = references.entry(term.clone()).or_default();
                if strong {
                    entry.insert(other.clone());
                }
            }
        }
        references.retain(|_, others| !others.is_empty());
        Ok(references)
    }
}

twin! {
    async fn proofread_in_passes(io, text: String) -> anyhow::Result<(String, Vec<usize>)> {
        type Pass = (&'static str, fn(&str) -> String);
        const PASSES: [Pass; 3] = [("spaces", |t| t.split_whitespace().collect::<Vec<_>>().join(" ")), ("typos", |t| t.replace("teh", "the")), ("end", |t| format!("{t}."))];
        let mut text = text;
        let mut changes = Vec::new();
        for i in 0..PASSES.len() {
            let (name, pass) = PASSES[i];
            let before = text.len();
            text = step!("pass", io.did(format!("pass {name}"), pass(&text)).await?);
            changes.push(before.abs_diff(text.len()));
        }
        Ok((text, changes))
    }
}

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

corpus! {
    map_reduce_summary => completes(|| map_reduce_summary("a bc def ghij klmno pq r".into(), 2));
    refine_summary_chunk_by_chunk => completes(|| refine_summary_chunk_by_chunk(texts(&["one two", "three", "four five six seven eight"]))), fails("nothing to", || refine_summary_chunk_by_chunk(vec![]));
    answer_from_the_nearest_chunks => completes(|| answer_from_the_nearest_chunks("Cats sleep. Dogs bark. Birds sing".into(), "who barks".into()));
    translate_keeping_placeholders => completes(|| translate_keeping_placeholders("hi {name}, {x}{y} bye".into())), fails("is not closed", || translate_keeping_placeholders("hi {a} {name".into()));
    table_of_contents => completes(|| table_of_contents([(1, "a"), (2, "b"), (2, "c"), (1, "d"), (3, "e")].map(|(d, t)| (d, t.to_owned())).into()));
    diff_of_two_versions => completes(|| diff_of_two_versions(texts(&["a", "b", "c"]), texts(&["a", "x", "c", "d"])));
    extract_an_invoice => completes(|| extract_an_invoice("tea: 2.5\nhello\ntotal: 3".into())), fails("price of tea", || extract_an_invoice("hello\ntea: x".into()));
    deduplicate_by_shingles => completes(|| deduplicate_by_shingles(texts(&["hello world", "hello world", "hello worm", "other", "hello wor"])));
    glossary_with_cross_references => completes(|| glossary_with_cross_references([("fiber", "a saved task"), ("task", "what a fiber does"), ("save", "x")].map(|(a, b)| (a.to_owned(), b.to_owned())).into()));
    proofread_in_passes => completes(|| proofread_in_passes("teh  cat and teh dog ".into()));
}
