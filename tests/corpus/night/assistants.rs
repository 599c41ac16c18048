//! Assistants: context, fallbacks, retries with feedback, routing.
use std::time::SystemTime;

use crate::prelude::*;

#[derive(Debug)]
enum AskError {
    Empty,
    Model { name: String, source: anyhow::Error },
    Json(serde_json::Error),
}

impl std::fmt::Display for AskError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AskError::Empty => f.write_str("nothing was asked"),
            AskError::Model { name, source } => write!(f, "{name}: {source}"),
            AskError::Json(error) => write!(f, "line {} is no JSON", error.line()),
        }
    }
}

impl std::error::Error for AskError {}

impl From<serde_json::Error> for AskError {
    fn from(error: serde_json::Error) -> Self {
        AskError::Json(error)
    }
}

async fn ask(io: &Io, model: &str, prompt: &str) -> Result<String, AskError> {
    io.log(format!("{model} on {prompt}"));
    match prompt {
        "" => Err(AskError::Empty),
        _ if model == "broken" => Err(AskError::Model { name: model.to_owned(), source: anyhow!("overloaded") }),
        _ => Ok(format!("{{\"{model}\": {}}}", prompt.len())),
    }
}

twin! {
    async fn answer_as_json(io, models: Vec<String>, prompt: String) -> Result<BTreeMap<String, u32>, AskError> {
        let mut merged = BTreeMap::new();
        for model in &models {
            let text = step!("ask", ask(&io, model, &prompt).await?);
            let mut part: BTreeMap<String, u32> = serde_json::from_str(text.trim_end_matches('!'))?;
            merged.append(&mut part);
        }
        step!("done", io.get(format!("{} answers", merged.len()), ()).await);
        if merged.is_empty() { Err(AskError::Empty) } else { Ok(merged) }
    }
}

twin! {
    async fn fall_back_to_a_smaller_model(io, prompt: String) -> anyhow::Result<(String, u32)> {
        let mut failures: Vec<String> = Vec::new();
        for (rank, model) in ["broken", "flaky", "small"].into_iter().enumerate() {
            let answer = step!("ask", retry = Retry::times(2).backoff(Backoff::none()), timeout = Duration::from_secs(60), catch, |op| {
                io.log(format!("{model} try {}", op.attempt()));
                ensure!(rank > 0, "{model} is down");
                ensure!(rank > 1 || op.attempt() > 2, "{model} hiccups");
                prompt.len() as u32 * op.attempt()
            });
            match answer {
                Ok(answer) => return Ok((format!("{model} after {failures:?}"), answer)),
                Err(error) if error.is_timeout() => failures.push("timeout".into()),
                Err(error) => {
                    let cost = step!("bill", io.did(format!("bill {} tries", error.attempts()), error.attempts() * 3).await?);
                    failures.push(format!("{error} ({cost})"));
                }
            }
        }
        bail!("no model answers: {}", failures.join("; "))
    }
}

twin! {
    async fn gather_context_side_by_side(io, user: u32) -> anyhow::Result<String> {
        let (name, orders, weather) = steps!(
            step!("name", now(&io, format!("name of {user}"), format!("user{user}")).await?),
            step!("orders", catch, {
                ensure!(user % 2 == 0, "no orders of {user}");
                now(&io, "orders", vec![user, user + 1]).await?
            }),
            now(&io, "weather", 21.5f32).await?,
        );
        let greeting = if weather > 20.0 { "A warm hello" } else { "Hello" };
        let mut lines = vec![format!("{greeting}, {name}")];
        match orders {
            Ok(orders) => {
                for order in orders.iter().rev() {
                    let state = step!("state", io.did(format!("state of {order}"), order % 3).await?);
                    lines.push(format!("order {order} is {}", ["new", "paid", "sent"][state as usize]));
                }
            }
            Err(error) => lines.push(format!("({error})")),
        }
        step!("send", io.did(format!("{} lines", lines.len()), ()).await?);
        Ok(lines.join("\n"))
    }
}

