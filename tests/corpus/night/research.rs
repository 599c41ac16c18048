//! Agents that look things up: plan, search, read, take notes, write.
use crate::prelude::*;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Hit {
    url: String,
    title: String,
    score: f64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Note {
    question: String,
    text: String,
    sources: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Plan {
    title: String,
    questions: Vec<String>,
}

async fn plan(io: &Io, topic: &str) -> anyhow::Result<Plan> {
    let questions = ["what", "why", "how", "who"].iter().map(|w| format!("{w} is {topic}")).collect();
    io.did(format!("plan {topic}"), Plan { title: topic.to_uppercase(), questions }).await
}

async fn search(io: &Io, query: &str) -> anyhow::Result<Vec<Hit>> {
    let n = query.len() % 4;
    let hits = (0..n)
        .map(|i| Hit {
            url: format!("https://site{}.test/{}", i % 2, query.split(' ').next_back().unwrap_or("")),
            title: format!("{query} {i}"),
            score: 1.0 / (i as f64 + 1.5),
        })
        .collect();
    io.did(format!("search {query}"), hits).await
}

async fn read(io: &Io, url: &str) -> anyhow::Result<String> {
    io.did(format!("read {url}"), format!("text of {url}. It has facts. And more.")).await
}

async fn ask(io: &Io, prompt: &str) -> anyhow::Result<String> {
    let answer = prompt.split_whitespace().rev().take(5).collect::<Vec<_>>().join(" ");
    io.did(format!("ask {}", prompt.len()), answer).await
}

twin! {
    async fn plan_search_and_write(io, topic: String) -> anyhow::Result<String> {
        let plan = step!(plan(&io, &topic).await?);
        let mut notes: Vec<Note> = Vec::new();
        for question in &plan.questions {
            let hits = step!("search", search(&io, question).await?);
            if hits.is_empty() {
                notes.push(Note { question: question.clone(), ..Default::default() });
                continue;
            }
            let best = hits.iter().max_by(|a, b| a.score.total_cmp(&b.score)).unwrap();
            let text = step!("read", read(&io, &best.url).await?);
            notes.push(Note { question: question.clone(), text, sources: hits.into_iter().map(|h| h.url).collect() });
        }
        let body = notes.iter().map(|n| format!("## {}\n{}\n", n.question, n.text)).collect::<String>();
        let summary = step!(ask(&io, &body).await?);
        Ok(format!("# {}\n{body}\n{summary}", plan.title))
    }
}

twin! {
    async fn crawl_breadth_first(io, seeds: Vec<String>, limit: usize) -> anyhow::Result<Vec<(usize, String)>> {
        let mut queue: VecDeque<(String, usize)> = seeds.into_iter().map(|s| (s, 0)).collect();
        let mut seen = HashSet::new();
        let mut pages = vec![];
        while let Some((url, depth)) = queue.pop_front() {
            if depth > 2 || !seen.insert(url.clone()) {
                continue;
            }
            let page = step!("fetch", read(&io, &url).await?);
            for (i, word) in page.split(' ').enumerate() {
                if i < 2 && word.len() > 2 {
                    queue.push_back((format!("{url}/{word}"), depth + 1));
                }
            }
            pages.push((page.len(), url));
            if pages.len() >= limit {
                break;
            }
        }
        pages.sort();
        step!("index", io.did(format!("index {}", pages.len()), ()).await?);
        Ok(pages)
    }
}

twin! {
    async fn refine_queries_until_enough(io, topic: String, want: usize) -> anyhow::Result<String> {
        let mut query = topic.clone();
        let mut found: BTreeMap<String, Vec<Hit>> = BTreeMap::new();
        let mut rounds = 0;
        let verdict = loop {
            rounds += 1;
            let hits = step!("search", search(&io, &query).await?);
            for hit in hits {
                let host = hit.url.trim_start_matches("https://").split('/').next().unwrap_or_default().to_string();
                found.entry(host).or_default().push(hit);
            }
            let total: usize = found.values().map(Vec::len).sum();
            if total >= want {
                break "enough";
            }
            if rounds == 6 {
                break "gave up";
            }
            let better = step!("rewrite", ask(&io, &format!("{query} more detail please")).await?);
            query = format!("{topic} {}", better.chars().take(rounds).collect::<String>());
        };
        let by_host: Vec<String> = found.iter().map(|(host, hits)| format!("{host}={}", hits.len())).collect();
        Ok(format!("{verdict} after {rounds}: {}", by_host.join(",")))
    }
}

twin! {
    async fn claims_with_two_sources(io, claims: Vec<String>) -> anyhow::Result<Vec<(String, String)>> {
        let mut verdicts = Vec::with_capacity(claims.len());
        'claims: for claim in claims {
            let mut support = 0;
            for angle in ["evidence for", "evidence against", "history of"] {
                let hits = step!("look up", search(&io, &format!("{angle} {claim}")).await?);
                for hit in &hits {
                    let text = step!("open", read(&io, &hit.url).await?);
                    if text.contains("facts") {
                        support += 1;
                    }
                    if support >= 2 {
                        verdicts.push((claim, "supported"));
                        continue 'claims;
                    }
                }
            }
            verdicts.push((claim, if support == 0 { "unsupported" } else { "weak" }));
        }
        step!("file", io.did(format!("{verdicts:?}"), ()).await?);
        Ok(verdicts.into_iter().map(|(claim, verdict)| (claim, verdict.to_uppercase())).collect())
    }
}

struct Outline {
    sections: Vec<(String, u32)>,
}

impl Outline {
    fn of(text: &str) -> Self {
        Self { sections: text.split(". ").map(|s| (s.to_owned(), s.len() as u32)).collect() }
    }

    fn longest(&self) -> Option<&(String, u32)> {
        self.sections.iter().max_by_key(|(_, len)| *len)
    }
}

twin! {
    async fn outline_then_expand_the_longest(io, url: String) -> anyhow::Result<String> {
        let text = step!(read(&io, &url).await?);
        let outline = Outline::of(&text);
        let (name, len) = outline.longest().cloned().context("an empty page")?;
        let expanded = step!("expand", ask(&io, &format!("expand {name} to {}", len * 3)).await?);
        let checked = step!("check", ask(&io, &expanded).await?);
        let Some((first, rest)) = checked.split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned())) else {
            bail!("nothing to check in {checked:?}");
        };
        let label = match len {
            0..=9 => "short",
            10..=29 => "medium",
            _ => "long",
        };
        step!("publish", io.did(format!("publish {label}"), ()).await?);
        Ok(format!("{label}: {first}|{rest}"))
    }
}

