//! Fiber functions that several tests use: one for each construct, and one with much of the
//! language.

/// A name and a function, without its attribute.
pub(super) type Body = (&'static str, &'static str);

/// One function for each construct of the language.
pub(super) const CONSTRUCTS: &[Body] = &[
    (
        "straight_line",
        r#"
async fn research(io: Res<Io>, topic: String) -> anyhow::Result<String> {
    let plan = step!(io.plan(&topic).await?);
    let draft = step!("write", io.write(&plan).await?);
    Ok(draft)
}"#,
    ),
    (
        "partly_moved",
        r#"
async fn research(io: Res<Io>, topic: String) -> anyhow::Result<Report> {
    let mut plan = step!(io.plan(&topic).await?);
    let title = plan.title;
    step!("send", io.send(plan.meta.author, plan.budget).await?);
    plan.questions.push(title);
    step!("store", io.store(&plan.questions, plan.meta.pages).await?);
    Ok(Report { questions: plan.questions, author: plan.pair.1 })
}"#,
    ),
    (
        "if_else",
        r#"
async fn research(io: Res<Io>, topic: String, deep: bool) -> anyhow::Result<u32> {
    let mut found = 0;
    if deep {
        let hits = step!("search", io.search(&topic).await?);
        found += hits;
    } else if topic.is_empty() {
        return Ok(0);
    } else {
        found += 1;
    }
    step!("store", io.store(found).await?);
    Ok(found)
}"#,
    ),
    (
        "if_with_a_value",
        r#"
async fn research(io: Res<Io>, deep: bool) -> anyhow::Result<u32> {
    let found = if deep { step!("deep", io.search().await?) } else { 0 };
    step!("store", io.store(found).await?);
    Ok(found)
}"#,
    ),
    (
        "if_let",
        r#"
async fn research(io: Res<Io>, topic: Option<String>) -> anyhow::Result<String> {
    if let Some(topic) = topic {
        let hits = step!("search", io.search(&topic).await?);
        return Ok(format!("{topic}: {hits}"));
    }
    Ok(String::new())
}"#,
    ),
    (
        "match_arms",
        r#"
async fn research(io: Res<Io>, way: Way) -> anyhow::Result<String> {
    let text = match way {
        Way::Search { topic, .. } if topic.is_empty() => topic,
        Way::Search { topic, limit } => {
            let hits = step!("search", io.search(&topic, limit).await?);
            format!("{topic}: {hits}")
        }
        Way::Ask(question) => step!("ask", io.ask(question).await?),
        Way::Nothing => String::new(),
    };
    step!("store", io.store(&text).await?);
    Ok(text)
}"#,
    ),
    (
        "match_on_a_borrow",
        r#"
async fn research(io: Res<Io>, plan: Plan) -> anyhow::Result<usize> {
    match &plan.mode {
        Mode::Tag(tag) => {
            let hits = step!("search", io.search(tag).await?);
            Ok(hits + tag.len() + plan.limit)
        }
        Mode::Plain => Ok(0),
    }
}"#,
    ),
    (
        "let_else",
        r#"
async fn research(io: Res<Io>, topic: String) -> anyhow::Result<usize> {
    let Some(hit) = step!("search", io.search(&topic).await?) else {
        step!("miss", io.miss(&topic).await?);
        return Ok(0);
    };
    step!("store", io.store(&hit).await?);
    Ok(hit.len())
}"#,
    ),
    (
        "loop_that_breaks_with_a_value",
        r#"
async fn research(io: Res<Io>, topic: String) -> anyhow::Result<u32> {
    let mut round = 0;
    let found = loop {
        let hits = step!("search", io.search(&topic, round).await?);
        if hits > 3 {
            break hits;
        }
        round += 1;
    };
    step!("store", io.store(found).await?);
    Ok(found)
}"#,
    ),
    (
        "while_with_a_step_in_its_condition",
        r#"
async fn research(io: Res<Io>) -> anyhow::Result<u32> {
    let mut left = 3;
    while step!("more", io.more(left).await?) {
        left -= 1;
        if left == 1 {
            continue;
        }
        step!("work", io.work(left).await?);
    }
    Ok(left)
}"#,
    ),
    (
        "while_let",
        r#"
async fn research(io: Res<Io>, mut queue: Vec<String>) -> anyhow::Result<()> {
    while let Some(topic) = queue.pop() {
        let more = step!("search", io.search(&topic).await?);
        queue.extend(more);
    }
    Ok(())
}"#,
    ),
    (
        "for_by_value",
        r#"
async fn research(io: Res<Io>, topics: Vec<String>) -> anyhow::Result<usize> {
    let mut total = 0;
    for topic in topics {
        let hits = step!("search", io.search(&topic).await?);
        total += hits;
    }
    Ok(total)
}"#,
    ),
    (
        "for_by_borrow",
        r#"
async fn research(io: Res<Io>, plan: Plan) -> anyhow::Result<usize> {
    let mut total = 0;
    for (n, topic) in plan.topics.iter().enumerate() {
        total += step!("search", io.search(n, topic).await?);
        println!("{topic}");
    }
    Ok(total + plan.topics.len())
}"#,
    ),
    (
        "nested_loops_with_labels",
        r#"
async fn research(io: Res<Io>, grid: Vec<Vec<u32>>) -> anyhow::Result<u32> {
    let mut total = 0;
    'rows: for row in &grid {
        for cell in row {
            let cost = step!("cell", io.cost(*cell).await?);
            if cost == 0 {
                continue 'rows;
            }
            if cost > 9 {
                break 'rows;
            }
            total += cost;
        }
        step!("row", io.row(row.len()).await?);
    }
    Ok(total)
}"#,
    ),
    (
        "let_chain",
        r#"
async fn research(io: Res<Io>, topics: Vec<String>) -> anyhow::Result<usize> {
    if let Some(first) = topics.first().cloned()
        && step!("worth it", io.worth(&first).await?)
        && let Some(hit) = step!("search", io.search(&first).await?)
    {
        return Ok(hit + first.len());
    }
    Ok(0)
}"#,
    ),
    (
        "operands",
        r#"
async fn research(io: Res<Io>, topic: String) -> anyhow::Result<Vec<u32>> {
    let mut notes = Vec::new();
    notes.push(step!("note", io.note(&topic).await?));
    let sum = weigh(topic.len(), step!("a", io.note("a").await?)) + step!("b", io.note("b").await?);
    let point = Point { x: step!("x", io.note("x").await?), y: sum };
    notes.extend([point.x, point.y]);
    Ok(notes)
}"#,
    ),
    (
        "and_or",
        r#"
async fn research(io: Res<Io>, deep: bool) -> anyhow::Result<bool> {
    let worth = deep && step!("worth", io.worth().await?);
    if worth || step!("free", io.free().await?) {
        step!("search", io.search().await?);
    }
    Ok(worth)
}"#,
    ),
    (
        "shadowing",
        r#"
async fn research(io: Res<Io>, topic: String) -> anyhow::Result<String> {
    let seen = &topic;
    let topic = step!("narrow", io.narrow(&topic).await?);
    {
        let topic = topic.len();
        step!("store", io.store(topic).await?);
        println!("{topic}");
    }
    Ok(format!("{seen} {topic}"))
}"#,
    ),
    (
        "same_name_kept_twice",
        r#"
async fn research(io: Res<Io>) -> anyhow::Result<u32> {
    let hits = step!("first", io.search(1).await?);
    let total = {
        let hits = hits + 1;
        let more = step!("second", io.search(2).await?);
        hits + more
    };
    step!("store", io.store(total).await?);
    Ok(hits + total)
}"#,
    ),
    (
        "borrow_across_a_step",
        r#"
async fn research(io: Res<Io>, plan: Plan) -> anyhow::Result<String> {
    let title = &plan.title;
    let label = "report";
    let hits = step!("search", io.search(title).await?);
    Ok(format!("{label} {title} {hits}"))
}"#,
    ),
    (
        "mutable_borrow_taken_again",
        r#"
async fn research(io: Res<Io>) -> anyhow::Result<Vec<u32>> {
    let mut all = vec![1];
    let notes = &mut all;
    notes.push(step!("first", io.note(1).await?));
    notes.push(step!("second", io.note(2).await?));
    Ok(all)
}"#,
    ),
    (
        "fresh_local",
        r#"
async fn research(io: Res<Io>, address: String) -> anyhow::Result<u32> {
    #[fresh]
    let client = connect(&address);
    let a = step!("first", client.get(1).await?);
    let b = step!("second", client.get(a).await?);
    Ok(a + b)
}"#,
    ),
    (
        "unset_local",
        r#"
async fn research(io: Res<Io>, deep: bool) -> anyhow::Result<u32> {
    let hits: u32;
    step!("before", io.search(1).await?);
    if deep {
        hits = step!("deep", io.search(2).await?);
    } else {
        hits = 0;
    }
    step!("store", io.store(hits).await?);
    Ok(hits)
}"#,
    ),
    (
        "moved_on_one_path",
        r#"
async fn research(io: Res<Io>, deep: bool, names: Vec<String>) -> anyhow::Result<usize> {
    let mut names = names;
    if deep {
        spend(names);
        step!("spent", io.search(1).await?);
        names = Vec::new();
    }
    step!("after", io.search(2).await?);
    Ok(names.len())
}"#,
    ),
    (
        "call",
        r#"
async fn research(io: Res<Io>, topic: String) -> anyhow::Result<u32> {
    let plan = step!(io.plan(&topic).await?);
    let found = call!(search(plan.clone()))?;
    let kept = call!(search(plan));
    step!("store", io.store(found).await?);
    Ok(found + kept.unwrap_or(0))
}"#,
    ),
    (
        "call_in_a_match",
        r#"
async fn research(io: Res<Io>, topic: String) -> anyhow::Result<u32> {
    match call!(search(topic.clone())) {
        Ok(found) => Ok(found),
        Err(error) => {
            step!("note", io.note(&topic).await?);
            Err(error.into())
        }
    }
}"#,
    ),
    (
        "generic",
        r#"
pub async fn repeat<T, const N: usize>(value: T, rounds: u32) -> anyhow::Result<Vec<T>>
where
    T: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    let mut all = Vec::new();
    for _ in 0..rounds {
        step!("round", pause(N).await?);
        all.push(value.clone());
    }
    Ok(all)
}"#,
    ),
    (
        "patterns_in_parameters",
        r#"
async fn research(_: &FiberContext, Res(io): Res<Io>, Plan { title, limit }: Plan, (a, mut b): (u32, u32)) -> anyhow::Result<u32> {
    b += step!("search", io.search(&title, limit).await?);
    step!("store", io.store(b).await?);
    Ok(a + b)
}"#,
    ),
    (
        "step_options",
        r#"
async fn research(io: Res<Io>, topic: String) -> anyhow::Result<u32> {
    let hits = step!("search", retry = Retry::times(3), timeout = Duration::from_secs(5), io.search(&topic).await?);
    let paid = step!("pay", was = "charge", |op| io.pay(op.id(), hits).await?);
    Ok(hits + paid)
}"#,
    ),
    (
        "effect",
        r#"
async fn checkout(io: Res<Io>, cents: u32) -> anyhow::Result<u32> {
    let receipt = step!("charge", effect, io.charge(cents).await?);
    Ok(receipt)
}"#,
    ),
    (
        "effect_with_every_option",
        r#"
async fn checkout(io: Res<Io>, order: Order, items: Vec<Item>) -> anyhow::Result<String> {
    let mut total = 0;
    for item in items {
        let check = OnUnknown::check(async |op| io.find(op.id()).await);
        let receipt = step!("charge", effect, key = (&order.id, item.number), on_unknown = check, retry = Retry::times(3), timeout = Duration::from_secs(30), was = "pay", |op| {
            io.charge(op.id(), item.cents).await?
        });
        total += item.cents;
        step!("note", effect, on_unknown = OnUnknown::Retry, io.note(receipt).await?);
    }
    Ok(format!("{total}"))
}"#,
    ),
    (
        "catch",
        r#"
async fn research(io: Res<Io>, topic: String) -> anyhow::Result<u32> {
    let retry = Retry::times(3);
    let found = step!("ask", retry = retry, catch, io.ask(&topic).await?);
    let charge = step!("charge", effect, catch, |op| io.charge(op.id()).await?);
    step!("note", retry = retry, io.note(charge.is_ok()).await?);
    Ok(found?)
}"#,
    ),
    (
        "steps_with_options",
        r#"
async fn research(io: Res<Io>, orders: Vec<Order>) -> anyhow::Result<u32> {
    let (law, sales) = steps!(step!("law", retry = Retry::times(3), io.law().await?), step!(effect, |op| io.sales(op.id()).await?));
    let paid = steps!(for order in orders, limit = 8, effect, key = order.id, catch, |op| io.pay(op.id(), order).await?);
    Ok(law + sales + paid.len() as u32)
}"#,
    ),
    (
        "items_in_the_body",
        r#"
async fn research(io: Res<Io>, deep: bool) -> anyhow::Result<u32> {
    const LIMIT: u32 = 3;
    let hits = step!("search", io.search(limited(LIMIT)).await?);
    fn limited(n: u32) -> u32 {
        n.min(LIMIT)
    }
    if deep {
        struct Note(u32);
        let note = Note(hits).0;
        step!("note", io.note(note).await?);
    }
    Ok(hits)
}"#,
    ),
    (
        "names_and_numbers",
        r#"
async fn research(io: Res<Io>) -> anyhow::Result<u32> {
    step!(io.search(1).await?);
    step!(io.search(2).await?);
    step!("search#x".len());
    let plan = step!(io.search(3).await?);
    let plan = plan + step!({ 1 });
    let _ignored = step!(r#move(plan));
    step!("plan", io.search(plan).await?);
    Ok(plan)
}"#,
    ),
    (
        "without_steps",
        r"
async fn research(topic: String) -> anyhow::Result<usize> {
    Ok(topic.len())
}",
    ),
    (
        "labelled_block",
        r#"
async fn research(io: Res<Io>, topic: String) -> anyhow::Result<u32> {
    let found = 'found: {
        let hits = step!("search", io.search(&topic).await?);
        if hits > 3 {
            break 'found hits;
        }
        step!("again", io.search(&topic).await?)
    };
    step!("store", io.store(found).await?);
    Ok(found)
}"#,
    ),
    (
        "three_levels_deep",
        r#"
async fn research(io: Res<Io>, plan: Plan) -> anyhow::Result<Vec<String>> {
    let mut notes = Vec::new();
    for topic in &plan.topics {
        let mut page = 0;
        while step!("more", io.more(topic, page).await?) {
            match step!("fetch", io.fetch(topic, page).await?) {
                Some(text) if text.is_empty() => {}
                Some(text) => notes.push(step!("summarise", io.summarise(&text).await?)),
                None => break,
            }
            page += 1;
        }
    }
    Ok(notes)
}"#,
    ),
    (
        "sleep",
        r#"
async fn research(io: Res<Io>, fiber: String, due: SystemTime) -> anyhow::Result<String> {
    let days = step!(io.days(&fiber).await?);
    sleep!(Duration::from_secs(86_400 * days));
    while step!("more", io.more().await?) {
        sleep_until!(due);
    }
    Ok(fiber)
}"#,
    ),
    (
        "recv",
        r#"
async fn research(io: Res<Io>, mut topic: String) -> anyhow::Result<String> {
    let wanted: bool = recv!("approval");
    if wanted && recv!("sure") {
        while let Some(line) = recv!("line", timeout = Duration::from_secs(60)) {
            topic.push_str(line);
        }
    }
    let () = recv!("go # 1");
    Ok(topic)
}"#,
    ),
    (
        "inbox",
        r#"
async fn research(io: Res<Io>, mut topic: String) -> anyhow::Result<Vec<String>> {
    while let Some(line) = try_recv!("line") {
        topic.push_str(line);
    }
    let (which, note): (String, String) = try_recv!([topic.as_str(), "note"]).unwrap_or_default();
    let rest: Vec<String> = close!(format!("{which}-{note}"));
    let mut all: Vec<String> = close!("line", name = "lines", was = "all");
    all.extend(rest);
    Ok(all)
}"#,
    ),
    (
        "select",
        r#"
async fn research(io: Res<Io>, topic: String) -> anyhow::Result<String> {
    let helper = spawn!(search(topic.clone()));
    let text = select! {
        "decision", was = "text",
        found = wait!(&helper)? => step!("found", io.note(&topic, found).await?),
        (which, why): (String, String) = recv!(["cancel", "skip"]) => return Ok(which + &why),
        answer: Option<String> = recv!(format!("answer-{topic}"), timeout = Duration::from_secs(60)) => answer.unwrap_or_default(),
        _ = sleep!(step!(io.patience().await?)) => topic,
    };
    Ok(text)
}"#,
    ),
    (
        "computed_topics",
        r#"
async fn research(io: Res<Io>, ids: Vec<u32>) -> anyhow::Result<u32> {
    let mut sum = 0;
    for id in &ids {
        let n: u32 = recv!(format!("answer-{id}"), name = "answer");
        sum += n;
    }
    let (topic, more): (String, u32) = recv!(["more", "less"]);
    #[was = "all"]
    let total: u32 = sum + more;
    step!("note", io.note(topic).await?);
    Ok(total)
}"#,
    ),
    (
        "spawn_and_wait",
        r"
async fn research(io: Res<Io>, topics: Vec<String>) -> anyhow::Result<u32> {
    let first = spawn!(search(step!(io.first().await?)));
    let mut handles = Vec::new();
    for topic in topics {
        handles.push(spawn!(search(topic)));
    }
    let found = wait!(&first)?;
    let again = wait!(first);
    let all = wait_all!(handles);
    Ok(found + again.unwrap_or(0) + all.len() as u32)
}",
    ),
    (
        "steps",
        r"
async fn research(io: Res<Io>, topic: String) -> anyhow::Result<u32> {
    let mut found = Vec::new();
    let (web, library) = steps!(io.web(&topic).await?, { let shelf = io.shelf(&found).await?; io.library(&topic, shelf).await? });
    found.push(web);
    found.push(library);
    Ok(found.len() as u32)
}",
    ),
    (
        "steps_for_each",
        r"
async fn research(io: Res<Io>, topics: Vec<String>, limit: usize) -> anyhow::Result<Vec<u32>> {
    let pages = steps!(for topic in &topics, limit = limit, io.search(topic).await?);
    let ranks = steps!(for (topic, page) in topics.into_iter().zip(pages), io.rank(topic, page).await?);
    Ok(ranks)
}",
    ),
];

