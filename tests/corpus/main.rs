//! A corpus of fiber bodies as people write agents: each is run as a plain function and as a fiber that is killed after and
//! before each of its checkpoints, and must come to the same outcome and the same effects in the same order.
//!
//! One file a subject. The gate builds one of them, and the night (feature `night`) all. The bodies are ordinary code: what is
//! unusual about them is left as it came.
#![allow(clippy::all, clippy::pedantic, clippy::string_slice)]
// Some change what a loop has read before, which nothing reads later.
#![allow(for_loops_over_fallibles, unused_assignments)]
#![allow(dead_code, dropping_copy_types, unused_braces, unused_imports, unused_macros, unused_variables)]

/// The harness of `tests/it`, under the path that its macros name.
#[path = "../it/language"]
mod language {
    pub(crate) mod harness;
}
mod plain;
mod run;

/// What the bodies use.
mod prelude {
    pub(crate) use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
    pub(crate) use std::time::Duration;

    pub(crate) use anyhow::{Context as _, anyhow, bail, ensure};
    pub(crate) use forever::prelude::{Backoff, OnUnknown, Retry};
    pub(crate) use serde::{Deserialize, Serialize};
    pub(crate) use serde_json::{Value, json};

    pub(crate) use crate::language::harness::{
        Io, Letters, plain_call as call, plain_recv as recv, plain_select as select, plain_sleep as sleep, plain_sleep as sleep_until, twin,
    };
    pub(crate) use crate::plain::{
        plain_spawn as spawn, plain_step as step, plain_steps as steps, plain_wait as wait, plain_wait_all as wait_all,
    };
    pub(crate) use crate::run::{completes, completes_hashed, completes_with, corpus, fails, fails_with, now};

    pub(crate) const SHORT: Duration = Duration::from_millis(1);
}

// The gate has the file with the most constructs.
mod constructs;
#[cfg(feature = "night")]
mod night;
#[cfg(not(feature = "night"))]
mod night {
    pub(crate) fn bodies() -> Vec<&'static str> {
        Vec::new()
    }
}

#[test]
fn bodies_of_the_corpus_have_names_of_their_own() {
    let bodies = [constructs::BODIES.to_vec(), night::bodies()].concat();
    let names: std::collections::BTreeSet<_> = bodies.iter().collect();
    assert_eq!(names.len(), bodies.len(), "two bodies of one name");
    let least = if cfg!(feature = "night") { 150 } else { 20 };
    assert!(bodies.len() >= least, "{}", bodies.len());
}