twin! {
    async fn book_a_table_only_once(io, guests: Vec<String>) -> anyhow::Result<String> {
        let seats = guests.len();
        let booked = step!(
            "book",
            effect,
            key = (seats, guests.first()),
            on_unknown = OnUnknown::check(async |op| Ok::<_, anyhow::Error>((!op.id().is_empty()).then(|| format!("table for {seats}")))),
            |op| {
                ensure!(!op.id().is_empty(), "no id");
                io.did(format!("book {seats}"), format!("table for {seats}")).await?
            }
        );
        let mut told = 0;
        for guest in guests.into_iter().filter(|g| !g.starts_with('-')).collect::<VecDeque<_>>() {
            step!("tell", io.did(format!("tell {guest} about the {booked}"), ()).await?);
            told += 1;
        }
        Ok(format!("{booked}, {told} told"))
    }
}

twin! {
    async fn poll_a_long_job(io, id: String) -> anyhow::Result<u32> {
        let started = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        let mut next = started;
        for tick in 1u32.. {
            sleep_until!(next);
            let progress = step!("poll", io.did(format!("poll {id} {tick}"), (tick * 40).min(100)).await?);
            let elapsed = next.duration_since(started)?.as_secs();
            if progress == 100 {
                step!("fetch", io.did(format!("fetch after {elapsed} s"), ()).await?);
                return Ok(tick);
            }
            if elapsed > 600 {
                break;
            }
            next += Duration::from_secs(60) * tick;
        }
        Err(anyhow!("{id} takes too long"))
    }
}

twin! {
    async fn embed_in_batches_that_fit(io, texts: Vec<String>, limit: usize) -> anyhow::Result<Vec<(usize, u64)>> {
        let mut waiting: VecDeque<String> = texts.into();
        let mut vectors = Vec::new();
        while !waiting.is_empty() {
            let mut size = 0;
            let fits = waiting.iter().take_while(|t| { size += t.len(); size <= limit }).count().max(1);
            let batch: Vec<String> = waiting.drain(..fits).collect();
            let hashes = steps!(for text in &batch, limit = 2, retry = Retry::times(1).backoff(Backoff::none()), {
                let hash = text.bytes().fold(7u64, |h, b| h.wrapping_mul(31).wrapping_add(u64::from(b)));
                now(&io, format!("embed {text}"), hash).await?
            });
            let first = vectors.len();
            vectors.extend(hashes.into_iter().enumerate().map(|(i, h)| (first + i, h)));
            step!("progress", io.did(format!("{} left", waiting.len()), ()).await?);
        }
        Ok(vectors)
    }
}

twin! {
    async fn retry_with_feedback(io, schema: Vec<String>) -> anyhow::Result<BTreeMap<String, u32>> {
        let mut feedback: Option<String> = None;
        for attempt in 1..=4 {
            let prompt = match &feedback {
                None => "Give me JSON".to_string(),
                Some(problem) => format!("Give me JSON. Last time: {problem}"),
            };
            let raw = step!("generate", {
                let text = match attempt {
                    1 => "not json".to_string(),
                    2 => r#"{"age": 3}"#.to_string(),
                    _ => format!("{{{}}}", schema.iter().enumerate().map(|(i, k)| format!("\"{k}\": {i}")).collect::<Vec<_>>().join(",")),
                };
                io.did(format!("{attempt}: {prompt}"), text).await?
            });
            let parsed: BTreeMap<String, u32> = match serde_json::from_str(&raw) {
                Ok(parsed) => parsed,
                Err(e) => {
                    feedback = Some(format!("line {} is no JSON", e.line()));
                    continue;
                }
            };
            match schema.iter().filter(|key| !parsed.contains_key(*key)).cloned().collect::<Vec<_>>().as_slice() {
                [] => return Ok(parsed),
                [one] => feedback = Some(format!("{one} is missing")),
                [first, .., last] => feedback = Some(format!("{first} to {last} are missing")),
            }
        }
        bail!("never valid: {}", feedback.unwrap_or_default())
    }
}

twin! {
    async fn route_to_a_specialist(io, question: String) -> anyhow::Result<String> {
        let route = step!("classify", io.did("classify", question.split(' ').next().map(str::to_lowercase)).await?);
        let answer = match route.as_deref() {
            Some("bill" | "invoice") => step!("billing", io.did("billing", "paid").await?).to_string(),
            Some(word) if word.len() > 6 => {
                let draft = step!("long", io.did(format!("long {word}"), word.to_owned()).await?);
                let checked = step!("check", io.did("check", draft.len()).await?);
                format!("{draft}{checked}")
            }
            Some(_) => step!("general", io.did("general", question.clone()).await?),
            None => return Err(anyhow!("an empty question")),
        };
        let signed = answer + " -- the desk";
        step!("send", io.did(signed.clone(), ()).await?);
        Ok(signed)
    }
}

