//! A newsroom: paths that leave, values that are set late or dropped, parts that are moved, and views of what is outside of a
//! block.
use crate::prelude::*;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Story {
    title: String,
    body: Option<String>,
    desk: Desk,
    sources: Vec<(String, u32)>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Desk {
    Local { city: String, stringers: Vec<String> },
    Wire(String),
    Nobody,
}

impl Desk {
    fn label(&self) -> &'static str {
        match self {
            Desk::Local { .. } => "local",
            Desk::Wire(_) => "wire",
            Desk::Nobody => "none",
        }
    }
}

fn story(title: &str) -> Story {
    Story {
        title: title.to_owned(),
        body: (title.len() % 2 == 0).then(|| format!("{title}..")),
        desk: Desk::Local { city: "Ulm".into(), stringers: vec!["kim".into(), "lee".into()] },
        sources: vec![("mayor".into(), 2), ("clerk".into(), 5)],
    }
}

fn spike(why: &str) -> ! {
    panic!("spiked: {why}")
}

// Ends of every kind.

twin! {
    async fn a_story_without_a_body(io, story: Story) -> anyhow::Result<String> {
        let Some(body) = story.body else {
            let asked = step!("ask", io.did(format!("ask for {}", story.title), story.title.len()).await?);
            if asked > 5 { bail!("no body: {asked}") }
            match story.desk {
                Desk::Wire(_) => unreachable!("the wire has bodies"),
                Desk::Local { .. } if asked == 3 => return Ok(step!("short", io.did("short", "short".to_owned()).await?)),
                Desk::Local { city, .. } => {
                    step!("city", io.did(city.as_str(), ()).await?);
                    Err(anyhow!("{city} owes a body"))?
                }
                Desk::Nobody => todo!(),
            }
        };
        step!("print", io.did(body.clone(), ()).await?);
        Ok(body)
    }
}

twin! {
    async fn headlines_until_one_is_taken(io, titles: Vec<String>) -> anyhow::Result<String> {
        let (taken, at);
        let mut tries = 0;
        'pages: loop {
            for (place, title) in titles.iter().enumerate() {
                tries += 1;
                let Some(first) = title.chars().next() else { continue 'pages };
                if tries > 9 { return Err(anyhow!("tired after {title}")) }
                let mark = step!("mark", io.did(format!("{title} {first}"), title.len() * tries).await?);
                if mark % 4 != 0 { continue }
                taken = title.clone();
                at = place;
                break 'pages;
            }
            if tries > 5 {
                return Ok(step!("give up", io.did("give up", format!("none of {tries}")).await?));
            }
        }
        step!("taken", io.did(format!("{taken} at {at}"), ()).await?);
        Ok(format!("{taken}{at}{tries}"))
    }
}

twin! {
    async fn values_that_nothing_takes(io, n: u32) -> anyhow::Result<u32> {
        let mut count = n;
        { count += 1; step!("block", io.did("block", count).await?) };
        loop { step!("loop", io.did("loop", count).await?); count += 1; if count > 4 { break count * 2; } };
        'a: { if count % 2 == 1 { break 'a step!("odd", io.did("odd", 1).await?); } step!("even", io.did("even", 2).await?) };
        if count > 2 { step!("if", io.did("if", 3).await?) } else { 4 };
        match count { 5 => step!("five", io.did("five", "x".to_owned()).await?), _ => String::new() };
        (step!("tuple", io.did("tuple", 1).await?), count);
        let _ = { step!("under", io.did("under", vec![1]).await?) };
        drop(step!("dropped", io.did("dropped", vec![2]).await?));
        _ = step!("assigned", io.did("assigned", 1).await?) + count;
        Ok(count)
    }
}

