use forever::prelude::*;

#[fiber]
async fn label(urls: Vec<String>, sizes: Vec<u32>) -> anyhow::Result<u32> {
    let mut sum = 0;
    for (url, size) in urls.iter().zip(sizes) {
        sum += size + step!(fetch(url).await?);
    }
    Ok(sum)
}

async fn fetch(url: &str) -> anyhow::Result<u32> {
    Ok(url.len() as u32)
}

fn main() {}
