//! Polls code of fibers only while the lease of this worker is in force.
//!
//! A process that was paused for longer than its lease does not know, when it goes on, that other
//! workers run its fibers by now. The database refuses its writes, but not the requests that the
//! code sends elsewhere. So each poll first compares the age of the last renewal with the lease,
//! and after a time without a lease the claim is looked up before the code goes on.
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tracing::{debug, warn};

use crate::clock::later;
use crate::error::{Error, Result, chain};
use crate::future::BoxFuture;
use crate::runtime::exit::Exit;
use crate::runtime::race::race;
use crate::runtime::state::Runtime;
use crate::runtime::sync::sleep;
use crate::store::{Claim, Lease, StoredClaim};

/// Lease of a worker that a fiber was taken over from, with a margin.
///
/// Until then, by the clock of the runtime, that worker may be in the middle of the fiber's code.
#[derive(Debug)]
pub(crate) struct EarlierLease {
    until_ms: i64,
}

impl EarlierLease {
    /// The lease of which so much was left at the claim, just now. The margin counts from its end
    /// also where that is past: a worker that was stopped within a poll finishes that poll.
    pub(crate) fn of(runtime: &Runtime, left_ms: Option<i64>) -> Option<Self> {
        let until_ms = later(runtime.now_ms().saturating_add(left_ms?), runtime.settings.timings.lease_margin);
        Some(EarlierLease { until_ms })
    }

    /// Waits until the lease has run out, if there is one. An error if the runtime closes first.
    pub(crate) fn over<'a>(lease: Option<&'a Self>, runtime: &'a Runtime) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let Some(lease) = lease else { return Ok(()) };
            loop {
                let left_ms = u64::try_from(lease.until_ms.saturating_sub(runtime.now_ms())).unwrap_or(0);
                if left_ms == 0 {
                    return Ok(());
                }
                race(runtime.clock.sleep(Duration::from_millis(left_ms)), runtime.closing()).await.ok_or_else(Error::closed)?;
            }
        })
    }
}

/// Number of the lease that a claim was requested under; 0 if it was not in force.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeaseNumber(u64);

impl LeaseNumber {
    /// The lease of now. To be taken before the claim is requested.
    pub(crate) fn of(runtime: &Runtime) -> Self {
        LeaseNumber(lease(runtime).and_then(Lease::generation).unwrap_or(0))
    }
}

fn lease(runtime: &Runtime) -> Option<&dyn Lease> {
    runtime.cluster()?.lease()
}

/// Drives code of a fiber under its claim, which was requested under `begun`.
pub(crate) async fn while_leased(runtime: &Runtime, claim: Claim, begun: LeaseNumber, driven: impl Future<Output = Exit>) -> Exit {
    let Some(lease) = lease(runtime) else { return driven.await };
    let (mut driven, LeaseNumber(mut number)) = (pin!(driven), begun);
    loop {
        let polled = poll_fn(|cx| if lease.generation() == Some(number) { driven.as_mut().poll(cx).map(Some) } else { Poll::Ready(None) });
        if let Some(exit) = polled.await {
            return exit;
        }
        debug!(fiber = claim.fiber, "the lease was in doubt: the claim is looked up");
        match race(renewed(runtime, lease, claim), runtime.closing()).await {
            Some(Some(renewed)) => number = renewed,
            Some(None) => return Exit::ClaimLost,
            None => return Exit::Closed,
        }
    }
}

/// Waits until the lease is in force; gives its number if the claim is still in force under it.
async fn renewed(runtime: &Runtime, lease: &dyn Lease, claim: Claim) -> Option<u64> {
    loop {
        lease.renewal().await;
        let Some(number) = lease.generation() else { continue };
        let this = StoredClaim { epoch: claim.epoch, worker: Some(runtime.worker) };
        match runtime.store.claim_of(claim.fiber).await {
            Ok(stored) => return (stored == Some(this)).then_some(number),
            Err(error) => warn!(fiber = claim.fiber, error = %chain(&error), "a claim could not be looked up"),
        }
        sleep(runtime.settings.timings.store_retry).await;
    }
}
