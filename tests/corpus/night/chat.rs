//! Conversations: memory, summaries, hand-offs between agents, games.
use crate::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Role {
    System,
    User,
    Assistant,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Turn {
    role: Role,
    content: String,
}

trait Transcript {
    fn tokens(&self) -> usize;
    fn last_of(&self, role: Role) -> Option<&Turn>;
}

impl Transcript for Vec<Turn> {
    fn tokens(&self) -> usize {
        self.iter().map(|t| t.content.len() / 4 + 1).sum()
    }

    fn last_of(&self, role: Role) -> Option<&Turn> {
        self.iter().rev().find(|t| t.role == role)
    }
}

fn turn(role: Role, content: impl Into<String>) -> Turn {
    Turn { role, content: content.into() }
}

twin! {
    async fn conversation_with_compaction(io, lines: Vec<String>, budget: usize) -> anyhow::Result<Vec<Turn>> {
        let system = turn(Role::System, "Be brief.");
        let mut transcript = vec![system.clone()];
        for line in lines {
            transcript.push(turn(Role::User, line));
            if transcript.tokens() > budget {
                let old: Vec<Turn> = transcript.drain(1..transcript.len() - 1).collect();
                let summary = step!("compact", io.did(format!("compact {} turns", old.len()), format!("[{}]", old.len())).await?);
                transcript.insert(1, turn(Role::System, summary));
            }
            let prompt: usize = transcript.tokens();
            let reply = step!("reply", io.did(format!("reply to {prompt}"), format!("r{prompt}")).await?);
            transcript.push(turn(Role::Assistant, reply));
        }
        ensure!(transcript.first() == Some(&system), "the system prompt is gone");
        Ok(transcript)
    }
}

twin! {
    async fn hand_off_between_agents(io, request: String) -> anyhow::Result<Vec<String>> {
        let agents: BTreeMap<&str, Vec<&str>> = BTreeMap::from([("front", vec!["sales", "tech"]), ("sales", vec!["front"]), ("tech", vec![])]);
        let mut current = "front";
        let mut path = vec![current.to_string()];
        for hop in 0..4usize {
            let targets = agents[current].clone();
            let choice: Option<usize> = step!("decide", io.did(format!("{current}: {request}"), (!targets.is_empty()).then(|| (request.len() + hop) % targets.len())).await?);
            match choice.and_then(|i| targets.get(i)) {
                Some(next) => current = *next,
                None => break,
            }
            path.push(current.to_string());
        }
        step!("done", io.did(path.join(">"), ()).await?);
        Ok(path)
    }
}

twin! {
    async fn slot_filling(io, mut_slots: BTreeMap<String, Option<String>>) -> anyhow::Result<String> {
        let mut slots = mut_slots;
        let mut questions = 0;
        while let Some(name) = slots.iter().find(|(_, value)| value.is_none()).map(|(name, _)| name.clone()) {
            questions += 1;
            step!("ask", io.did(format!("what is your {name}?"), ()).await?);
            let Some(answer) = recv!(format!("answer to {name}"), timeout = SHORT) else {
                let fallback = step!("guess", io.did(format!("guess {name}"), name.chars().rev().collect::<String>()).await?);
                slots.insert(name, Some(fallback));
                continue;
            };
            let answer: String = answer;
            if answer.is_empty() {
                bail!("no {name}, no booking");
            }
            *slots.get_mut(&name).unwrap() = Some(answer);
        }
        let filled: Vec<String> = slots.into_iter().filter_map(|(k, v)| v.map(|v| format!("{k}={v}"))).collect();
        Ok(format!("{} ({questions})", filled.join(" ")))
    }
}

twin! {
    async fn guess_the_number(io, secret: u32) -> anyhow::Result<u32> {
        let mut range = 0..=100u32;
        let mut guesses = 0;
        loop {
            let (low, high) = (*range.start(), *range.end());
            if low > high {
                return Err(anyhow!("{secret} is not there"));
            }
            let guess = low + (high - low) / 2;
            guesses += 1;
            match step!("ask", io.did(format!("is it {guess}?"), guess.cmp(&secret) as i8).await?) {
                -1 => range = guess + 1..=high,
                1 if guess == 0 => bail!("below zero"),
                1 => range = low..=guess - 1,
                _ => break,
            }
        }
        Ok(guesses)
    }
}

twin! {
    async fn long_term_memory(io, facts: Vec<(String, String)>) -> anyhow::Result<Vec<String>> {
        #[derive(Clone, Debug, Serialize, Deserialize)]
        struct Memory {
            text: String,
            uses: u32,
        }
        let mut memories: BTreeMap<String, Memory> = BTreeMap::new();
        for (topic, text) in facts {
            let old = memories.remove(&topic);
            let memory = match old {
                None => Memory { text, uses: 0 },
                Some(Memory { text: before, uses }) if before == text => Memory { text, uses: uses + 1 },
                Some(before) => {
                    let text = step!("merge", io.did(format!("merge {} and {text}", before.text), format!("{} & {text}", before.text)).await?);
                    Memory { text, ..before }
                }
            };
            step!("store", io.did(format!("store {topic}"), ()).await?);
            memories.insert(topic, memory);
            if memories.len() > 2 {
                let weakest = memories.iter().min_by_key(|(topic, m)| (m.uses, std::cmp::Reverse(topic.len()))).map(|(t, _)| t.clone());
                if let Some(topic) = weakest {
                    step!("forget", io.did(format!("forget {topic}"), ()).await?);
                    memories.remove(&topic);
                }
            }
        }
        Ok(memories.into_iter().map(|(topic, m)| format!("{topic}: {} ({})", m.text, m.uses)).collect())
    }
}

twin! {
    async fn moderated_replies(io, prompts: Vec<String>) -> anyhow::Result<Vec<Result<String, String>>> {
        let mut replies = Vec::new();
        'prompts: for prompt in prompts {
            let mut draft = step!("draft", io.did(format!("draft {prompt}"), prompt.repeat(2)).await?);
            let mut strikes = 0;
            let clean = loop {
                let flagged: Vec<String> = step!("moderate", io.did(format!("moderate {draft}"), draft.split('x').skip(1).map(|s| s.to_string()).collect()).await?);
                match (flagged.len(), strikes) {
                    (0, _) => break draft,
                    (_, 2..) => {
                        replies.push(Err(format!("{prompt} was refused")));
                        continue 'prompts;
                    }
                    (n, _) => {
                        strikes += 1;
                        draft = draft.replacen('x', "", n.min(1));
                    }
                }
            };
            replies.push(Ok(clean));
        }
        Ok(replies)
    }
}

