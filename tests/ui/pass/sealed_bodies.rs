#![deny(warnings)]
//! What bodies that may be skipped or run again can still do: read, move what nothing needs later, and change what is their own.
use std::time::Duration;

use forever::prelude::*;

#[derive(serde::Serialize, serde::Deserialize)]
pub struct Plan {
    pub title: String,
    pub lines: Vec<String>,
}

#[fiber]
pub async fn effects(bank: Res<Bank>, mut names: Vec<String>, plan: Plan) -> anyhow::Result<u32> {
    names.push("a".to_owned());
    let longest = names.iter().max().cloned();
    let mut body = String::from("dear ");
    body.push_str(&names[0]);
    // Moved: nothing needs it later.
    step!("moved", effect, bank.send(body).await?);
    let title = plan.title;
    // Partly moved before.
    step!("parts", effect, { let mut text = title; text.push('!'); bank.send(plan.lines.concat() + &text).await? });
    let first = &names[0];
    step!("borrowed", effect, key = first, on_unknown = OnUnknown::check(async |_| Some(names.len() as u32)), |op| {
        let mut total = op.attempt();
        for name in &names {
            total += name.len() as u32;
        }
        bank.send(first.clone()).await? + total
    });
    names.push(longest.unwrap_or_default());
    let mut count = 0;
    let timed = step!("timed", timeout = Duration::from_secs(1), { count += 1; names.push("z".into()); names.len() as u32 });
    Ok(timed + count)
}

#[fiber]
pub async fn retries(bank: Res<Bank>, plan: Plan, pair: (String, Vec<String>)) -> anyhow::Result<usize> {
    let (title, first) = (plan.title, pair.0);
    let found = step!("parts", retry = Retry::times(3), {
        let mut found = plan.lines.clone();
        found.extend(pair.1.iter().map(|line| line.to_uppercase()));
        found.push(format!("{title} {first} {}", plan.lines.len()));
        bank.send(found.concat()).await? as usize + found.len()
    });
    #[fresh]
    let mut client = Client { calls: 0 };
    let called = step!("client", retry = Retry::times(3), { ask(&mut client)?; client.ask()? });
    Ok(found + called)
}

#[fiber]
pub async fn branches(bank: Res<Bank>, mut names: Vec<String>) -> anyhow::Result<Vec<u32>> {
    names.push("b".to_owned());
    let mut note = String::new();
    note.push('n');
    let (a, b) = steps!(bank.send(note).await?, bank.send(names.concat()).await?);
    names.push("c".to_owned());
    Ok(steps!(for n in [a, b], bank.send(names[n as usize].clone()).await?))
}

pub struct Client {
    pub calls: usize,
}

impl Client {
    pub fn ask(&mut self) -> anyhow::Result<usize> {
        self.calls += 1;
        Ok(self.calls)
    }
}

pub fn ask(client: &mut Client) -> anyhow::Result<usize> {
    client.ask()
}

pub struct Bank;

impl Bank {
    pub async fn send(&self, text: String) -> anyhow::Result<u32> {
        Ok(text.len() as u32)
    }
}

pub(crate) fn main() {}
