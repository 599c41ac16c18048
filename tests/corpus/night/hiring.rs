//! An agent that reads applications, asks for references and writes offers.
use std::fmt;

use crate::prelude::*;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Candidate {
    name: String,
    years: u32,
    skills: Vec<String>,
    salary: Option<u32>,
    referees: Vec<Referee>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Referee {
    name: String,
    score: Option<Result<u32, String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
enum Stage {
    Applied,
    Screened { score: u32 },
    Interviewed(u32, bool),
    Offered,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Stage::Applied => f.write_str("applied"),
            Stage::Screened { score } => write!(f, "screened {score:>3}"),
            Stage::Interviewed(score, again) => write!(f, "interviewed {score}{}", if again { "!" } else { "" }),
            Stage::Offered => f.pad("offered"),
        }
    }
}

fn candidates() -> Vec<Candidate> {
    let referee = |name: &str, score| Referee { name: name.into(), score };
    vec![
        Candidate {
            name: "Ada".into(),
            years: 7,
            skills: ["rust", "sql", "maths"].map(String::from).into(),
            salary: Some(90),
            referees: vec![referee("Charles", Some(Ok(9))), referee("Byron", None), referee("Mary", Some(Err("busy".into())))],
        },
        Candidate { name: "Bob".into(), years: 2, skills: vec!["sql".into()], salary: None, referees: vec![] },
        Candidate { name: "Cyd".into(), years: 4, skills: vec!["rust".into(), "go".into()], salary: Some(70), ..Candidate::default() },
    ]
}

fn refuse(why: &str) -> ! {
    panic!("refused: {why}")
}

const WANTED: [(&str, u32); 3] = [("rust", 5), ("sql", 2), ("go", 1)];

twin! {
    async fn shortlist_with_a_shrinking_quota(io, pool: Vec<Candidate>, quota: usize) -> anyhow::Result<Vec<String>> {
        let mut quota = quota;
        let mut offset = 0;
        let mut picked = vec![];
        'rounds: while quota > 0 {
            for (at, candidate) in pool.iter().enumerate().skip(offset).take(quota) {
                let fits = step!("fits", io.did(format!("fits {at} {}", candidate.name), candidate.years > 3).await?);
                offset += 1;
                if fits {
                    picked.push(candidate.name.clone());
                    quota -= 1;
                } else if quota == 1 {
                    break 'rounds;
                }
            }
            if offset >= pool.len() {
                break;
            }
            quota = quota.saturating_sub(1);
        }
        Ok(picked)
    }
}

twin! {
    async fn scores_by_wanted_skills(io, pool: Vec<Candidate>) -> anyhow::Result<BTreeMap<String, u32>> {
        let mut table = BTreeMap::new();
        for Candidate { name, skills, .. } in &pool {
            let mut total = 0;
            for &(skill, weight) in WANTED.iter() {
                if !skills.iter().any(|s| s == skill) {
                    continue;
                }
                let bonus = step!("bonus", io.did(format!("{name}/{skill}"), weight % 3).await?);
                total += weight + bonus;
            }
            *table.entry(name.clone()).or_insert(0) += total;
        }
        Ok(table)
    }
}

twin! {
    async fn referees_with_nested_results(io, candidate: Candidate) -> anyhow::Result<(u32, Vec<String>)> {
        let Candidate { referees, name, .. } = candidate;
        let mut complaints = Vec::new();
        let mut sum = 0;
        for Referee { name: referee, score } in referees {
            let score = match score {
                Some(Ok(score @ 8..)) => score,
                Some(Ok(low)) => low.saturating_sub(1),
                Some(Err(why)) if why == "busy" => {
                    let later = step!("later", io.did(format!("{referee} later ({why})"), 5).await?);
                    complaints.push(format!("{referee}: {why}"));
                    later
                }
                Some(Err(why)) => bail!("{referee} says {why}"),
                None => {
                    let answer: Option<Result<u32, String>> = step!("ask", io.did(format!("ask {referee} about {name}"), Some(Ok(3))).await?);
                    let Some(Ok(score)) = answer else {
                        complaints.push(referee);
                        continue;
                    };
                    score
                }
            };
            sum += score;
        }
        Ok((sum, complaints))
    }
}

