//! The generated versions, with what their text expects to find in scope.
use forever::fiber::{FiberContext, Res, Retry, StepError};
use forever::ops::OnUnknown;
use forever::{call, fiber, recv, select, sleep, spawn, step, steps, wait};
use forever_edits::*;
use forever_testkit::database::is_in_postgres;

use crate::deploy::Version;
use crate::io::Io;
use crate::oracle::argument;

/// Longer than anything takes.
const HOUR: std::time::Duration = std::time::Duration::from_secs(60 * 60);

/// What is spawned.
#[fiber]
pub(crate) async fn child(io: Res<Io>, number: i64) -> anyhow::Result<i64> {
    io.child().await;
    Ok(mix(77, &[number]))
}

include!(concat!(env!("OUT_DIR"), "/versions.rs"));
