#![deny(warnings)]
use forever::prelude::*;

struct Model(u32);

impl Model {
    async fn ask(&self, text: &str) -> anyhow::Result<u32> {
        Ok(self.0 + text.len() as u32)
    }
}

fn connect(model: &Model) -> u32 {
    model.0
}

#[fiber]
async fn research(ctx: &FiberContext, model: Res<Model>, topic: String) -> anyhow::Result<u32> {
    #[fresh]
    let client = connect(&model);
    let _ = ctx;
    let mut found = step!(model.ask(&topic).await?);
    found += step!("again", model.ask(&topic).await?);
    Ok(found + client)
}

pub(crate) fn main() {
    let _ = research(String::new());
}