twin! {
    async fn copies_out_of_stages(io, start: Stage) -> anyhow::Result<Vec<String>> {
        let mut stage = start;
        let mut history = vec![];
        loop {
            let before = stage;
            match &stage {
                &Stage::Applied => {
                    stage = Stage::Screened { score: 40 };
                    step!("screen", io.did(format!("{before} -> {stage}"), ()).await?);
                }
                &Stage::Screened { score } if score < 50 => {
                    stage = Stage::Screened { score: score + 20 };
                    let again = step!("again", io.did(format!("was {score}"), score).await?);
                    history.push(format!("{again}/{score}"));
                }
                &Stage::Screened { score } => {
                    let asked = step!("interview", io.did("interview", score / 2).await?);
                    stage = Stage::Interviewed(asked + score, true);
                }
                Stage::Interviewed(score, again) => {
                    let (score, again) = (*score, *again);
                    stage = if again { Stage::Interviewed(score, false) } else { Stage::Offered };
                    step!("decide", io.did(format!("{score} {again}"), ()).await?);
                }
                Stage::Offered => break,
            }
            history.push(format!("[{before:<12}]"));
        }
        Ok(history)
    }
}

twin! {
    async fn interview_slots_in_an_array(io, wanted: u32) -> anyhow::Result<[Option<String>; 4]> {
        let mut slots: [Option<String>; 4] = std::array::from_fn(|_| None);
        let mut free = slots.len();
        let mut at = 1usize;
        for n in 0..wanted {
            let who = step!("who", io.did(format!("who {n}"), format!("c{n}")).await?);
            if let Some(old) = slots[at].replace(who) {
                step!("cancel", io.did(format!("cancel {old}"), ()).await?);
                free += 1;
            }
            free -= 1;
            at = (at + 3) % slots.len();
            if free == 0 {
                break;
            }
        }
        Ok(slots)
    }
}

twin! {
    async fn an_offer_letter_that_shadows(io, candidate: Candidate) -> anyhow::Result<String> {
        let name = candidate.name;
        let letter = format!("Dear {name},");
        let name = name.to_uppercase();
        let salary = candidate.salary.unwrap_or_else(|| candidate.years * 10);
        let salary = step!("negotiate", io.did(format!("negotiate {salary}"), salary + 5).await?);
        let letter = {
            let name = step!("team", io.did(format!("team of {name}"), "Core").await?.to_string());
            format!("{letter}\n{name:?} offers {salary}k", salary = salary * 2)
        };
        let width = 30;
        step!("sign", io.did(format!("sign {name:>width$.3}"), ()).await?);
        let letter = format!("{letter}\n{name:-^width$}{0}{1:#x}", candidate.skills.len(), salary);
        Ok(letter)
    }
}

twin! {
    async fn a_verdict_set_late(io, candidate: Candidate) -> anyhow::Result<String> {
        let verdict;
        let (low, high);
        if candidate.years == 0 {
            todo!("no trainees");
        } else if candidate.years < 3 {
            verdict = "junior";
            (low, high) = (10, step!("band", io.did("band", 20).await?));
        } else {
            let Some(salary) = candidate.salary else { refuse("no salary") };
            low = salary - 10;
            high = step!("top", io.did("top", salary + 10).await?);
            verdict = if high > 90 { "senior" } else { "mid" };
        }
        let asked = step!("ask", io.did(format!("ask {verdict}"), high - low).await?);
        Ok(format!("{}: {verdict} {low}..={high} {asked}", candidate.name))
    }
}

twin! {
    async fn refused_by_a_function_that_never_returns(io, years: Option<u32>) -> anyhow::Result<u32> {
        let years = match years {
            Some(years) => years,
            None => {
                step!("note", io.did("note", ()).await?);
                refuse("no years")
            }
        };
        let level = step!("level", io.did("level", years / 2).await?);
        let bonus: u32 = if level > 1 { 3 } else { refuse("too junior") };
        let paid = step!("pay", io.did(format!("pay {bonus}"), bonus * 2).await?);
        Ok(level + paid)
    }
}

twin! {
    async fn parts_of_a_candidate_go_their_ways(io, candidate: Candidate) -> anyhow::Result<String> {
        let mut skills = candidate.skills;
        skills.sort_unstable();
        let first = step!("first", io.did(format!("first of {}", skills.len()), skills.remove(0)).await?);
        let referees = candidate.referees;
        let named = step!("name", io.did(format!("{}", candidate.name), candidate.name.len()).await?);
        let mut out = String::new();
        for referee in referees {
            out += &referee.name;
            step!("thank", io.did(format!("thank {out}"), ()).await?);
        }
        Ok(format!("{first} {skills:?} {named} {out} {}", candidate.years))
    }
}

twin! {
    async fn ranked_by_a_comparator(io, pool: Vec<Candidate>) -> anyhow::Result<Vec<(String, u32)>> {
        let by_years = |a: &Candidate, b: &Candidate| b.years.cmp(&a.years).then_with(|| a.name.cmp(&b.name));
        let mut pool = pool;
        let weight = step!("weight", io.did("weight", 3).await?);
        pool.sort_by(by_years);
        let scored = |c: &Candidate| c.years * weight;
        let mut ranked = Vec::with_capacity(pool.len());
        while let [.., last] = pool.as_slice() {
            let score = scored(last);
            let name = step!("rank", io.did(format!("rank {}", last.name), last.name.clone()).await?);
            ranked.push((name, score));
            pool.truncate(pool.len() - 1);
        }
        ranked.reverse();
        Ok(ranked)
    }
}

