//! An agent: a named owner of state and fibers, with a hook that decides about their recovery.
//!
//! ```text
//! cargo run --example agent
//! ```
#![forbid(unsafe_code)]

use forever::BoxError;
use forever::agent::{Agent, AgentHandle, EndedFiber, RecoveredFiber, RecoveryAction};
use forever::prelude::*;

struct Librarian {
    me: AgentHandle<Librarian>,
}

impl Agent for Librarian {
    const CLASS: &'static str = "librarian";
    /// Titles on the shelf.
    type State = Vec<String>;

    /// A fiber that killed its process three times is not resumed a fourth time.
    async fn on_fiber_recovered(&self, fiber: &RecoveredFiber) -> Result<RecoveryAction, BoxError> {
        Ok(if fiber.deaths() < 3 { RecoveryAction::Resume } else { RecoveryAction::fail("it kills its process") })
    }

    async fn on_fiber_completed(&self, fiber: &EndedFiber) -> Result<(), BoxError> {
        let mut titles = self.me.state().await?;
        titles.push(fiber.result()?);
        self.me.set_state(&titles).await?;
        Ok(())
    }
}

/// Reads a book, and returns its title.
#[fiber]
async fn catalogue(isbn: u32) -> anyhow::Result<String> {
    let title = step!("look up", format!("Book {isbn}"));
    Ok(title)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let forever = Forever::builder().in_memory().agent(|me| Librarian { me }).fiber::<catalogue>().open().await?;
    // Agents are not created: one is loaded when it is needed.
    let ada = forever.agent::<Librarian>("ada");
    let mut connection = ada.connect().await?;
    ada.spawn(catalogue(42)).await?.wait().await?;
    // The state that the hook has set.
    println!("pushed: {:?}", connection.recv().await);
    println!("stored: {:?}", ada.state().await?);
    Ok(forever.close().await?)
}