twin! {
    async fn interview_with_follow_ups(io, topics: Vec<String>, depth: u32) -> anyhow::Result<String> {
        let mut notes = String::new();
        for topic in topics.iter() {
            let mut question = format!("Tell me about {topic}");
            for level in 0..=depth {
                step!("ask", io.did(question.clone(), ()).await?);
                let answer: Option<String> = recv!(topic, timeout = SHORT);
                let Some(answer) = answer.filter(|a| !a.trim().is_empty()) else { break };
                let indent = "  ".repeat(level as usize);
                notes += &format!("{indent}- {answer}\n");
                question = step!("follow up", io.did(format!("follow up on {answer}"), format!("And {answer}?")).await?);
            }
        }
        let count = notes.lines().count();
        Ok(format!("{count} notes\n{notes}"))
    }
}

twin! {
    async fn chain_of_prompts(io, seed: String) -> anyhow::Result<String> {
        let templates = ["outline {}", "expand {}", "polish {}"];
        let mut text = seed;
        for template in templates.iter() {
            let prompt = template.replace("{}", &text);
            text = step!("run", io.did(prompt.clone(), prompt.split(' ').rev().collect::<Vec<_>>().join("-")).await?);
            let words = text.split('-').count();
            let text_length = text.len();
            let verdict = if words > 2 { "long" } else { "short" };
            step!("score", io.did(format!("{verdict} {text_length}"), ()).await?);
        }
        Ok(text)
    }
}

