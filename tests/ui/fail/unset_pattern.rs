use forever::prelude::*;

struct Plan {
    title: String,
    pages: u32,
}

#[fiber]
async fn by_a_struct(long: bool) -> anyhow::Result<String> {
    let Plan { title, pages };
    if long {
        title = step!(name("long").await?);
        pages = 100;
    } else {
        Plan { title, pages } = Plan { title: String::new(), pages: 0 };
    }
    step!(name("after").await?);
    Ok(format!("{title}{pages}"))
}

async fn name(text: &str) -> anyhow::Result<String> {
    Ok(text.to_owned())
}

fn main() {}
