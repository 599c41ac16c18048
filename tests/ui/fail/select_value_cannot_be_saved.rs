use forever::prelude::*;

struct Answer {
    text: String,
}

#[fiber]
async fn ask() -> anyhow::Result<String> {
    Ok(select! {
        answer: Answer = recv!("answer") => answer.text,
        text: String = recv!("text") => text,
    })
}

fn main() {}
