use forever::prelude::*;

#[derive(serde::Serialize, serde::Deserialize)]
struct Plan {
    title: String,
    questions: Vec<String>,
}

#[fiber]
async fn research(plan: Plan) -> anyhow::Result<String> {
    let mut found = 0;
    for question in plan.questions {
        found += step!(search(&question).await?);
    }
    Ok(format!("{}: {found}", plan.title))
}

async fn search(question: &str) -> anyhow::Result<usize> {
    Ok(question.len())
}

fn main() {}