twin! {
    async fn deepen_recursively(io, topic: String, depth: u32) -> anyhow::Result<Vec<String>> {
        let hits = step!(search(&io, &topic).await?);
        let mut lines = vec![format!("{}{topic}: {}", "  ".repeat(depth as usize), hits.len())];
        if depth == 0 {
            return Ok(lines);
        }
        for hit in hits.iter().take(2) {
            let below = call!(deepen_recursively(hit.title.clone(), depth - 1)).with_context(|| format!("below {topic}"))?;
            lines.extend(below);
        }
        Ok(lines)
    }
}

twin! {
    async fn cite_in_order_of_first_use(io, paragraphs: Vec<String>) -> anyhow::Result<String> {
        let mut numbers: HashMap<String, usize> = HashMap::new();
        let mut out = String::new();
        for (i, paragraph) in paragraphs.iter().enumerate() {
            let hits = step!("sources", search(&io, paragraph).await?);
            let marks: Vec<String> = hits
                .iter()
                .map(|hit| {
                    let next = numbers.len() + 1;
                    let n = *numbers.entry(hit.url.clone()).or_insert(next);
                    format!("[{n}]")
                })
                .collect();
            if i > 0 {
                out.push('\n');
            }
            out += paragraph;
            out += &marks.concat();
        }
        let mut list: Vec<_> = numbers.into_iter().map(|(url, n)| (n, url)).collect();
        list.sort_unstable();
        for (n, url) in list {
            let title = step!("title", read(&io, &url).await?);
            out.push_str(&format!("\n[{n}] {}", &title[..12]));
        }
        Ok(out)
    }
}

