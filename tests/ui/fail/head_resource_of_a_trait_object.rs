use forever::prelude::*;

trait Llm: Send + Sync {
    fn ask(&self) -> u32;
}

#[fiber]
async fn ask(llm: Res<dyn Llm>) -> anyhow::Result<u32> {
    Ok(step!(llm.ask()))
}

fn main() {}
