use forever::prelude::*;

#[fiber]
async fn assigned(web: Res<Web>, n: u32) -> anyhow::Result<u32> {
    let mut total = 0;
    step!("a", retry = Retry::times(3), { total += n; web.get(n).await? });
    step!("b", retry = Retry::times(3), |op| add(&mut total, op.attempt()));
    Ok(total)
}

fn add(total: &mut u32, n: u32) {
    *total += n;
}

#[fiber]
async fn through_a_method_and_not_needed_later(web: Res<Web>, n: u32) -> anyhow::Result<usize> {
    let mut tried = vec![];
    Ok(step!("a", retry = Retry::times(3), |op| { tried.push(op.attempt()); web.get(n).await?; tried.len() }))
}

struct Progress {
    tried: Vec<u32>,
}

#[fiber]
async fn in_a_field_by_a_reference(web: Res<Web>, n: u32) -> anyhow::Result<()> {
    let mut all = [Progress { tried: vec![] }];
    let progress = all.iter_mut().next().unwrap();
    step!("a", retry = Retry::times(3), { progress.tried.push(n); web.get(n).await? });
    Ok(())
}

#[fiber]
async fn in_a_macro(web: Res<Web>, n: u32) -> anyhow::Result<()> {
    let mut tried = vec![];
    step!("a", retry = Retry::times(3), { assert_eq!(tried.push(n), ()); web.get(n).await? });
    Ok(())
}

#[fiber]
async fn in_an_async_block(web: Res<Web>, n: u32) -> anyhow::Result<u32> {
    let mut total = 0;
    step!("a", retry = Retry::times(3), { async { total += n }.await; web.get(n).await? });
    Ok(total)
}

struct Web;

impl Web {
    async fn get(&self, n: u32) -> anyhow::Result<()> {
        anyhow::bail!("{n}")
    }
}

fn main() {}
