use std::collections::HashMap;

use forever::prelude::*;

#[fiber]
async fn pairs(line: String) -> anyhow::Result<String> {
    let (key, value) = line.split_once('=').unwrap();
    step!(store(key).await?);
    Ok(format!("{key}{value}"))
}

#[fiber]
async fn let_else(line: String) -> anyhow::Result<String> {
    let Some((name, value)) = line.split_once('=') else { anyhow::bail!("no value") };
    step!(store(name).await?);
    Ok(value.to_owned())
}

#[fiber]
async fn let_else_with_a_step(line: String) -> anyhow::Result<String> {
    let Some(rest) = line.strip_prefix("do ") else { return Ok(step!(store("nothing").await?).to_string()) };
    step!(store("rest").await?);
    Ok(rest.to_owned())
}

#[fiber]
async fn first_line(text: String) -> anyhow::Result<String> {
    let first = text.lines().next().unwrap();
    step!(store(first).await?);
    Ok(first.to_owned())
}

#[fiber]
async fn shadowed(text: String) -> anyhow::Result<String> {
    let text = text.trim();
    step!(store(text).await?);
    Ok(text.to_owned())
}

#[fiber]
async fn arms(text: Option<String>) -> anyhow::Result<String> {
    match text.as_deref() {
        Some(word) => {
            step!(store("word").await?);
            Ok(word.to_owned())
        }
        None => Ok(String::new()),
    }
}

#[fiber]
async fn if_let(headers: HashMap<String, String>) -> anyhow::Result<String> {
    if let Some(kind) = headers.get("kind").map(String::as_str) {
        step!(store("kind").await?);
        return Ok(kind.to_owned());
    }
    Ok(String::new())
}

#[fiber]
async fn while_let(text: String) -> anyhow::Result<usize> {
    let mut text = text;
    while let Some((head, tail)) = text.split_once(' ') {
        step!(store(head).await?);
        text = tail.to_owned();
    }
    Ok(text.len())
}

#[fiber]
async fn operand(line: String) -> anyhow::Result<usize> {
    Ok(longest(line.trim(), step!(store("line").await?)))
}

#[fiber]
async fn collected(lines: Vec<String>) -> anyhow::Result<usize> {
    let long: Vec<&str> = lines.iter().map(|line| line.trim()).filter(|line| line.len() > 9).collect();
    step!(store("long").await?);
    Ok(long.len())
}

#[fiber]
async fn gone_over(text: String) -> anyhow::Result<usize> {
    let mut sum = 0;
    for word in text.split(' ').collect::<Vec<_>>() {
        sum += step!(store(word).await?);
    }
    Ok(sum)
}

#[fiber]
async fn of_an_item(text: Vec<String>) -> anyhow::Result<usize> {
    let mut sum = 0;
    for line in &text {
        let (key, _) = line.split_once('=').unwrap_or((line, ""));
        sum += step!(store("line").await?) + key.len();
    }
    Ok(sum)
}

#[fiber]
async fn json(body: serde_json::Value) -> anyhow::Result<String> {
    let city = body["city"].as_str().unwrap_or("nowhere");
    let weather = step!(store(city).await?);
    Ok(format!("{city} {weather}"))
}

fn longest(text: &str, other: usize) -> usize {
    text.len().max(other)
}

async fn store(name: &str) -> anyhow::Result<usize> {
    Ok(name.len())
}

fn main() {}