twin! {
    async fn language_detection_then_translation(io, messages: Vec<String>) -> anyhow::Result<String> {
        let mut languages: HashMap<String, u32> = HashMap::new();
        let mut english = Vec::new();
        for message in &messages {
            let language = step!("detect", io.did("detect", if message.contains('ä') { "de".to_string() } else { "en".to_string() }).await?);
            *languages.entry(language.clone()).or_default() += 1;
            let text = if language == "en" {
                message.clone()
            } else {
                let translated = step!("translate", io.did(format!("translate from {language}"), message.replace('ä', "ae")).await?);
                format!("{translated} [{language}]")
            };
            english.push(text);
        }
        let (main, _) = languages.into_iter().max_by(|a, b| (a.1, &b.0).cmp(&(b.1, &a.0))).ok_or_else(|| anyhow!("no messages"))?;
        let reply = step!("reply", io.did(format!("reply to {}", english.join(" | ")), "ok".to_string()).await?);
        Ok(if main == "en" { reply } else { step!("back", io.did("translate back", format!("{reply} ({main})")).await?) })
    }
}

twin! {
    async fn knowledge_base_lookup_with_fallbacks(io, question: String) -> anyhow::Result<(String, u8)> {
        let tried: Result<(String, u8), String> = 'found: {
            if let Some(hit) = step!("exact", io.did("exact", question.strip_suffix('?').map(str::to_owned)).await?) {
                break 'found Ok((hit, 1));
            }
            let words: Vec<String> = question.split_whitespace().filter(|w| w.len() > 3).map(Into::into).collect();
            for word in &words {
                if let Some(n @ 1..) = step!("word", io.did(format!("word {word}"), word.find('e')).await?) {
                    break 'found Ok((format!("{word} at {n}"), 2));
                }
            }
            match step!("vector", io.did("vector", words.first().cloned()).await?) {
                Some(near) if near != "nothing" => Ok((near, 3)),
                Some(_) => Err("only nothing".to_string()),
                None => Err(format!("no words in {question:?}")),
            }
        };
        let (answer, tier) = tried.map_err(anyhow::Error::msg)?;
        step!("count", io.did(format!("tier {tier}"), ()).await?);
        Ok((answer, tier))
    }
}

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

corpus! {
    answer_as_json => completes(|| answer_as_json(texts(&["a", "b"]), "why".into())), fails("broken: overloaded", || answer_as_json(texts(&["a", "broken"]), "why".into())),
        fails("nothing was asked", || answer_as_json(texts(&["a"]), String::new())), fails("line 1 is no JSON", || answer_as_json(texts(&["\""]), "x".into()));
    fall_back_to_a_smaller_model => completes(|| fall_back_to_a_smaller_model("abc".into()));
    gather_context_side_by_side => completes(|| gather_context_side_by_side(4)), completes(|| gather_context_side_by_side(5));
    book_a_table_only_once => completes(|| book_a_table_only_once(texts(&["ada", "-bob", "cid"])));
    poll_a_long_job => completes(|| poll_a_long_job("j".into()));
    embed_in_batches_that_fit => completes(|| embed_in_batches_that_fit(texts(&["a", "bb", "cccc", "dd", "eeeeeeee", "f"]), 5));
    retry_with_feedback => completes(|| retry_with_feedback(vec!["age".into(), "size".into(), "weight".into()]));
    route_to_a_specialist => completes(|| route_to_a_specialist("Invoice 7".into())), completes(|| route_to_a_specialist("Somewhat long".into())),
        completes(|| route_to_a_specialist("hi there".into()));
    language_detection_then_translation => completes_hashed(|| language_detection_then_translation(vec!["a".into(), "ä".into(), "ää".into()])),
        completes_hashed(|| language_detection_then_translation(vec!["a".into(), "b".into(), "ää".into()]));
    knowledge_base_lookup_with_fallbacks => completes(|| knowledge_base_lookup_with_fallbacks("what?".into())),
        completes(|| knowledge_base_lookup_with_fallbacks("open seven doors".into())), completes(|| knowledge_base_lookup_with_fallbacks("xxxx yyyy".into())),
        fails("no words", || knowledge_base_lookup_with_fallbacks("a b".into()));
}
