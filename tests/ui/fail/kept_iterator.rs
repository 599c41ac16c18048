use forever::prelude::*;

#[fiber]
async fn work(jobs: Vec<String>) -> anyhow::Result<usize> {
    let mut jobs = jobs.into_iter().peekable();
    let mut done = 0;
    while let Some(job) = jobs.next() {
        done += step!(run(&job).await?);
    }
    Ok(done)
}

async fn run(job: &str) -> anyhow::Result<usize> {
    Ok(job.len())
}

fn main() {}
