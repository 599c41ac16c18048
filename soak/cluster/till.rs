//! The agents of the example: tills, whose method every worker calls by name.
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use forever::agent::Agent;
use forever::prelude::*;
use forever::{BoxError, ErrorKind};

use crate::journal::Journal;

/// Number of tills.
const TILLS: u32 = 3;

/// Time limit of a call.
const LIMIT: Duration = Duration::from_secs(5);

/// Writes down what it was called for.
pub(crate) struct Till {
    dir: PathBuf,
}

impl Agent for Till {
    const CLASS: &'static str = "till";
    type State = u64;
}

impl Till {
    pub(crate) fn new(dir: &Path) -> Self {
        Till { dir: dir.to_owned() }
    }

    pub(crate) async fn ring(self: Arc<Self>, call: String) -> Result<String, BoxError> {
        Journal::open(&self.dir)?.write("carried-out", &call, "");
        tokio::time::sleep(Duration::from_millis(4)).await;
        Ok(call)
    }
}

/// Calls a till, and writes down what its caller hears.
pub(crate) async fn ring(forever: Forever, dir: PathBuf, call: String, number: u32) -> anyhow::Result<()> {
    let journal = Journal::open(&dir)?;
    let till = forever.agent::<Till>(format!("till-{}", number % TILLS));
    let (what, detail) = match till.call::<String>("ring", &call).within(LIMIT).await {
        Ok(answer) => ("answered", answer),
        Err(error) => match error.kind() {
            ErrorKind::Timeout => ("void", String::new()),
            ErrorKind::OutcomeUnknown => ("unknown", String::new()),
            _ => ("failed", error.to_string().replace('\n', " ")),
        },
    };
    journal.write(what, &call, detail);
    Ok(())
}