twin! {
    async fn vote_of_sampled_answers(io, question: String, samples: u32) -> anyhow::Result<(String, u32)> {
        let mut tally: BTreeMap<String, u32> = BTreeMap::new();
        for i in 1.. {
            let answer = step!("sample", io.did(format!("sample {i}"), ["yes", "no", "yes", "maybe", "no", "no"][(i as usize + question.len()) % 6].to_owned()).await?);
            let votes = tally.entry(answer).and_modify(|n| *n += 1).or_insert(1);
            if *votes > samples / 2 || i == samples {
                break;
            }
        }
        let mut ranked: Vec<(String, u32)> = tally.into_iter().collect();
        ranked.sort_by(|(a, m), (b, n)| n.cmp(m).then_with(|| a.cmp(b)));
        match &ranked[..] {
            [(a, m), (b, n), ..] if m == n => {
                let winner = step!("tie", io.did(format!("{a} or {b}"), if a.len() > b.len() { a.clone() } else { b.clone() }).await?);
                Ok((winner, *m))
            }
            [(a, m), ..] => Ok((a.clone(), *m)),
            [] => bail!("no samples"),
        }
    }
}

twin! {
    async fn onboarding_over_days(io, user: String) -> anyhow::Result<u32> {
        const DAY: Duration = Duration::from_secs(86_400);
        let lessons = [("welcome", 0u32), ("first steps", 1), ("tips", 3)];
        let mut sent = 0;
        let mut day = 0;
        for (lesson, at) in lessons {
            if at > day {
                let stopped: Option<()> = recv!("unsubscribe", timeout = DAY * (at - day));
                if stopped.is_some() {
                    step!("goodbye", io.did(format!("goodbye {user}"), ()).await?);
                    return Ok(sent);
                }
                day = at;
            }
            step!("send", effect, on_unknown = OnUnknown::Retry, io.did(format!("{lesson} to {user} on day {day}"), ()).await?);
            sent += 1;
        }
        Ok(sent)
    }
}

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

corpus! {
    conversation_with_compaction => completes(|| conversation_with_compaction(texts(&["hello there", "what is a fiber exactly", "and why", "thanks a lot for that"]), 16));
    hand_off_between_agents => completes(|| hand_off_between_agents("abc".into())), completes(|| hand_off_between_agents("ab".into()));
    slot_filling => completes_with(Letters::default().with("answer to name", "ada"), || slot_filling([("name".into(), None), ("date".into(), None), ("seat".into(), Some("4a".into()))].into())),
        fails_with(Letters::default().with("answer to name", ""), "no booking", || slot_filling([("name".into(), None)].into()));
    guess_the_number => completes(|| guess_the_number(37)), fails("is not there", || guess_the_number(101));
    long_term_memory => completes(|| long_term_memory([("a", "1"), ("b", "2"), ("a", "1"), ("b", "3"), ("cc", "4"), ("d", "5")].map(|(a, b)| (a.into(), b.into())).into()));
    moderated_replies => completes(|| moderated_replies(texts(&["ok", "ax", "xx"])));
    interview_with_follow_ups => completes_with(Letters::default().with("work", "hard").with("work", "very").with("home", " "), || interview_with_follow_ups(texts(&["work", "home", "none"]), 2));
    chain_of_prompts => completes(|| chain_of_prompts("a story".into()));
    vote_of_sampled_answers => completes(|| vote_of_sampled_answers("q".into(), 6)), completes(|| vote_of_sampled_answers("qqq".into(), 3));
    onboarding_over_days => completes(|| onboarding_over_days("ada".into())), completes_with(Letters::default().with("unsubscribe", ()), || onboarding_over_days("bob".into()));
}
