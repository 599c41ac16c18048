#![deny(warnings)]
use forever::prelude::*;

#[fiber]
async fn side(urls: Vec<String>, fiber: String, n: u32) -> anyhow::Result<String> {
    let (a, b) = steps!(fetch(&fiber).await?, fetch(&urls[0]).await?);
    let both: (u32, String) = steps!(
        {
            let mut sum = n;
            for i in 0..3 {
                if i == n { break; }
                sum += i;
            }
            sum
        },
        fetch("both").await.unwrap_or_default(),
    );
    let pages = steps!(for url in &urls, limit = 8, fetch(url).await?);
    let lengths = steps!(for (place, page) in pages.iter().enumerate(), page.len() + place);
    let owned = steps!(for mut url in urls.clone(), limit = n as usize, {
        url.push_str(&fiber);
        fetch(&url).await?
    });
    if steps!(n > 1, fetch(&a).await?.is_empty()).0 {
        for url in urls {
            let (c, _) = steps!(fetch(&url).await?, fetch(&b).await?);
            steps!(for i in 0..n, store(i, &c).await?);
        }
    }
    let sum: usize = steps!(for i in 0..n, i as usize).into_iter().sum::<usize>() + steps!(for l in lengths, l).len();
    Ok(format!("{a} {b} {both:?} {owned:?} {sum} {pages:?}"))
}

async fn fetch(url: &str) -> anyhow::Result<String> {
    Ok(url.to_owned())
}

async fn store(_: u32, _: &str) -> anyhow::Result<()> {
    Ok(())
}

/// An error of one's own, branches that own what they take, a generic fiber.
#[derive(Debug)]
struct Broken;

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("broken")
    }
}

impl std::error::Error for Broken {}

impl From<std::num::ParseIntError> for Broken {
    fn from(_: std::num::ParseIntError) -> Self {
        Broken
    }
}

#[fiber]
async fn own_error<T>(texts: Vec<String>, first: T) -> Result<u32, Broken>
where
    T: Clone + Sync + serde::Serialize + serde::de::DeserializeOwned + Send + 'static,
{
    let whole = texts.join("");
    let (a, kept, length) = steps!(texts[0].parse::<u32>()?, first.clone(), consumed(whole).await);
    let all = steps!(for text in texts, text.parse::<u32>()?);
    steps!(drop(kept), length);
    Ok(a + all.iter().sum::<u32>())
}

async fn consumed(text: String) -> usize {
    text.len()
}

pub(crate) fn main() {
    let _ = (side(Vec::new(), String::new(), 1), own_error(Vec::new(), 1), Broken);
}
