//! `#[fresh]` values that are made from other locals by coercions and method calls.
#![deny(warnings)]
use forever::prelude::*;
use std::sync::Arc;

fn text(s: &str) -> usize {
    s.len()
}
fn list(s: &[u32]) -> usize {
    s.len()
}
fn num(n: &u32) -> u32 {
    *n
}
trait Llm: Send + Sync {
    fn n(&self) -> u32;
}
struct M(u32);
impl Llm for M {
    fn n(&self) -> u32 {
        self.0
    }
}
fn dynamic(m: &dyn Llm) -> u32 {
    m.n()
}
fn connect(url: &str, retries: u32) -> M {
    M(url.len() as u32 + retries)
}

#[derive(Clone, serde::Serialize, serde::Deserialize)]
struct Config {
    url: String,
    sizes: Vec<u32>,
}

#[fiber]
async fn coerced(model: Res<Arc<dyn Llm>>, name: String, sizes: Vec<u32>, boxed: Box<u32>, config: Config) -> anyhow::Result<u32> {
    #[fresh]
    let a = text(&name);
    #[fresh]
    let b = list(&sizes);
    #[fresh]
    let c = num(&boxed);
    #[fresh]
    let d = dynamic(&**model);
    #[fresh]
    let e = M(name.trim().len() as u32);
    #[fresh]
    let f = connect(&config.url, config.sizes[0]);
    step!("one", async { Ok::<_, anyhow::Error>(()) }.await?);
    drop(boxed);
    drop(config);
    Ok(a as u32 + b as u32 + c + d + e.0 + f.0 + name.len() as u32 + sizes.len() as u32)
}

#[fiber]
async fn of_an_arm(job: Option<String>, names: Vec<String>) -> anyhow::Result<u32> {
    let mut sum = 0;
    let made = step!("made", anyhow::Ok(vec![String::from("x")])?);
    match job {
        Some(job) if job.len() > 2 => {
            #[fresh]
            let client = connect(&job, 2);
            sum += step!("a", anyhow::Ok(client.n())?);
            sum += client.n();
        }
        Some(job) => {
            let shown = &job;
            #[fresh]
            let client = connect(shown, job.chars().count() as u32);
            sum += call!(child(client.n()))?;
            sum += client.n() + shown.len() as u32;
        }
        None => {}
    }
    for name in names {
        let mut url = format!("http://{name}");
        #[fresh]
        let client = connect(&url, name.len() as u32);
        if sum > 3 {
            sum += step!("b", anyhow::Ok(client.n())?);
        }
        url.push('x');
        sum += client.n() + url.len() as u32;
    }
    #[fresh]
    let last = connect(made[0].as_str(), 1);
    while sum < 10 {
        let more = "x".repeat(3);
        #[fresh]
        let c = connect(&more, last.n());
        sum += step!("c", anyhow::Ok(c.n())?);
        sum += more.len() as u32 + c.n();
    }
    Ok(sum)
}

#[fiber]
async fn child(n: u32) -> anyhow::Result<u32> {
    Ok(n)
}

pub(crate) fn main() {
    let _ = coerced(String::new(), Vec::new(), Box::new(1), Config { url: String::new(), sizes: Vec::new() });
    let _ = of_an_arm(None, Vec::new());
}
