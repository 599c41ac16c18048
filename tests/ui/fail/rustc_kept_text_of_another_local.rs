use forever::prelude::*;

#[fiber]
async fn parse(line: String) -> anyhow::Result<String> {
    let word = first_word(&line);
    step!(store(word).await?);
    Ok(word.to_owned())
}

#[fiber]
async fn last(text: String) -> anyhow::Result<usize> {
    let mut last = "";
    for line in text.lines() {
        last = line;
        step!(store(line).await?);
    }
    Ok(last.len())
}

fn first_word(text: &str) -> &str {
    text.split(' ').next().unwrap_or(text)
}

async fn store(name: &str) -> anyhow::Result<usize> {
    Ok(name.len())
}

fn main() {}