twin! {
    async fn corrections_with_every_jump(io, lines: Vec<String>) -> anyhow::Result<Vec<String>> {
        let mut out = vec![];
        'lines: for line in lines {
            let words = line.split(' ').map(str::to_owned).collect::<Vec<_>>();
            let fixed = 'word: {
                let [first, second, ..] = &words[..] else { break 'word None };
                if first == "skip" { continue 'lines }
                if first == "stop" { break 'lines }
                let n: u32 = match second.parse() {
                    Ok(n) => n,
                    Err(_) if second == "none" => break 'word Some(String::new()),
                    Err(error) => {
                        step!("bad", io.did(format!("{error}: {second}"), ()).await?);
                        return Ok(out);
                    }
                };
                let n = loop {
                    match step!("check", io.did(format!("{first} {n}"), n % 3).await?) {
                        0 => break 0,
                        1 => break 'word Some(format!("{first}!")),
                        _ => break n / 2,
                    }
                };
                (n > 1).then(|| format!("{second}/{n}"))
            };
            out.extend(fixed);
            step!("line", io.did(format!("{} {}", words.len(), out.len()), ()).await?);
        }
        Ok(out)
    }
}

twin! {
    async fn fields_set_on_some_paths(io, desk: Desk) -> anyhow::Result<String> {
        let name: String;
        let (size, label);
        match &desk {
            Desk::Local { city, stringers } if !stringers.is_empty() => {
                size = step!("size", io.did(city.as_str(), stringers.len()).await?);
                label = if size > 1 { step!("label", io.did("label", "many".to_owned()).await?) } else { "one".into() };
                name = city.clone();
            }
            Desk::Wire(service) => {
                name = step!("wire", io.did(service.as_str(), service.to_lowercase()).await?);
                (size, label) = (name.len(), service.clone());
            }
            other => {
                step!("other", io.did(other.label(), ()).await?);
                return Ok("none".into());
            }
        }
        let kept;
        if size > 2 { kept = label; } else { kept = step!("kept", io.did(label, "small".to_owned()).await?); }
        Ok(format!("{name} {size} {kept} {}", desk.label()))
    }
}

// Parts that go their own ways.

twin! {
    async fn a_story_taken_apart(io, story: Story) -> anyhow::Result<String> {
        let title = story.title;
        step!("title", io.did(title.clone(), ()).await?);
        let sources = story.sources.len();
        let body = story.body.unwrap_or_default();
        step!("body", io.did(format!("{body} {sources}"), ()).await?);
        let (desk, thanked) = (story.desk, story.sources);
        let shown = match desk {
            Desk::Local { city, mut stringers } => {
                stringers.retain(|s| s.len() > 2);
                let lead = stringers.pop();
                step!("city", io.did(format!("{city} {lead:?}"), ()).await?);
                format!("{city} {stringers:?} {lead:?}")
            }
            Desk::Wire(service) => step!("service", io.did("service", service).await?),
            Desk::Nobody => String::new(),
        };
        for (who, weight) in thanked {
            step!("thank", io.did(format!("{who} {weight}"), ()).await?);
        }
        Ok(format!("{title} {shown}"))
    }
}

twin! {
    async fn parts_moved_on_one_path(io, story: Story, n: u32) -> anyhow::Result<String> {
        let mut story = story;
        let mut said = vec![];
        if n > 1 {
            let body = story.body.take();
            said.push(step!("body", io.did(format!("{body:?}"), body.unwrap_or_default()).await?));
        } else {
            let desk = std::mem::replace(&mut story.desk, Desk::Nobody);
            step!("desk", io.did(desk.label(), ()).await?);
            if let Desk::Local { city, .. } = desk { said.push(city) }
        }
        story.title.push_str(&said.concat());
        let Story { title, desk, .. } = &story;
        let label = desk.label();
        let longer = format!("{title}{label}");
        step!("longer", io.did(longer, ()).await?);
        let sources: BTreeMap<_, _> = story.sources.into_iter().collect();
        let top = sources.iter().max_by_key(|(_, n)| **n).map(|(who, _)| who.clone());
        step!("top", io.did(format!("{top:?}"), ()).await?);
        Ok(format!("{} {label} {top:?} {}", story.title, sources.len()))
    }
}

// Views of what is outside of the block that gives them.

twin! {
    async fn the_first_source_that_fails(io, sources: Vec<String>, limit: u32) -> anyhow::Result<String> {
        let failed = 'check: {
            for source in sources.iter() {
                let score = step!("score", io.did(source.as_str(), source.len() as u32).await?);
                if score > limit { break 'check Some(source.as_str()) }
            }
            None
        };
        Ok(match failed { Some(source) => format!("{source} fails"), None => "all hold".to_owned() })
    }
}

twin! {
    async fn the_better_of_two_titles(io, story: Story, other: Story) -> anyhow::Result<String> {
        let better = if step!("length", io.did("length", story.title.len()).await?) > 3 {
            let votes = step!("votes", io.did("votes", other.title.len()).await?);
            if votes > 4 { &other.title } else { &story.title }
        } else {
            &other.title
        };
        Ok(better.to_uppercase())
    }
}

twin! {
    async fn the_desk_that_answers(io, desks: BTreeMap<String, Desk>) -> anyhow::Result<String> {
        let mut names = desks.keys().cloned().collect::<VecDeque<_>>();
        let desk = loop {
            let Some(name) = names.pop_front() else { break None };
            if step!("call", io.did(format!("call {name}"), name.len()).await?) > 3 { break desks.get(&name) }
        };
        let label = match desk { Some(Desk::Local { city, .. }) => city.as_str(), Some(desk) => desk.label(), None => "nobody" };
        Ok(label.to_owned())
    }
}

twin! {
    async fn the_label_of_a_match(io, story: Story, n: u32) -> anyhow::Result<(String, usize)> {
        let label = match n {
            0 => { step!("zero", io.did("zero", ()).await?); "zero" }
            1 => story.desk.label(),
            n if n % 2 == 0 => if step!("even", io.did("even", n > 2).await?) { "many" } else { story.desk.label() },
            _ => { step!("odd", io.did("odd", ()).await?); story.desk.label() }
        };
        let word = { let pick = step!("pick", io.did("pick", 1usize).await?); &story.sources[pick].0[..] };
        Ok((label.to_owned(), word.len()))
    }
}

twin! {
    async fn a_view_that_is_set_on_each_path(io, story: Story, other: Story) -> anyhow::Result<String> {
        let best;
        if step!("first", io.did("first", story.title.len()).await?) > 3 {
            best = &story.title;
        } else {
            let n = step!("second", io.did("second", other.title.len()).await?);
            best = if n > 3 { &other.title } else { &story.title };
        }
        let shown = format!("{best} of {}", story.sources.len());
        step!("shown", io.did(shown.as_str(), ()).await?);
        let counted = {
            let by = step!("by", io.did("by", 2).await?);
            move |n: usize| n * by
        };
        let counted = counted(story.title.len());
        let longest = loop {
            let at = step!("at", io.did("at", 1usize).await?);
            match other.sources.get(at) {
                Some((name, weight)) if *weight > 3 => break (name, *weight),
                _ => return Ok(shown),
            }
        };
        Ok(format!("{shown} {} {longest:?}", counted))
    }
}

corpus! {
    a_view_that_is_set_on_each_path => completes(|| a_view_that_is_set_on_each_path(story("abcd"), story("x"))), completes(|| a_view_that_is_set_on_each_path(story("abc"), story("wxyz"))), completes(|| a_view_that_is_set_on_each_path(story("abc"), story("xyz")));
    a_story_without_a_body => fails("owes", || a_story_without_a_body(story("abcde"))),
        completes(|| a_story_without_a_body(story("abc"))), fails("no body", || a_story_without_a_body(story("abcdefg")));
    headlines_until_one_is_taken => completes(|| headlines_until_one_is_taken(["abc", "ab", "defg"].map(String::from).into())), completes(|| headlines_until_one_is_taken(["x", "y", "z"].map(String::from).into())),
        completes(|| headlines_until_one_is_taken(["x", "y", "", "z"].map(String::from).into()));
    values_that_nothing_takes => completes(|| values_that_nothing_takes(0)), completes(|| values_that_nothing_takes(6));
    corrections_with_every_jump => completes(|| corrections_with_every_jump(["a 4", "skip 1", "b 5", "c 9", "one", "d none", "e x", "stop it"].map(String::from).into())),
        completes(|| corrections_with_every_jump(["f 6", "g 10", "stop it", "h 1"].map(String::from).into()));
    fields_set_on_some_paths => completes(|| fields_set_on_some_paths(story("x").desk)), completes(|| fields_set_on_some_paths(Desk::Wire("W".into())));
    a_story_taken_apart => completes(|| a_story_taken_apart(story("dam"))), completes(|| a_story_taken_apart(Story { desk: Desk::Wire("w".into()), ..story("dams") }));
    parts_moved_on_one_path => completes(|| parts_moved_on_one_path(story("dams"), 1)), completes(|| parts_moved_on_one_path(story("dams"), 2));
    the_first_source_that_fails => completes(|| the_first_source_that_fails(["ab", "abcd", "a"].map(String::from).into(), 3)), completes(|| the_first_source_that_fails(["ab", "a"].map(String::from).into(), 3));
    the_better_of_two_titles => completes(|| the_better_of_two_titles(story("dams"), story("bridges"))), completes(|| the_better_of_two_titles(story("dams"), story("dam")));
    the_desk_that_answers => completes(|| the_desk_that_answers([("abc".to_owned(), Desk::Nobody), ("wires".into(), Desk::Wire("x".into()))].into())), completes(|| the_desk_that_answers([("a".to_owned(), Desk::Nobody), ("b".into(), Desk::Nobody)].into()));
    the_label_of_a_match => completes(|| the_label_of_a_match(story("a"), 3)), completes(|| the_label_of_a_match(story("a"), 2));
}