twin! {
    async fn panel_of_boxed_rules(io, candidate: Candidate) -> anyhow::Result<Vec<String>> {
        let mut broken = vec![];
        let names = ["years", "skills", "salary"];
        for (at, name) in names.into_iter().enumerate() {
            let ok = {
                let rules: Vec<Box<dyn Fn(&Candidate) -> bool + Send>> = vec![
                    Box::new(|c| c.years > 2),
                    Box::new(|c| c.skills.len() > 1),
                    Box::new(|c| c.salary.is_some_and(|s| s < 100)),
                ];
                rules[at](&candidate)
            };
            if !ok {
                let word = step!("broken", io.did(format!("broken {name}"), name.len()).await?);
                assert_eq!(word, name.len(), "of {name}");
                broken.push(name);
            }
        }
        let all = matches!(broken.as_slice(), [first, ..] if *first == "years");
        debug_assert!(!all || candidate.years <= 2, "{candidate:?}");
        step!("end", io.did(format!("end {all}"), ()).await?);
        Ok(broken.into_iter().map(str::to_owned).collect())
    }
}

twin! {
    async fn emails_until_one_answers(io, pool: Vec<Candidate>) -> anyhow::Result<Option<String>> {
        let mut queue: VecDeque<(usize, &str)> = VecDeque::new();
        let mut index: Vec<(usize, String)> = pool.iter().map(|c| c.name.to_lowercase()).enumerate().collect();
        let answered = 'outer: {
            while let Some((tries, name)) = index.pop() {
                queue.clear();
                if tries > 5 {
                    break 'outer None;
                }
                let reply = step!("mail", io.did(format!("mail {name}@x.org"), tries % 2 == 1).await?);
                match (reply, tries) {
                    (true, n @ (1 | 3)) => break 'outer Some(format!("{name}#{n}")),
                    (true, _) => index.clear(),
                    (false, 0) => {}
                    (false, n) => index.insert(0, (n - 1, name)),
                }
            }
            None
        };
        step!("close", io.did(format!("close {answered:?}"), ()).await?);
        Ok(answered)
    }
}

twin! {
    async fn referees_side_by_side(io, candidate: Candidate) -> anyhow::Result<(Vec<usize>, u32)> {
        let Candidate { ref referees, years, .. } = candidate;
        let lengths = steps!(for Referee { name, .. } in referees, now(&io, format!("call {name}"), name.len()).await?);
        let (sum, longest) = (lengths.iter().sum::<usize>() as u32, lengths.iter().max().copied());
        let Some(longest) = longest else { return Ok((lengths, years)) };
        let (thanked, noted) = steps!(now(&io, format!("thank {}", referees.len()), referees.len()).await?, now(&io, format!("note {longest}"), sum).await?);
        Ok((lengths.into_iter().chain([thanked]).collect(), noted + years))
    }
}

corpus! {
    shortlist_with_a_shrinking_quota => completes(|| shortlist_with_a_shrinking_quota(candidates(), 2)), completes(|| shortlist_with_a_shrinking_quota(candidates(), 5));
    scores_by_wanted_skills => completes(|| scores_by_wanted_skills(candidates()));
    referees_with_nested_results => completes(|| referees_with_nested_results(candidates().remove(0)));
    copies_out_of_stages => completes(|| copies_out_of_stages(Stage::Applied)), completes(|| copies_out_of_stages(Stage::Screened { score: 60 }));
    interview_slots_in_an_array => completes(|| interview_slots_in_an_array(7));
    an_offer_letter_that_shadows => completes(|| an_offer_letter_that_shadows(candidates().remove(0))), completes(|| an_offer_letter_that_shadows(candidates().remove(1)));
    a_verdict_set_late => completes(|| a_verdict_set_late(candidates().remove(0))), completes(|| a_verdict_set_late(candidates().remove(1)));
    refused_by_a_function_that_never_returns => completes(|| refused_by_a_function_that_never_returns(Some(6)));
    parts_of_a_candidate_go_their_ways => completes(|| parts_of_a_candidate_go_their_ways(candidates().remove(0)));
    ranked_by_a_comparator => completes(|| ranked_by_a_comparator(candidates()));
    panel_of_boxed_rules => completes(|| panel_of_boxed_rules(candidates().remove(1)));
    emails_until_one_answers => completes(|| emails_until_one_answers(candidates()));
    referees_side_by_side => completes(|| referees_side_by_side(candidates().remove(0)));
}
