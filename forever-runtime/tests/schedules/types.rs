//! What a store takes and gives, as far as tasks of a runtime use it: a model of `forever-store`.
use std::any::Any;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Weak};

use crate::error::Result;
use crate::future::BoxFuture;
use crate::store::sqlite::rows::Database;
pub(crate) use crate::store::sqlite::rows::OpenStore as Sqlite;

pub(crate) type Seq = i64;
pub(crate) type WorkerId = i64;
pub(crate) type Epoch = i64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoredClaim {
    pub(crate) epoch: Epoch,
    pub(crate) worker: Option<WorkerId>,
}

#[derive(Debug, Clone)]
pub(crate) struct AgentId;

#[derive(Clone)]
pub(crate) struct ReadySender(Arc<dyn Fn(Runnable) + Send + Sync>);

impl ReadySender {
    pub(crate) fn new(send: impl Fn(Runnable) + Send + Sync + 'static) -> Self {
        ReadySender(Arc::new(send))
    }

    pub(crate) fn send(&self, fiber: Runnable) {
        (self.0)(fiber);
    }
}

impl fmt::Debug for ReadySender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadySender")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Claim {
    pub(crate) fiber: Seq,
    pub(crate) epoch: Epoch,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClaimResult {
    Granted(Claim, Box<LoadedFiber>),
    Ended(End),
    Refused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FiberState {
    Pending,
    Running,
    Waiting,
    Completed,
    Failed,
    Cancelled,
    Interrupted,
    Parked,
}

impl FromStr for FiberState {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        Ok(match word {
            "pending" => FiberState::Pending,
            "running" => FiberState::Running,
            "waiting" => FiberState::Waiting,
            "completed" => FiberState::Completed,
            "failed" => FiberState::Failed,
            "cancelled" => FiberState::Cancelled,
            "interrupted" => FiberState::Interrupted,
            "parked" => FiberState::Parked,
            other => return Err(other.to_owned()),
        })
    }
}

/// What a transaction tells once it is committed.
#[derive(Debug, Default)]
pub(crate) struct CommitNotices {
    pub(crate) ready: Vec<Runnable>,
}

#[derive(Debug, Clone)]
pub(crate) struct Runnable {
    pub(crate) seq: Seq,
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) agent: Option<AgentId>,
    pub(crate) state: FiberState,
    pub(crate) epoch: Epoch,
    pub(crate) deaths: u32,
}

pub(crate) trait Lease: Send + Sync {
    fn generation(&self) -> Option<u64>;
    fn renewal(&self) -> BoxFuture<'_, ()>;
}

/// What came of leaving a fiber to workers whose code fits.
#[derive(Debug)]
pub(crate) enum DeclineResult {
    Left,
    Parked,
    Ended(End),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoadedFiber {
    pub(crate) snapshot: Option<String>,
    pub(crate) rows: (),
    pub(crate) number: u64,
    pub(crate) deaths: u32,
    pub(crate) interrupted: bool,
    pub(crate) epoch: Epoch,
    pub(crate) lease_left_ms: Option<i64>,
    pub(crate) layout: Option<LayoutRow>,
    pub(crate) callees: Vec<LayoutRow>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LayoutRow {
    pub(crate) hash: String,
    pub(crate) fiber: String,
}

/// A fiber waits for a message or for a time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wait {
    pub(crate) due_ms: Option<i64>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WaitResult {
    Waiting,
    Ready,
}

/// No fiber of these tests has operations.
#[derive(Debug)]
pub(crate) struct OpOutcome;

/// No fiber of these tests has output streams.
#[derive(Debug)]
pub(crate) struct StreamAppend;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    Completed(String),
    Failed(String),
    Cancelled(String),
}

#[derive(Debug, Clone)]
pub(crate) enum Suspension {
    Interrupted(String),
    Parked(String),
}

/// The ownership of a database, as the tasks of one runtime see it.
#[derive(Debug, Clone)]
pub(crate) struct Ownership(pub(crate) Weak<dyn Any + Send + Sync>);

impl Ownership {
    pub(crate) fn hold(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.0.upgrade()
    }
}

pub(crate) trait Store: Send + Sync + fmt::Debug {
    fn on_ready(&self, ready: ReadySender);
    fn load(&self, seq: Seq) -> BoxFuture<'_, Result<LoadedFiber>>;
    fn claim_of(&self, seq: Seq) -> BoxFuture<'_, Result<Option<StoredClaim>>>;
    fn ready(&self, after: Seq, limit: u32) -> BoxFuture<'_, Result<Vec<Runnable>>>;
    fn claim(&self, seen: Claim, worker: WorkerId, now_ms: i64) -> BoxFuture<'_, Result<ClaimResult>>;
    fn wait(&self, claim: Claim, wait: Wait, now_ms: i64) -> BoxFuture<'_, Result<WaitResult>>;
    fn take_due(&self, now_ms: i64, limit: u32) -> BoxFuture<'_, Result<Vec<Runnable>>>;
    fn next_due(&self) -> BoxFuture<'_, Result<Option<i64>>>;
    fn end(&self, claim: Claim, end: End, settled: Vec<OpOutcome>, appended: Vec<StreamAppend>, now_ms: i64) -> BoxFuture<'_, Result<End>>;
    fn suspend(&self, claim: Claim, suspend: Suspension, now_ms: i64) -> BoxFuture<'_, Result<Option<End>>>;
    fn close(&self, worker: WorkerId, now_ms: i64) -> BoxFuture<'_, Result<()>>;
    fn abandon(&self);

    /// Receives the oldest message of a fiber with checkpoint `number`; whether there was one.
    fn receive(&self, claim: Claim, number: u64) -> BoxFuture<'_, Result<bool>>;
    /// What is behind it, and what was seen there.
    fn database(&self) -> &std::sync::Arc<Database>;
}
