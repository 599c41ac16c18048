use forever::prelude::*;

#[fiber]
async fn parse(line: String) -> anyhow::Result<String> {
    let Some((name, value)) = line.split_once('=') else { anyhow::bail!("no value") };
    step!(store(name).await?);
    Ok(value.to_owned())
}

#[fiber]
async fn pick(lines: Vec<String>) -> anyhow::Result<usize> {
    let long: Vec<&str> = lines.iter().map(|line| line.trim()).filter(|line| line.len() > 9).collect();
    step!(store("long").await?);
    Ok(long.len())
}

#[fiber]
async fn find(body: serde_json::Value) -> anyhow::Result<String> {
    let city = body["city"].as_str().unwrap_or("nowhere");
    let weather = step!(store(city).await?);
    Ok(format!("{city} {weather}"))
}

async fn store(name: &str) -> anyhow::Result<usize> {
    Ok(name.len())
}

fn main() {}
