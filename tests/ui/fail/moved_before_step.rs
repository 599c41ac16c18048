use forever::prelude::*;

#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Plan {
    title: String,
    meta: Meta,
    budget: u32,
}

#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Meta {
    author: String,
    tags: Vec<String>,
}

impl Plan {
    fn cost(&self) -> u32 {
        self.budget
    }
}

#[fiber]
async fn used_as_a_whole(plan: Plan) -> anyhow::Result<String> {
    let title = plan.title;
    let budget = plan.budget;
    step!("search", search(&title, budget).await?);
    Ok(format!("{plan:?}"))
}

#[fiber]
async fn used_by_a_method(plan: Plan) -> anyhow::Result<u32> {
    let author = step!("send", send(plan.meta.author).await?);
    Ok(plan.cost() + author)
}

#[fiber]
async fn used_outside_of_the_block(plan: Plan) -> anyhow::Result<u32> {
    if plan.budget > 10 {
        let title = plan.title;
        step!("inside", search(&title, 1).await?);
    }
    Ok(plan.budget)
}

#[fiber]
async fn filled_again_after_the_step(mut plan: Plan) -> anyhow::Result<Plan> {
    let Meta { author, .. } = plan.meta;
    step!("late", search(&author, 1).await?);
    plan.meta = Meta { author, tags: Vec::new() };
    Ok(plan)
}

#[fiber]
async fn tuples(mut pair: (String, Vec<u32>)) -> anyhow::Result<(String, Vec<u32>)> {
    let text = pair.0;
    sleep!(std::time::Duration::from_secs(1));
    pair.0 = text;
    Ok(pair)
}

#[fiber]
async fn moved_beside_a_step(plan: Plan) -> anyhow::Result<u32> {
    let mut sum = 0;
    if plan.budget > 10 {
        sum += plan.title.len() as u32;
        drop(plan.title);
    } else {
        sum += step!("small", search("small", 1).await?);
    }
    step!("next", search("next", sum).await?);
    Ok(plan.budget)
}

async fn search(text: &str, n: u32) -> anyhow::Result<u32> {
    Ok(text.len() as u32 + n)
}

async fn send(text: String) -> anyhow::Result<u32> {
    Ok(text.len() as u32)
}

fn main() {}
