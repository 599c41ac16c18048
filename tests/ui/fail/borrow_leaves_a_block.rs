use forever::prelude::*;

#[fiber]
async fn of_an_if(titles: Vec<String>, others: Vec<String>) -> anyhow::Result<usize> {
    let best = if step!(score(titles.len()).await?) > 3 {
        step!("again", score(1).await?);
        &titles[0]
    } else {
        &others[0]
    };
    let length = best.len();
    archive(titles);
    step!("note", score(length).await?);
    Ok(length)
}

#[fiber]
async fn of_a_loop(wanted: Vec<String>) -> anyhow::Result<bool> {
    let failed = 'check: {
        for name in wanted.iter() {
            if step!(score(name.len()).await?) > 3 {
                break 'check Some(name);
            }
        }
        None
    };
    let any = failed.is_some();
    archive(wanted);
    step!("note", score(1).await?);
    Ok(any)
}

#[fiber]
async fn of_a_list_of_literals(n: usize) -> anyhow::Result<String> {
    let topics = ["law", "tax"];
    let topic = match n {
        0 => {
            step!("none", score(0).await?);
            &topics[0]
        }
        _ => &topics[1],
    };
    Ok(topic.to_string())
}

fn archive(titles: Vec<String>) {
    drop(titles);
}

async fn score(n: usize) -> anyhow::Result<usize> {
    Ok(n)
}

fn main() {}
