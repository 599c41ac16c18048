use forever::prelude::*;

#[derive(serde::Serialize, serde::Deserialize)]
struct Plan {
    title: String,
    questions: Vec<String>,
}

#[fiber]
async fn research(mut plan: Plan) -> anyhow::Result<String> {
    let mut found = 0;
    for question in plan.questions {
        found += step!(search(&question).await?);
    }
    plan.title.push_str(&found.to_string());
    Ok(describe(&plan))
}

async fn search(question: &str) -> anyhow::Result<usize> {
    Ok(question.len())
}

fn describe(plan: &Plan) -> String {
    plan.title.clone()
}

fn main() {}
