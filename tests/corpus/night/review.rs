//! Drafts, critics, approvals and votes.
use crate::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
enum Severity {
    Nit,
    Minor,
    Major,
    Blocker,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Comment {
    line: u32,
    severity: Severity,
    text: String,
}

async fn draft(io: &Io, topic: &str, version: u32) -> anyhow::Result<String> {
    io.did(format!("draft {version}"), format!("{topic} v{version}")).await
}

async fn criticise(io: &Io, text: &str) -> anyhow::Result<Vec<Comment>> {
    let version: u32 = text.rsplit('v').next().and_then(|n| n.parse().ok()).unwrap_or(0);
    let comments = (version..4)
        .map(|n| Comment {
            line: n * 10,
            severity: [Severity::Nit, Severity::Minor, Severity::Major, Severity::Blocker][(3 - n) as usize],
            text: format!("comment {n}"),
        })
        .collect();
    io.did(format!("criticise {text}"), comments).await
}

twin! {
    async fn generate_and_reflect(io, topic: String) -> anyhow::Result<(u32, String)> {
        let mut version = 1;
        let mut text = step!("draft", draft(&io, &topic, version).await?);
        loop {
            let comments = step!("criticise", criticise(&io, &text).await?);
            let worst = comments.iter().map(|c| c.severity).max();
            match worst {
                None | Some(Severity::Nit) => break,
                Some(Severity::Blocker) if version > 2 => bail!("still blocked"),
                Some(_) => {}
            }
            version += 1;
            let instructions: Vec<_> = comments.into_iter().filter(|c| c.severity > Severity::Nit).map(|c| c.text).collect();
            text = step!("redraft", draft(&io, &format!("{topic}+{}", instructions.len()), version).await?);
        }
        Ok((version, text))
    }
}

twin! {
    async fn approval_with_a_deadline(io, amount: u32) -> anyhow::Result<String> {
        let id = step!("request", io.did(format!("request {amount}"), format!("req-{amount}")).await?);
        let approver = if amount > 1000 { "cfo" } else { "manager" };
        let answer: Option<bool> = recv!(format!("approval-{id}"), timeout = Duration::from_secs(3600));
        let outcome = match answer {
            Some(true) => "approved",
            Some(false) => "rejected",
            None => {
                step!("remind", io.did(format!("remind {approver}"), ()).await?);
                match recv!("escalation", timeout = SHORT) {
                    Some(true) => "approved late",
                    Some(false) => "rejected late",
                    None => "expired",
                }
            }
        };
        step!("close", io.did(format!("close {id} {outcome}"), ()).await?);
        Ok(format!("{id}: {outcome} by {approver}"))
    }
}

twin! {
    async fn panel_of_reviewers(io, reviewers: Vec<String>, quorum: usize) -> anyhow::Result<String> {
        let mut yes = Vec::new();
        let mut no = Vec::new();
        for reviewer in &reviewers {
            step!("invite", io.did(format!("invite {reviewer}"), ()).await?);
        }
        while yes.len() + no.len() < reviewers.len() {
            let vote: Option<(String, bool)> = recv!("vote", timeout = SHORT);
            let Some((who, approves)) = vote else { break };
            if yes.contains(&who) || no.contains(&who) {
                step!("scold", io.did(format!("{who} voted twice"), ()).await?);
                continue;
            }
            if approves { &mut yes } else { &mut no }.push(who);
            if yes.len() >= quorum || no.len() > reviewers.len() - quorum {
                break;
            }
        }
        let missing: Vec<&String> = reviewers.iter().filter(|r| !yes.contains(r) && !no.contains(r)).collect();
        Ok(format!("{yes:?} {no:?} {missing:?}"))
    }
}

twin! {
    async fn edit_or_accept(io, text: String) -> anyhow::Result<String> {
        let mut text = text;
        let mut edits = 0usize;
        let by = loop {
            select! {
                edit: (usize, String) = recv!("edit") => {
                    let (at, insert) = edit;
                    ensure!(at <= text.len(), "an edit at {at} of {}", text.len());
                    text.insert_str(at, &insert);
                    edits += 1;
                    step!("saved", io.did(format!("saved {text}"), ()).await?);
                }
                who: String = recv!("accept") => break who,
                _ = sleep!(SHORT * 5) => {
                    let who = step!("auto accept", io.did("nobody came", "robot".to_string()).await?);
                    break who;
                }
            }
        };
        Ok(format!("{text} ({edits} edits, {by})"))
    }
}

twin! {
    async fn judge_picks_the_best_of_n(io, prompt: String, n: u32) -> anyhow::Result<String> {
        let candidates = steps!(for i in 0..n, now(&io, format!("candidate {i}"), format!("{prompt}{}", "!".repeat(((i * 7) % 5) as usize))).await?);
        let mut scores = Vec::new();
        for (i, candidate) in candidates.iter().enumerate() {
            let score: f32 = step!("score", io.did(format!("score {i}"), candidate.len() as f32 * 1.5).await?);
            scores.push((i, score));
        }
        scores.sort_by(|(_, a), (_, b)| b.partial_cmp(a).unwrap_or(std::cmp::Ordering::Equal));
        let [(winner, best), .., (_, worst)] = scores[..] else { bail!("needs two candidates, has {}", scores.len()) };
        if best - worst < 0.1 {
            step!("tie", io.did("tie", ()).await?);
        }
        Ok(candidates.into_iter().nth(winner).unwrap())
    }
}

twin! {
    async fn group_comments_by_severity(io, files: Vec<String>) -> anyhow::Result<String> {
        let mut groups: BTreeMap<Severity, Vec<(String, Comment)>> = BTreeMap::new();
        for file in files {
            let comments = step!("review", criticise(&io, &file).await?);
            comments.into_iter().for_each(|c| groups.entry(c.severity).or_default().push((file.clone(), c)));
        }
        let mut lines = Vec::new();
        for (severity, group) in groups.into_iter().rev() {
            if severity == Severity::Nit {
                break;
            }
            let posted = step!("post", io.did(format!("post {} as {severity:?}", group.len()), group.len()).await?);
            let (file, Comment { line, text, .. }) = &group[0];
            lines.push(format!("{severity:?} x{posted}: {file}:{line} {text}"));
        }
        Ok(lines.join("\n"))
    }
}

twin! {
    async fn debate_between_two(io, motion: String, rounds: usize) -> anyhow::Result<Vec<String>> {
        let speakers = ["pro", "con"];
        let mut transcript: Vec<String> = vec![];
        for round in 0..rounds {
            for speaker in speakers {
                let last = transcript.last().map(|s| s.as_str()).unwrap_or(&motion);
                let said = step!("speak", io.did(format!("{speaker} {round}"), format!("{speaker}: {}", last.len())).await?);
                transcript.push(said);
            }
        }
        let winner = step!("verdict", io.did("verdict", speakers[transcript.len() % 2].to_string()).await?);
        transcript.push(winner);
        Ok(transcript)
    }
}

twin! {
    async fn checklist_with_early_exit(io, items: Vec<(String, bool)>) -> anyhow::Result<Result<usize, String>> {
        let mut passed = 0;
        for (name, required) in &items {
            let ok = step!("check", io.did(format!("check {name}"), !name.contains('x')).await?);
            match (ok, required) {
                (true, _) => passed += 1,
                (false, true) => {
                    let reason = step!("explain", io.did(format!("explain {name}"), format!("{name} failed")).await?);
                    return Ok(Err(reason));
                }
                (false, false) => step!("note", io.did(format!("optional {name}"), ()).await?),
            }
        }
        Ok(Ok(passed))
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum State {
    Drafting { tries: u8 },
    InReview { text: String, comments: Vec<String> },
    Published(String),
}

twin! {
    async fn state_machine_of_a_document(io, topic: String) -> anyhow::Result<String> {
        let mut state = State::Drafting { tries: 0 };
        let mut path = Vec::new();
        loop {
            state = match state {
                State::Drafting { tries } => {
                    path.push('d');
                    let text = step!("draft", draft(&io, &topic, u32::from(tries)).await?);
                    State::InReview { text, comments: vec![] }
                }
                State::InReview { text, comments } if comments.len() >= 2 => {
                    path.push('p');
                    step!("publish", io.did("publish", ()).await?);
                    State::Published(format!("{text}{comments:?}"))
                }
                State::InReview { text, mut comments } => {
                    path.push('r');
                    let found = step!("review", io.did(format!("review {}", comments.len()), format!("c{}", path.len())).await?);
                    comments.push(found);
                    if path.len() == 2 { State::Drafting { tries: 1 } } else { State::InReview { text, comments } }
                }
                State::Published(text) => return Ok(format!("{text} {}", path.iter().collect::<String>())),
            };
        }
    }
}

twin! {
    async fn approvals_in_any_order(io, departments: BTreeSet<String>) -> anyhow::Result<Vec<String>> {
        let mut open = departments;
        let mut order = Vec::new();
        while !open.is_empty() {
            let topics: Vec<String> = open.iter().map(|d| format!("{d} approves")).collect();
            let received: Option<(String, String)> = recv!(topics, timeout = SHORT);
            let (topic, by) = received.with_context(|| format!("waiting for {}", open.len()))?;
            let department = topic.strip_suffix(" approves").unwrap_or(&topic);
            open.remove(department);
            order.push(format!("{department} by {by}"));
            step!("stamp", io.did(format!("stamp {}", order.len()), ()).await?);
        }
        Ok(order)
    }
}

corpus! {
    generate_and_reflect => completes(|| generate_and_reflect("t".into()));
    approval_with_a_deadline => completes(|| approval_with_a_deadline(5)),
        completes_with(Letters::default().with("approval-req-2000", true), || approval_with_a_deadline(2000)),
        completes_with(Letters::default().with("escalation", false), || approval_with_a_deadline(2000));
    panel_of_reviewers => completes_with(
        Letters::default().with("vote", ("ada", true)).with("vote", ("bob", false)).with("vote", ("ada", false)).with("vote", ("cid", true)),
        || panel_of_reviewers(vec!["ada".into(), "bob".into(), "cid".into(), "dan".into()], 2),
    );
    edit_or_accept => completes_with(Letters::default().with("edit", (1, "x")).with("edit", (0, "y")).with("accept", "eve"), || edit_or_accept("text".into())),
        completes(|| edit_or_accept("text".into())), fails_with(Letters::default().with("edit", (9, "x")), "an edit at 9", || edit_or_accept("text".into()));
    judge_picks_the_best_of_n => completes(|| judge_picks_the_best_of_n("p".into(), 4)), fails("needs two", || judge_picks_the_best_of_n("p".into(), 1));
    group_comments_by_severity => completes(|| group_comments_by_severity(vec!["v2".into(), "v0".into(), "v3".into()]));
    debate_between_two => completes(|| debate_between_two("tea is better".into(), 2));
    checklist_with_early_exit => completes(|| checklist_with_early_exit(vec![("a".into(), true), ("x".into(), false), ("b".into(), true)])),
        completes(|| checklist_with_early_exit(vec![("a".into(), true), ("ax".into(), true), ("b".into(), true)]));
    state_machine_of_a_document => completes(|| state_machine_of_a_document("t".into()));
    approvals_in_any_order => completes_with(Letters::default().with("law approves", "l").with("hr approves", "h"),
        || approvals_in_any_order(["hr".to_owned(), "law".into()].into())),
        fails_with(Letters::default().with("law approves", "l"), "waiting for 1", || approvals_in_any_order(["hr".to_owned(), "law".into()].into()));
}