twin! {
    async fn questions_side_by_side(io, topic: String) -> anyhow::Result<String> {
        let Plan { title, questions } = step!(plan(&io, &topic).await?);
        let answers = steps!(for q in &questions, limit = 3, now(&io, format!("answer {q}"), format!("{q}!")).await?);
        let pairs: Vec<(String, String)> = questions.into_iter().zip(answers).filter(|(q, _)| !q.starts_with("who")).collect();
        let mut report = format!("{title} ({})", pairs.len());
        for (q, a) in &pairs {
            let grade = step!("grade", io.did(format!("grade {a}"), a.len() > q.len()).await?);
            report.push_str(&format!("\n- {q} -> {a} {}", if grade { "ok" } else { "poor" }));
        }
        Ok(report)
    }
}

twin! {
    async fn compare_products_by_criteria(io, products: Vec<String>, criteria: Vec<(String, u32)>) -> anyhow::Result<Option<(String, u32)>> {
        let mut table: Vec<Vec<u32>> = vec![vec![0; criteria.len()]; products.len()];
        for (row, product) in products.iter().enumerate() {
            for (column, (criterion, weight)) in criteria.iter().enumerate() {
                let points = step!("rate", io.did(format!("{product} {criterion}"), (product.len() * criterion.len()) as u32 % 7).await?);
                table[row][column] = points * weight;
            }
        }
        let totals = table.iter().map(|row| row.iter().sum::<u32>()).collect::<Vec<_>>();
        let best = totals.iter().enumerate().max_by_key(|&(_, total)| total).map(|(i, total)| (products[i].clone(), *total));
        if let Some((name, total)) = &best {
            step!("announce", io.did(format!("{name} wins with {total}"), ()).await?);
        }
        Ok(best)
    }
}

twin! {
    async fn daily_digest_by_section(io, feeds: Vec<(String, String)>) -> anyhow::Result<String> {
        let mut sections = BTreeMap::<String, Vec<String>>::new();
        for (section, feed) in feeds {
            let Ok(text) = step!("feed", catch, if feed.is_empty() { bail!("no address") } else { read(&io, &feed).await? }) else {
                sections.entry("errors".into()).or_default().push(section);
                continue;
            };
            sections.entry(section).or_default().push(text);
        }
        let mut digest = String::new();
        for (section, texts) in &sections {
            let joined = texts.join("; ");
            let short = if joined.len() > 40 { step!("shorten", ask(&io, &joined).await?) } else { joined };
            digest = digest + section + ": " + &short + "\n";
        }
        digest.truncate(digest.trim_end().len());
        step!("send", io.did("send", digest.len()).await?);
        Ok(digest)
    }
}

corpus! {
    plan_search_and_write => completes(|| plan_search_and_write("rust".into())), completes(|| plan_search_and_write("tea".into()));
    crawl_breadth_first => completes_hashed(|| crawl_breadth_first(vec!["a".into(), "b".into(), "a".into()], 7));
    refine_queries_until_enough => completes(|| refine_queries_until_enough("abc".into(), 9)), completes(|| refine_queries_until_enough("x".into(), 99));
    claims_with_two_sources => completes(|| claims_with_two_sources(vec!["a".into(), "bc".into(), "def".into()]));
    outline_then_expand_the_longest => completes(|| outline_then_expand_the_longest("u".into()));
    deepen_recursively => completes(|| deepen_recursively("abc".into(), 2));
    cite_in_order_of_first_use => completes_hashed(|| cite_in_order_of_first_use(vec!["one".into(), "three".into(), "fives".into()]));
    questions_side_by_side => completes(|| questions_side_by_side("x".into()));
    compare_products_by_criteria => completes(|| compare_products_by_criteria(vec!["car".into(), "tram".into()], vec![("price".into(), 3), ("speed".into(), 1)]));
    daily_digest_by_section => completes(|| daily_digest_by_section(vec![("a".into(), "x".into()), ("b".into(), String::new()), ("a".into(), "y".into())]));
}