/// Much of the language in one function.
pub(super) const RICH: &str = r#"
/// Researches a topic.
#[allow(dead_code)]
pub(crate) async fn research<T, const N: usize>(ctx: &FiberContext, io: Res<Io>, plan: Plan, (a, mut b): (u32, Vec<T>)) -> anyhow::Result<Report<T>>
where
    T: Clone + Serialize + DeserializeOwned + Send + 'static,
{
    const LIMIT: usize = 3;
    let Plan { title, questions, mode } = plan;
    #[fresh]
    let client = io.connect(&title);
    let mut notes: Vec<String> = Vec::new();
    let label = "report";
    'questions: for question in questions {
        let hits = step!("search", retry = Retry::times(3), timeout = Duration::from_secs(5), client.search(&question).await?);
        if hits.is_empty() {
            continue 'questions;
        } else if let Some(hit) = hits.first().cloned() && step!("worth", io.worth(&hit).await?) && N > 2 {
            notes.push(step!(io.summarise(&question, &hit).await?));
        }
        for (n, hit) in hits.iter().enumerate().skip(1) {
            let text = match &mode {
                Mode::Tag(tag) if tag.len() > n => format!("{tag:>n$}{{}}"),
                Mode::Tag(tag) | Mode::Other { tag, .. } => step!("tag", effect, key = (tag, n), on_unknown = OnUnknown::Retry, |op| io.tag(op.id(), tag, hit).await?),
                _ => break,
            };
            println!("{label}: {text:?} {}", notes.len());
            notes.push(text);
        }
        let Ok(count) = call!(count(question.clone(), n_of(a))) else {
            step!("miss", io.miss(&question).await?);
            break 'questions;
        };
        b.extend(std::iter::repeat_n(b[0].clone(), count));
    }
    let last = loop {
        while step!("more", io.more(notes.len()).await?) {
            notes.pop();
        }
        let title = &title;
        let kept = &mut notes;
        kept.push(step!("close", io.close(title).await?));
        kept.push(step!("close again", io.close(title).await?));
        if kept.len() > LIMIT {
            break Point { x: step!(io.x().await?), y: -weigh(a, step!({ io.y().await? })) as i64 };
        }
    };
    sleep!(Duration::from_secs(notes.len() as u64));
    while let Some(note) = recv!("note", timeout = Duration::from_secs(60)) {
        notes.push(note);
    }
    let helper = spawn!(count(title.clone(), n_of(recv!("helpers"))));
    let (lengths, first) = steps!(io.lengths(&notes).await?, io.first(&title).await?);
    notes.extend(steps!(for (n, note) in lengths.iter().zip(&notes), limit = 2 * LIMIT, { io.cut(note, *n).await? }));
    let helped = wait!(&helper)? + wait_all!([helper]).len() as u32 + first;
    sleep_until!(io.due(helped));
    let total = (a + 1) * step!("price", io.price().await?) + last.x[step!("at", io.at().await?)];
    let names = { let title = title.len(); step!("names", async { io.names(title).await }.await?) };
    unsafe { step!("raw", io.raw().await?) };
    let report = names.iter().map(|name| format!("{name}{total}")).collect();
    Ok(Report { report, notes, b })
}
"#;
