#![deny(warnings)]
use forever::prelude::*;

#[derive(Clone, serde::Serialize, serde::Deserialize)]
struct Plan {
    title: String,
    notes: Vec<String>,
    best: Option<u32>,
}

#[fiber]
async fn research(plan: Plan) -> anyhow::Result<String> {
    let mut plan = plan;
    let title = &plan.title;
    let found = step!(search(title).await?);
    let label = "found";
    let first = &plan.notes[0];
    step!("first", search(first).await?);
    println!("{title} {label} {found} {first}");
    let notes = &mut plan.notes;
    notes.push(step!("note", search("a").await?).to_string());
    notes.push(step!("note again", search("b").await?).to_string());
    if let Some(best) = &plan.best {
        let more = step!("best", search("c").await?);
        return Ok(format!("{best} {more}"));
    }
    match &plan.notes[..] {
        [one] => {
            step!("one", search(one).await?);
            Ok(one.clone())
        }
        [.., last] => Ok(last.clone()),
        [] => Ok(label.to_owned()),
    }
}

async fn search(text: &str) -> anyhow::Result<usize> {
    Ok(text.len())
}

pub(crate) fn main() {
    let _ = research(Plan { title: String::new(), notes: vec![], best: None });
}
