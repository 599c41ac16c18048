use forever::prelude::*;

#[fiber]
async fn nothing() -> anyhow::Result<()> {
    select! {}
    Ok(())
}

#[fiber]
async fn arms(handles: Vec<FiberHandle<u32>>) -> anyhow::Result<()> {
    select! {
        done = step!(work().await?) => drop(done),
        done = work() => drop(done),
        all = wait_all!(&handles) => drop(all),
        answer: u32 = recv!("answer", name = "the answer") => drop(answer),
    }
    Ok(())
}

#[fiber]
async fn guarded(ready: bool) -> anyhow::Result<u32> {
    Ok(select! {
        answer: u32 = recv!("answer"), if ready => answer,
    })
}

#[fiber]
async fn unfinished() -> anyhow::Result<u32> {
    Ok(select! {
        answer: u32 = recv!("answer"),
    })
}

#[fiber]
async fn without_a_comma() -> anyhow::Result<u32> {
    Ok(select! {
        one: u32 = recv!("one") => one + 1
        two: u32 = recv!("two") => two,
    })
}

async fn work() -> anyhow::Result<u32> {
    Ok(1)
}

fn main() {}
